"""Learns the scales of the devices' fit from public annotators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.examples import document_of, unique_texts
from fala.bundle.reading import Bundle
from fala.model.heads import Head, Vectors
from fala_export.errors import RowError
from fala_export.fitting.device_fit import one_blas_thread
from fala_export.fitting.population import scales
from fala_export.fitting.population.left_out import Show, cross_fitted_logits, was_trained
from fala_export.fitting.population.scales import AnnotatedRows
from fala_export.fitting.samples import drawn_rows, evenly, mean_length, most_documents, numbers_of
from fala_export.rows.user_rows import Row, label_names, shown_labels

#: Rows of an annotator: more would only cost time.
MOST_ROWS = 500


@dataclass(frozen=True, eq=False)
class Annotated:
    """The public rows that scales are learned from, drawn from very many.

    Attributes:
        rows: Rows with a user: those of drawn annotators, and others, for the heads that compute
            the cross-fitted logits.
        drawn: Positions of the drawn annotators' rows.
        available: See ``AnnotatedRows``.
    """

    rows: list[Row]
    drawn: NDArray[np.int64]
    available: int

    @property
    def texts(self) -> list[str]:
        """The distinct texts of the rows."""
        return unique_texts(row.example for row in self.rows)


def annotated(bundle: Bundle, head: Head, rows: Sequence[Row]) -> Annotated:
    """Draw annotators and their rows, before texts are embedded.

    Of annotators with ``scales.LEAST_ROWS`` rows ``scales.MOST_ANNOTATORS`` are drawn; of each at
    most ``MOST_ROWS`` rows, at even steps.

    Args:
        bundle: The release.
        head: Its head.
        rows: Public rows.

    Raises:
        RowError: A used row has a label that is not the head's.
    """
    named = np.fromiter((row.user is not None for row in rows), np.bool_, len(rows))
    users = numbers_of(row.user or "" for row in rows)
    distinct, counts = np.unique(users[named], return_counts=True)
    enough = distinct[counts >= scales.LEAST_ROWS]  # in the order of a draw
    found = np.flatnonzero(named & np.isin(users, enough[: scales.MOST_ANNOTATORS]))
    found = found[np.argsort(users[found], kind="stable")]
    by_person = np.split(found, np.flatnonzero(np.diff(users[found])) + 1)
    chosen = np.sort(np.concatenate([each[evenly(len(each), MOST_ROWS)] for each in by_person]))
    used = chosen
    if not was_trained(bundle):
        documents = numbers_of(document_of(row.example) for row in rows)
        most = most_documents(mean_length([rows[position].example for position in chosen.tolist()]))
        others = drawn_rows(documents[named], np.unique(documents[chosen]), most)
        used = np.union1d(chosen, np.flatnonzero(named)[others])
    result = [rows[position] for position in used.tolist()]
    for row in result:
        stored = head.link.as_stored([row.label], head.labels)
        if head.link.usable(stored, head.labels) == [None]:
            labels = shown_labels(label_names(row.label for row in result))
            raise RowError(
                row.line,
                f"label does not fit the head's {head.described}; the rows have {labels}",
            )
    return Annotated(result, np.searchsorted(used, chosen), len(enough))


def annotated_rows(
    bundle: Bundle, head: Head, data: Annotated, embeddings: Mapping[str, Vectors], show: Show
) -> AnnotatedRows:
    """A head's inputs and logits of annotators' rows.

    Args:
        bundle: The release.
        head: Its head.
        data: The rows.
        embeddings: Embeddings of their texts.
        show: Shows progress.

    Raises:
        DataError: See ``cross_fitted_logits``.
    """
    logits = cross_fitted_logits(
        bundle, head, [row.example for row in data.rows], [row.label for row in data.rows],
        embeddings, show,
    )[data.drawn]  # fmt: skip
    used = [data.rows[position] for position in data.drawn.tolist()]
    # Many annotators label the same examples: compute the inputs once.
    examples = list(dict.fromkeys(row.example for row in used))
    position_of = {example: position for position, example in enumerate(examples)}
    positions = np.array([position_of[row.example] for row in used], dtype=np.int64)
    words = head.words(examples)
    return AnnotatedRows(
        head,
        head.inputs(examples, embeddings)[positions],
        None if words is None else words.take(positions),
        logits,
        head.label_shares([row.label for row in used]),
        [str(row.user) for row in used],
        data.available,
    )


def learn_scales(
    rows: AnnotatedRows, show: Show
) -> tuple[list[dict[str, Any]] | None, dict[str, int] | None]:
    """Choose the scales with the least loss on annotators, by number of labels.

    Args:
        rows: The annotators' rows.
        show: Shows progress.

    Returns:
        The table of scales, as of a manifest, and the manifest's details of its origin; None if too
        few annotators have enough rows.
    """
    table, people = [], 0
    for labels in scales.LABELS:
        sets = scales.training_sets(rows, labels)
        if len(sets) < scales.LEAST_ANNOTATORS:
            break
        people = max(people, len(sets))
        length = len(sets) * scales.trials(len(sets[0][0].blocks) - 1)
        with show(f"choosing scales for {labels} labels", length) as bar, one_blas_thread():
            table.append(scales.choose_scales(sets, labels, bar.update).to_details())
    if not table:
        return None, None
    return table, {"annotators": people, "of": max(rows.available, people)}
