"""Learn a release's population prior and scales from public annotators' rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fala import Bundle, BundleMismatchError, DataError
from fala.cli import progress
from fala.model.heads import Head
from fala_export.bundles import write_again
from fala_export.embedding import Embedder
from fala_export.fitting.population.annotators import (
    LEAST_ANNOTATORS,
    Map,
    check_enough,
)
from fala_export.fitting.population.learning import (
    annotated,
    annotated_rows,
    check_head,
    learn_prior,
    learn_scales,
    write_learned,
)
from fala_export.fitting.population.scales import LEAST_ROWS, AnnotatedRows
from fala_export.rows.columns import Columns
from fala_export.settings import PriorSettings
from fala_export.training.public_rows import PublicRows, load_public_rows
from fala_export.training.unseen import unseen_rows

# N-grams of a row, about; and the numbers of all rows below which other processes do not pay: the
# search of scales for 1,200 rows of 4 numbers took twice the processor time with them.
_NGRAMS, _LITTLE = 500, 1 << 22


def learn_from_annotators(
    release: Path,
    public: PublicRows,
    out: Path,
    settings: PriorSettings,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """``write_prior``, or ``write_scales`` where the settings are for scales only."""
    write = write_scales if settings.scales_only else write_prior
    trained_on = None
    if settings.trained_on is not None:
        # The digest says if these are the rows of the training, which may have skipped bad ones.
        trained_on = load_public_rows(settings.trained_on, Columns(skip_bad_rows=True))
    return write(release, public, out, trained_on, embedder)


def check_annotators(public: PublicRows, *, scales_only: bool) -> None:
    """Check that enough people annotated public rows.

    Args:
        public: The rows.
        scales_only: Whether only scales are chosen.

    Raises:
        DataError: The people or their rows are too few, or the rows have labels that no prior is
            for.
    """
    names = public.rows.user_names
    if not scales_only:
        check_enough(names)
        if public.link.kind == "tags" or len(public.labels) > 2:
            raise DataError(
                "a population prior is for heads of two labels, and of ratings (--scales-only, or "
                "scales_only = true in a recipe, chooses scales for any)"
            )
    elif (
        sum(name is not None and count >= LEAST_ROWS for name, count in Counter(names).items())
        < LEAST_ANNOTATORS
    ):
        raise DataError(
            f"scales need {LEAST_ANNOTATORS} public annotators of {LEAST_ROWS} rows or more, "
            "without the rows that the backbone was trained on. A release without scales is "
            "valid: devices then take the SDK's"
        )


def write_prior(
    release: Path,
    public: PublicRows,
    out: Path,
    trained_on: PublicRows | None = None,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Estimate a prior, and write the release again with it and with the fit's scales for it.

    Args:
        release: Bundle with a head of two labels, or of ratings, and one weight a dimension.
        public: Public rows; those without a user are skipped.
        out: Where to write; it may be ``release``.
        trained_on: See ``unseen_rows``: rows on documents of the backbone's training are skipped.
        embedder: Embeds the texts; None keeps no embeddings.

    Returns:
        ``bundle``, ``bytes_added``, the manifest's details of the ``prior``, the ``scales`` and
        ``scales_from``: None where too few annotators have enough rows. Where no prior is better
        for annotators than none, ``prior`` has the reason under ``refused``, and the release has
        the scales for devices without a prior.

    Raises:
        BundleMismatchError: The release has no head, or not such a head for these rows.
        DataError: The rows are of too few annotators.
        ExportError: ``trained_on`` are not the rows of the release's training.
        RowError: A row has a label that is not the head's.
    """
    bundle, head, public = _open(release, public, trained_on)
    check_head(bundle, head)
    check_annotators(public, scales_only=False)  # before minutes of embedding
    rows = _annotate(bundle, head, public, embedder or Embedder())
    with processes(numbers_of(*rows.inputs.shape)) as run:
        learned = learn_prior(rows, progress, run)
    details = {**learned.details, "data": public.digest}
    before = release.stat().st_size
    write_learned(out, bundle, learned, details)
    return {
        "bundle": str(out),
        "bytes_added": out.stat().st_size - before,
        "prior": details,
        "scales": learned.scales,
        "scales_from": learned.scales_from,
    }


def write_scales(
    release: Path,
    public: PublicRows,
    out: Path,
    trained_on: PublicRows | None = None,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Write a release again with the scales that are best for public annotators.

    Its population prior stays, if it has one.

    Args:
        release: Bundle with a head.
        public: Public rows; those without a user are skipped.
        out: Where to write; it may be ``release``.
        trained_on: See ``write_prior``.
        embedder: See ``write_prior``.

    Returns:
        ``bundle``, ``bytes_added``, ``scales`` and ``scales_from``.

    Raises:
        BundleMismatchError: The release has no head, or not one for these rows.
        DataError: The rows are of too few annotators.
        ExportError: See ``write_prior``.
        RowError: A row has a label that is not the head's.
    """
    bundle, head, public = _open(release, public, trained_on)
    check_annotators(public, scales_only=True)
    rows = _annotate(bundle, head, public, embedder or Embedder())
    with processes(numbers_of(*rows.inputs.shape)) as run:
        scales, origin = learn_scales(
            rows, dict.fromkeys(rows.names, bundle.prior()), progress, run
        )
    before, notes = release.stat().st_size, {"scales": scales, "scales_from": origin}
    write_again(out, bundle, notes)
    return {"bundle": str(out), "bytes_added": out.stat().st_size - before, **notes}


@contextmanager
def processes(numbers: float = math.inf) -> Iterator[Map]:
    """Give a ``map`` in processes on all cores: small fits hold Python's lock most of the time.

    Large arrays are passed as files, once, which all processes map. Where there is little to do it
    is the built-in ``map``: other processes would take longer to start, and to be asked.

    Args:
        numbers: ``numbers_of`` the people who are fitted.
    """
    if numbers < _LITTLE:
        yield map
        return
    from joblib import Parallel, cpu_count, delayed

    with Parallel(cpu_count(), return_as="generator") as parallel:
        yield lambda function, of: parallel(delayed(function)(each) for each in of)


def numbers_of(rows: int, dimension: int) -> int:
    """Numbers of all rows: their embeddings of that length, and some n-grams each."""
    return rows * (dimension + _NGRAMS)


def _open(
    release: Path, public: PublicRows, trained_on: PublicRows | None
) -> tuple[Bundle, Head, PublicRows]:
    """A release, its head, and the public rows that its backbone was not trained on."""
    bundle = Bundle.open(release)
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: has no head, which a population prior needs; "
            "fala-export train makes a release with one"
        )
    return bundle, head, unseen_rows(bundle, public, trained_on)


def _annotate(bundle: Bundle, head: Head, public: PublicRows, embedder: Embedder) -> AnnotatedRows:
    if (public.task, type(public.link)) != (head.task, type(head.link)):
        rows_kind = f"{public.task} with {public.link.described(public.labels)}"
        raise BundleMismatchError(
            f"the rows are for {rows_kind}, the release's head is for {head.described}"
        )
    rows = annotated(bundle, head, public.rows)
    texts = rows.texts
    vectors = embedder.embed(bundle.backbone(), bundle.backbone_digest, texts, "embedding texts")
    embeddings = dict(zip(texts, vectors, strict=True))
    return annotated_rows(bundle, head, rows, embeddings, progress)
