"""Inspect a bundle: its manifest, the size of its parts, and the cost of a forward pass."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fala import Bundle
from fala.base.errors import install_hint
from fala.bundle.format import LEXICAL, ONNX, ONNX_MODEL, VECTOR_TABLES, VOCABULARY
from fala_export.bundle.adapter import config_of
from fala_export.graph.cost import LENGTHS, cost

# Details of the manifest that have their own section in the report.
_APART = ("cost", "parity", "versions")


def inspect(path: Path) -> dict[str, Any]:
    """Describe a bundle.

    Args:
        path: The bundle's file.

    Returns:
        The manifest's fields; ``n_grams`` and ``bytes`` of a ``lexical`` view, or None; the base's
        digest, sites, size, parameters and configuration of an ``adapter``, or None; ``digests``;
        ``bytes`` in all, and of each of the ``parts``; ``parity``, ``versions`` and other
        ``details`` as stored at export; ``cost`` (parameters, and FLOPs of a forward pass by
        length; None, with the reason as ``cost_unknown``); and ``encoder``, the app's own encoder
        of an external release, or None.

    Raises:
        BundleError: The file is not a bundle, or is damaged.
    """
    bundle = Bundle.open(path)
    manifest = bundle.manifest
    return {
        "bundle": str(path),
        "name": manifest.name,
        "title": manifest.title,
        "kind": manifest.kind,
        "task": manifest.task,
        "labels": list(manifest.labels),
        "lexical": _lexical(bundle),
        "adapter": _adapter(bundle),
        "precision": manifest.precision,
        "dimension": manifest.dimension,
        "max_length": manifest.max_length,
        "format_version": manifest.format_version,
        "digests": {
            "backbone": bundle.backbone_digest,
            "head": None if manifest.task is None else bundle.head_digest,
        },
        "bytes": path.stat().st_size,
        "parts": _parts(path),
        "parity": manifest.details.get("parity"),
        "versions": manifest.details.get("versions"),
        "details": {key: value for key, value in manifest.details.items() if key not in _APART},
        **_cost(bundle),
        "encoder": bundle.encoder,
    }


def _adapter(bundle: Bundle) -> dict[str, Any] | None:
    """Return the facts of an adapter, or None for other bundles."""
    if bundle.base is None:
        return None
    inputs = bundle.adapter().inputs
    return {
        "base": bundle.base,
        "sites": sum(name.endswith(".up.bias") for name in inputs),
        "size": len(inputs["adapter.0.attention.down.bias"]),
        "parameters": sum(array.size for array in inputs.values()),
        "config": config_of(bundle),
    }


def _lexical(bundle: Bundle) -> dict[str, int] | None:
    """Return the number of n-grams with weights, and their bytes; None without a lexical view."""
    head = bundle.head()
    if head is None or head.lexical is None:
        return None
    files = [name for name in bundle.manifest.files if name.startswith(LEXICAL)]
    return {
        "n_grams": int(np.count_nonzero(head.lexical.weight.any(axis=0))),
        "bytes": sum(len(bundle.read(name)) for name in files),
    }


def _parts(path: Path) -> list[dict[str, Any]]:
    whole = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    return [
        {"name": name, "bytes": size, "share": round(size / whole, 4)}
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    ]


def _cost(bundle: Bundle) -> dict[str, Any]:
    """Return parameters and FLOPs, as stored at export or else counted on the backbone."""
    stored, kind = bundle.manifest.details.get("cost"), bundle.manifest.kind
    if _is_cost(stored):
        return {"cost": stored}
    if kind in VECTOR_TABLES:
        return {"cost": _cost_of_table(bundle)}
    reason = f"it cannot be counted in {kind}"
    if bundle.base is not None:
        reason = "it is the base's cost, plus two small products per sub-layer"
    elif bundle.external:
        reason = "it is the cost of the app's own encoder"
    elif kind == ONNX:
        try:
            import onnx

            return {"cost": cost(onnx.load_from_string(bundle.read(ONNX_MODEL)))}
        except ImportError as error:
            reason = f"to count it: {install_hint('export')} ({error})"
    return {"cost": None, "cost_unknown": f"not recorded at export; {reason}"}


def _is_cost(stored: object) -> bool:
    # The details come from the vendor and are not validated.
    return (
        isinstance(stored, Mapping)
        and isinstance(stored.get("parameters"), int)
        and isinstance(stored.get("flops"), Mapping)
        and all(isinstance(count, int | float) for count in stored["flops"].values())
    )


def _cost_of_table(bundle: Bundle) -> dict[str, Any]:
    """Return a table's cost: vectors are parameters, and a text sums its tokens' vectors."""
    vocabulary = bundle.read(VOCABULARY).removesuffix(b"\n").count(b"\n") + 1
    dimension = bundle.manifest.dimension
    return {
        "parameters": vocabulary * dimension,
        "flops": {str(length): length * dimension for length in LENGTHS},
    }
