"""Learn the scales (prior variances) of the devices' fit from public annotators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.threads import one_blas_thread
from fala.bundle.reading import Bundle
from fala.cli import progress
from fala.model.heads import Head, Vectors
from fala_export.base.errors import RowError
from fala_export.fit import scales
from fala_export.fit.left_out import held_out_logits
from fala_export.people.draw import LEAST_ANNOTATORS, annotators_of, evenly, rows_of_head
from fala_export.recipe.record import TrainingRecord
from fala_export.rows.table import Rows, coded
from fala_export.rows.user_rows import label_names, shown_labels

#: Most rows of an annotator, because more would only cost time.
MOST_ROWS = 500


def annotated(bundle: Bundle, head: Head, rows: Rows) -> tuple[Rows, NDArray[np.intp], int]:
    """Draw annotators and their rows before texts are embedded.

    At most ``scales.MOST_ANNOTATORS`` annotators with at least ``LEAST_ROWS`` rows are drawn, and
    at most ``MOST_ROWS`` of each one's rows, at even steps.

    Args:
        bundle: The release.
        head: The release's head.
        rows: Public rows.

    Returns:
        The rows with a user: those of the drawn annotators, and others, for the heads that compute
        the held-out logits; the positions of the drawn annotators' rows; and the number of
        annotators from whom they were drawn.

    Raises:
        RowError: A used row has a label that the head does not have.
    """
    codes = rows.user_codes
    chosen = np.zeros(len(rows), dtype=np.bool_)
    annotators = annotators_of(rows)
    for annotator in annotators[: scales.MOST_ANNOTATORS].tolist():
        own = np.flatnonzero(codes == annotator)
        chosen[own[evenly(len(own), MOST_ROWS)]] = True
    used = chosen
    if not TrainingRecord.of(bundle).trained:
        named = rows.where(codes >= 0)
        used = chosen | ((codes >= 0) & rows.on_documents_of(rows_of_head(named)))
    result = rows.where(used)
    for row in result:
        stored = head.link.as_stored([row.label], head.labels)
        if head.link.usable(stored, head.labels) == [None]:
            labels = shown_labels(label_names(result.label_values))
            raise RowError(
                row.line,
                f"label does not fit the head's {head.described}; the rows have {labels}",
            )
    return result, np.flatnonzero(chosen[used]), len(annotators)


def learn_scales(
    bundle: Bundle,
    head: Head,
    rows: Rows,
    embeddings_of: Callable[[list[str]], Mapping[str, Vectors]],
) -> tuple[list[dict[str, Any]] | None, dict[str, int] | None]:
    """Draw annotators and choose the scales with the least loss on them, by number of labels.

    Args:
        bundle: The release.
        head: The release's head.
        rows: Public rows.
        embeddings_of: A function that embeds the drawn rows' texts.

    Returns:
        The table and its details, as ``choose_table`` returns them.

    Raises:
        DataError: No head can be fitted without some of the rows; see ``held_out_logits``.
        RowError: A row's label does not fit the head; see ``annotated``.
    """
    rows, drawn, available = annotated(bundle, head, rows)
    embeddings = embeddings_of(rows.texts())
    logits, held_out = held_out_logits(bundle, head, rows, embeddings)
    used = rows.take(drawn)
    # Many annotators label the same examples, so their inputs are computed once.
    (*examples, _), positions = coded(used.examples)
    words = head.ngrams(examples)
    annotators = scales.Annotators.of(
        head,
        head.inputs(examples, embeddings)[positions],
        None if words is None else words.take(positions),
        logits[drawn],
        head.label_shares(used.row_labels),
        [str(name) for name in used.user_names],
        held_out[drawn],
    )
    return choose_table(annotators, available)


def choose_table(
    annotators: scales.Annotators, available: int
) -> tuple[list[dict[str, Any]] | None, dict[str, int] | None]:
    """Choose the scales of the drawn annotators, by number of labels.

    Args:
        annotators: The annotators' rows.
        available: Number of annotators from whom they were drawn.

    Returns:
        The table of scales, as in a manifest, and the manifest's details of its origin; None if too
        few annotators have enough rows.
    """
    table, people = [], 0
    for labels in scales.NUMBERS_OF_LABELS:
        sets = annotators.simulated(labels)
        if len(sets) < LEAST_ANNOTATORS:
            break
        people = max(people, len(sets))
        length = len(sets) * scales.trials(len(sets[0][0].training.blocks) - 1)
        with progress(f"choosing scales for {labels} labels", length) as bar, one_blas_thread():
            table.append(scales.choose_scales(sets, labels, bar.update).to_details())
    if not table:
        return None, None
    return table, {"annotators": people, "of": max(available, people)}
