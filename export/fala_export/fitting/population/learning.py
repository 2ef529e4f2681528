"""Learns a population prior, and the fit's scales under it, from public annotators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.bundle.reading import Bundle
from fala.errors import BundleMismatchError, DataError
from fala.examples import document_of, unique_texts
from fala.model.heads import Head, Vectors
from fala.model.prior import PopulationPrior
from fala_export.bundles import prior_files, write_again
from fala_export.errors import RowError
from fala_export.fitting.device_fit import one_blas_thread
from fala_export.fitting.population import scales
from fala_export.fitting.population.annotators import (
    LEAST_ANNOTATORS,
    LEAST_ROWS,
    MOST_ANNOTATORS,
    MOST_ROWS,
    Annotators,
    Map,
    gather_annotators,
)
from fala_export.fitting.population.choice import ESTIMATES, FOLDS, PriorChoice, choose_prior
from fala_export.fitting.population.left_out import Show, cross_fitted_logits, was_trained
from fala_export.fitting.population.scales import AnnotatedRows
from fala_export.fitting.samples import drawn_rows, evenly, mean_length, most_documents, numbers_of
from fala_export.rows.user_rows import Row, label_names, shown_labels


@dataclass(frozen=True)
class Learned:
    """A prior with the scales under it.

    Attributes:
        prior: The population prior; None if none is better on held-out annotators.
        scales: The scales; None if too few annotators have enough rows.
        scales_from: A manifest's details of them: the number of annotators, of how many.
        details: A manifest's details of the prior, or why there is none (``refused``).
    """

    prior: PopulationPrior | None
    scales: list[dict[str, Any]] | None
    scales_from: dict[str, int] | None
    details: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Annotated:
    """The public rows that a prior and scales are learned from, drawn from very many.

    Attributes:
        rows: Rows with a user: those of drawn annotators, and others, for the heads that compute
            the cross-fitted logits.
        drawn: Positions of the drawn annotators' rows.
        available: See ``AnnotatedRows``.
    """

    rows: list[Row]
    drawn: NDArray[np.int64]
    available: Mapping[int, int]

    @property
    def texts(self) -> list[str]:
        """The distinct texts of the rows."""
        return unique_texts(row.example for row in self.rows)


def annotated(bundle: Bundle, head: Head, rows: Sequence[Row]) -> Annotated:
    """Draw annotators and their rows, before texts are embedded.

    Of annotators with enough rows for a prior ``annotators.MOST_ANNOTATORS`` are drawn, and of
    those with enough for scales ``scales.MOST_ANNOTATORS``; of each at most ``MOST_ROWS`` rows, at
    even steps.

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
    people, available = [], {}
    for least, most in (
        (LEAST_ROWS, MOST_ANNOTATORS), (scales.LEAST_ROWS, scales.MOST_ANNOTATORS),
    ):  # fmt: skip
        enough = distinct[counts >= least]  # in the order of a draw
        available[least] = len(enough)
        people.append(enough[:most])
    found = np.flatnonzero(named & np.isin(users, np.concatenate(people)))
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
    return Annotated(result, np.searchsorted(used, chosen), available)


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


def check_head(bundle: Bundle, head: Head) -> None:
    """Check that a head is of the kind that a population prior is for.

    Raises:
        BundleMismatchError: It is not.
    """
    if len(head.bias) != 1 or head.link.kind == "tags":
        raise BundleMismatchError(
            f"{bundle.path}: its head has {head.link.described(head.labels)}; a population prior "
            "is for heads of two labels, and of ratings (--scales-only, or scales_only = true in a "
            "recipe, chooses scales for any)"
        )
    if len(head.parts) > 1:
        raise BundleMismatchError(
            f"{bundle.path}: its head weighs candidates by themselves, too; a population prior is "
            "for heads of one weight a dimension (--scales-only, or scales_only = true in a "
            "recipe, chooses scales for any)"
        )


def learn_prior(rows: AnnotatedRows, show: Show, run: Map = map) -> Learned:
    """Estimate a prior, and choose the scales under it.

    Args:
        rows: Rows of a head that passes ``check_head``.
        show: Shows progress.
        run: See ``choose_prior``.

    Raises:
        DataError: The rows are from too few annotators.
    """
    annotators = gather_annotators(
        rows.inputs, rows.words, rows.logits[:, 0], rows.labels[:, 0], rows.names,
        rows.head.link,
    )  # fmt: skip
    with show("estimating priors", ESTIMATES) as bar, one_blas_thread():
        choice = choose_prior(annotators, bar.update, run)
    details = {
        "method": "empirical Bayes over public annotators: EM with Laplace's approximation",
        "annotators": len(annotators),
        "of": rows.available.get(LEAST_ROWS, len(annotators)),
        "rows": sum(len(annotator.labels) for annotator in annotators),
        **choice.details(),
    }
    # Annotators of the scales alone are held out from all estimates.
    priors = dict.fromkeys(rows.names, choice.prior) | _held_out(annotators, choice)
    return Learned(choice.prior, *learn_scales(rows, priors, show, run), details)


def learn_prior_or_scales(bundle: Bundle, rows: AnnotatedRows, show: Show) -> Learned:
    """``learn_prior``, or the scales alone where no prior can be learned.

    Args:
        bundle: The release.
        rows: Rows of its head.
        show: Shows progress.
    """
    try:
        check_head(bundle, rows.head)
        return learn_prior(rows, show)
    except BundleMismatchError as error:
        reason = str(error).removeprefix(f"{bundle.path}: ")
    except DataError as error:
        reason = str(error)
    except ImportError:
        reason = "SciPy learns it, and is not installed (pip install scipy)"
    return Learned(None, *learn_scales(rows, dict.fromkeys(rows.names), show), {"refused": reason})


def learn_scales(
    rows: AnnotatedRows, priors: Mapping[str, PopulationPrior | None], show: Show, run: Map = map
) -> tuple[list[dict[str, Any]] | None, dict[str, int] | None]:
    """Choose the scales with the least loss on annotators, by number of labels.

    Args:
        rows: The annotators' rows.
        priors: The prior of each one's device, by name.
        show: Shows progress.
        run: See ``choose_scales``.

    Returns:
        The table of scales, as of a manifest, and the manifest's details of its origin; None if too
        few annotators have enough rows.
    """
    table, people = [], 0
    for labels in scales.LABELS:
        sets = scales.training_sets(rows, priors, labels)
        if len(sets) < LEAST_ANNOTATORS:
            break
        people = max(people, len(sets))
        length = len(sets) * scales.trials(len(sets[0][0].blocks) - 1)
        with show(f"choosing scales for {labels} labels", length) as bar, one_blas_thread():
            table.append(scales.choose_scales(sets, labels, bar.update, run).to_details())
    if not table:
        return None, None
    return table, {"annotators": people, "of": rows.available.get(scales.LEAST_ROWS, people)}


def write_learned(path: Path, bundle: Bundle, learned: Learned, details: Mapping[str, Any]) -> None:
    """Write a release again with a prior and the scales under it, in place of earlier ones.

    Args:
        path: The file; it may be the bundle's own.
        bundle: The release.
        learned: The prior and the scales.
        details: Notes about the prior.
    """
    notes = {
        "prior": dict(details),
        "scales": learned.scales,
        "scales_from": learned.scales_from,
    }
    write_again(path, bundle, notes, prior_files(learned.prior))


def _held_out(annotators: Annotators, choice: PriorChoice) -> dict[str, PopulationPrior | None]:
    """Each annotator's prior, estimated without them, as for a device's owner."""
    return {
        annotator.name: choice.held_out[position % FOLDS]
        for position, annotator in enumerate(annotators)
    }
