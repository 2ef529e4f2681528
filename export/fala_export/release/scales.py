"""Learn a release's scales (prior variances) from public annotators' rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fala import Bundle, BundleMismatchError, DataError
from fala.model.heads import Vectors
from fala_export.bundle.writing import write_again
from fala_export.embedding import Embedder
from fala_export.fit.annotators import learn_scales
from fala_export.people.draw import few_annotators
from fala_export.rows.table import Rows
from fala_export.training.unseen import unseen_rows


def check_annotators(public: Rows) -> None:
    """Check that enough people annotated public rows.

    Raises:
        DataError: There are too few people, or they have too few rows.
    """
    if reason := few_annotators(public):
        raise DataError(
            f"{reason}; rows that the backbone was trained on do not count. Leave the scales "
            "out, and devices use the SDK's"
        )


def write_scales(
    release: Path,
    public: Rows,
    out: Path,
    trained_on: Rows | None = None,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Write a release again with the scales that are best for public annotators.

    Args:
        release: Bundle with a head.
        public: Public rows; those without a user are skipped.
        out: Where to write; it may be ``release``.
        trained_on: The rows of the backbone's training, whose documents are skipped; see
            ``unseen_rows``.
        embedder: The embedder of the texts; None does not keep embeddings.

    Returns:
        A summary with ``bundle``, ``bytes_added``, ``scales`` and ``scales_from``.

    Raises:
        BundleMismatchError: The release has no head, or its head is for other rows.
        DataError: Too few annotators have rows.
        ExportError: ``trained_on`` are not the rows of the release's training.
        RowError: A row has a label that the head does not have.
    """
    bundle = Bundle.open(release)
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(
            f"{bundle.path}: has no head, but scales belong to a head; fala-export train makes a "
            "release with a head"
        )
    public = unseen_rows(bundle, public, trained_on)
    check_annotators(public)  # This is checked before minutes of embedding.
    if (public.task, type(public.link)) != (head.task, type(head.link)):
        rows_kind = f"{public.task} with {public.link.described(public.labels)}"
        raise BundleMismatchError(
            f"the rows are for {rows_kind}, but the release's head is for {head.described}"
        )
    embed = partial((embedder or Embedder()).embed, bundle.backbone(), bundle.backbone_digest)

    def embeddings_of(texts: list[str]) -> Mapping[str, Vectors]:
        return dict(zip(texts, embed(texts, "embedding texts"), strict=True))

    scales, origin = learn_scales(bundle, head, public, embeddings_of)
    before, notes = release.stat().st_size, {"scales": scales, "scales_from": origin}
    write_again(out, bundle, notes)
    return {"bundle": str(out), "bytes_added": out.stat().st_size - before, **notes}
