"""Make a release with a bridge from an earlier backbone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fala import Bundle
from fala.cli import progress
from fala_export.base.errors import ExportError
from fala_export.base.files import MEGABYTE, megabytes, writing
from fala_export.bundle.writing import add_bridge
from fala_export.embedding import Embedder
from fala_export.fit.bridge import check_enough, learn_bridge, most_documents
from fala_export.people.draw import drawn


def build_bridge(
    earlier: Path,
    later: Path,
    texts: Sequence[str],
    out: Path,
    seed: int = 0,
    embedder: Embedder | None = None,
) -> dict[str, Any]:
    """Learn the bridge between two backbones on public text, and write it into the later bundle.

    If there are more than ``most_documents`` texts, some are drawn, and only these are embedded.
    The draw is the same for all earlier releases.

    Args:
        earlier: Bundle of the backbone that devices have.
        later: Bundle of the backbone that is to replace it.
        texts: Distinct public documents.
        out: The bundle to write, which may be ``later``; not changed if anything fails.
        seed: Seed with which the documents and the held-out documents are drawn.
        embedder: The embedder of the documents; None does not keep embeddings.

    Returns:
        The manifest's details of the bridge, and the bundle's number of ``bridges`` and its size.

    Raises:
        BundleError: A file is not a bundle.
        DataError: There are too few texts.
        ExportError: The bundles have the same backbone, or the bundle cannot be written.
    """
    old, new = Bundle.open(earlier), Bundle.open(later)
    if old.backbone_digest == new.backbone_digest:
        raise ExportError(
            f"{earlier} and {later} have the same backbone, so its embeddings need no bridge"
        )
    # Learning checks this again, but embedding takes minutes, so it is checked here first.
    check_enough(len(texts), old.manifest.dimension)
    available = len(texts)
    texts = drawn(texts, most_documents(old.manifest.dimension), seed)
    embedder = embedder or Embedder()
    vectors, targets = (
        embedder.embed(
            bundle.backbone(), bundle.backbone_digest, texts, f"embedding with the {age} backbone"
        )
        for age, bundle in (("old", old), ("new", new))
    )
    with progress("learning"):
        bridge, fitted = learn_bridge(old.backbone_digest, vectors, targets, seed)
    details = {"from": old.manifest.title, **fitted, "of": available}
    before = later.stat().st_size
    with writing(out):
        manifest = add_bridge(out, new, bridge, details)
    return {
        "bundle": str(out),
        "name": manifest.title,
        **details,
        "bridges": len(Bundle.open(out).bridges()),
        "megabytes": megabytes(out),
        "added_megabytes": round((out.stat().st_size - before) / MEGABYTE, 3),
    }
