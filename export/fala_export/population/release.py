"""What a release tells of public annotators, from the rows of a data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fala import (
    Bundle,
    BundleMismatchError,
    DataError,
    Head,
    PopulationPrior,
    RowError,
    add_prior,
    write_bundle,
)
from fala.release import Rating, unique_texts
from fala.release.device_fit import SparseRows, one_blas_thread
from fala_export.embedding import Embedder
from fala_export.population.annotators import (
    LEAST_ANNOTATORS,
    Annotator,
    Floats,
    Inputs,
    gather_annotators,
)
from fala_export.population.choice import FITS, FOLDS, Choice, choose_prior
from fala_export.population.left_out import honest_logits
from fala_export.population.scales import LEAST_ROWS, choose_scales, training_sets, trials
from fala_export.progress import progress
from fala_export.settings import PriorSettings
from fala_export.training.public_rows import PublicRows
from fala_export.training.unseen import unseen_rows


def learn_from_annotators(
    release: Path,
    public: PublicRows,
    out: Path,
    settings: PriorSettings,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """``write_prior``, or ``write_scales`` where the settings ask for scales only."""
    write = write_scales if settings.scales_only else write_prior
    return write(release, public, out, settings.trained_on, embedder)


def write_prior(
    release: Path,
    public: PublicRows,
    out: Path,
    trained_on: Path | None = None,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Estimate a prior and write the release again with it, and with the fit's scales under it.

    Args:
        release: Bundle with a head of two labels and one weight a dimension.
        public: Those that name a user are used.
        out: Where to write; it may be ``release``.
        trained_on: See ``unseen_rows``: rows on what the backbone was trained on are left out.
        embedder: Embeds the texts; None keeps no embeddings.

    Returns:
        ``bundle``, ``bytes_added``, what the manifest says of the ``prior``, and the ``scales``:
        None where too few annotators have rows enough to choose them by.

    Raises:
        BundleMismatchError: The release has no head, or not one of that kind for these rows.
        DataError: The rows are of too few annotators, or no prior is better than
            what there is.
        ExportError: ``trained_on`` are not the rows of the release's training.
        RowError: A row has a label that is not the head's.
    """
    bundle = Bundle.open(release)
    head = _head_of(bundle)
    if len(head.labels) != 2:
        raise BundleMismatchError(
            f"{bundle.path}: its head has {len(head.labels)} labels; a population prior is for "
            "heads of two (--scales-only chooses scales for any)"
        )
    if len(head.parts) > 1:
        raise BundleMismatchError(
            f"{bundle.path}: its head weighs candidates by themselves, too; a population prior is "
            "for heads of one weight a dimension (--scales-only chooses scales for any)"
        )
    public = unseen_rows(bundle, public, trained_on)
    rows = _embedded(bundle, head, public, embedder or Embedder())
    annotators = gather_annotators(
        rows.inputs, rows.words, rows.logits[:, 0], rows.labels[:, 0], rows.names
    )
    with progress("estimating priors", FITS * len(annotators)) as bar, one_blas_thread():
        choice = choose_prior(annotators, bar.update)
    scales = _scales(head, rows, _held_out(annotators, choice))
    details = {
        "method": "empirical Bayes over public annotators: EM with Laplace's approximation",
        "data": public.digest,
        "annotators": len(annotators),
        "rows": sum(len(annotator.labels) for annotator in annotators),
        **choice.details(),
    }
    before = release.stat().st_size
    with TemporaryDirectory(dir=out.parent, prefix=".fala-") as folder:
        noted = Path(folder) / out.name
        _note(noted, bundle, scales)
        add_prior(out, Bundle.open(noted), choice.prior, details)
    return {
        "bundle": str(out),
        "bytes_added": out.stat().st_size - before,
        "prior": details,
        "scales": scales,
    }


def write_scales(
    release: Path,
    public: PublicRows,
    out: Path,
    trained_on: Path | None = None,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Write a release again with the scales that serve public annotators best, and nothing else.

    Its population prior stays, if it has one.

    Args:
        release: Bundle with a head.
        public: Those that name a user are used.
        out: Where to write; it may be ``release``.
        trained_on: See ``write_prior``.
        embedder: See ``write_prior``.

    Returns:
        ``bundle``, ``bytes_added`` and ``scales``.

    Raises:
        BundleMismatchError: The release has no head, or not one for these rows.
        DataError: The rows are of too few annotators.
        ExportError: See ``write_prior``.
        RowError: A row has a label that is not the head's.
    """
    bundle = Bundle.open(release)
    head = _head_of(bundle)
    public = unseen_rows(bundle, public, trained_on)
    rows = _embedded(bundle, head, public, embedder or Embedder())
    scales = _scales(head, rows, dict.fromkeys(set(rows.names), bundle.prior()))
    if scales is None:
        raise DataError(
            f"scales are chosen by {LEAST_ANNOTATORS} public annotators of {LEAST_ROWS} "
            "rows or more, and there are fewer. Without scales, devices take the SDK's"
        )
    before = release.stat().st_size
    _note(out, bundle, scales)
    return {"bundle": str(out), "bytes_added": out.stat().st_size - before, "scales": scales}


@dataclass(frozen=True)
class _Rows:
    """Public rows as the head sees them.

    Attributes:
        inputs: ``Head.inputs``, shape (n, D).
        words: ``Head.words``.
        logits: ``honest_logits``, shape (n, C).
        labels: ``Head.label_shares``, shape (n, C).
        names: Who labelled each row.
    """

    inputs: Inputs
    words: SparseRows | None
    logits: Floats
    labels: Floats
    names: Sequence[str]


def _head_of(bundle: Bundle) -> Head:
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: has no head; a population prior is about a head. "
            "fala-export train makes a release with one"
        )
    if isinstance(head.link, Rating):
        raise BundleMismatchError(
            f"{bundle.path}: its head is for {head.asks}; a population prior and scales are "
            "estimated for labels alone"
        )
    return head


def _embedded(bundle: Bundle, head: Head, public: PublicRows, embedder: Embedder) -> _Rows:
    if public.task != head.task:
        raise BundleMismatchError(
            f"the rows are for {public.task}, the release's head is for {head.task}"
        )
    rows = [row for row in public.rows if row.user is not None]
    for row in rows:
        if str(row.label) not in head.labels:
            raise RowError(
                row.line,
                f"label {row.label!r} is not one of the head's: {', '.join(head.labels)}",
            )
    # Many label the same: texts are embedded, and examples made inputs, once.
    examples = list(dict.fromkeys(row.example for row in rows))
    position_of = {example: position for position, example in enumerate(examples)}
    positions = np.array([position_of[row.example] for row in rows], dtype=np.int64)
    texts = unique_texts(examples)
    vectors = embedder.embed(bundle.backbone(), bundle.backbone_digest, texts, "embedding texts")
    embeddings = dict(zip(texts, vectors, strict=True))
    inputs = head.inputs(examples, embeddings)
    words = head.words(examples)
    labels = [str(row.label) for row in rows]
    return _Rows(
        inputs[positions],
        None if words is None else words.take(positions),
        honest_logits(bundle, head, [row.example for row in rows], labels, embeddings),
        head.label_shares(labels),
        [str(row.user) for row in rows],
    )


def _held_out(annotators: Sequence[Annotator], choice: Choice) -> dict[str, PopulationPrior]:
    """For everybody the prior that was estimated without them, as for a device's owner."""
    return {
        annotator.name: choice.held_out[position % FOLDS]
        for position, annotator in enumerate(annotators)
    }


def _scales(
    head: Head, rows: _Rows, priors: Mapping[str, PopulationPrior | None]
) -> list[float] | None:
    people = training_sets(
        head, rows.inputs, rows.words, rows.logits, rows.labels, rows.names, priors
    )
    if len(people) < LEAST_ANNOTATORS:
        return None
    length = len(people) * trials(len(people[0].blocks) - 1)
    with progress("choosing scales", length) as bar, one_blas_thread():
        return list(choose_scales(people, bar.update))


def _note(out: Path, bundle: Bundle, scales: list[float] | None) -> None:
    """Write a bundle again with these scales, or without any: earlier ones are of another prior."""
    details = {key: value for key, value in bundle.manifest.details.items() if key != "scales"}
    if scales is not None:
        details["scales"] = scales
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    write_bundle(out, replace(bundle.manifest, details=details), files)
