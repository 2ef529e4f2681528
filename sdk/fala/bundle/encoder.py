"""A transformer from a bundle's files, looked at before it is loaded."""

from __future__ import annotations

from collections.abc import Callable

from fala.audit.model import Model, audit_model
from fala.audit.tokenizer import audit_tokenizer
from fala.backbones import OnnxEncoder
from fala.bundle import format as layout
from fala.bundle.manifest import Manifest

# What was looked at in this process, by digests: a device loads the same files again.
_KNOWN: dict[tuple[str, str, int | None, int], Model] = {}
_MOST_KNOWN = 64


def examine(manifest: Manifest, read: Callable[[str], bytes]) -> Model:
    """Look at a bundle's transformer without loading it.

    Args:
        manifest: The bundle's manifest.
        read: Gives a file's verified bytes.

    Raises:
        BundleFormatError: Its model or tokenizer is none, does not fit the other, or would cost
            more than any encoder's.
    """
    ort = manifest.kind == layout.ORT
    name = layout.ORT_MODEL if ort else layout.ONNX_MODEL
    digests = manifest.files[name], manifest.files[layout.TOKENIZER]
    key = (*digests, manifest.max_length, manifest.pad_id)
    known = _KNOWN.get(key)
    if known is None:
        known = audit_model(read(name), manifest.max_length, ort_format=ort)
        audit_tokenizer(read(layout.TOKENIZER), known.rows, manifest.pad_id)
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = known
    return known


def load_encoder(manifest: Manifest, read: Callable[[str], bytes]) -> OnnxEncoder:
    """Load a bundle's transformer, having looked at it.

    Args:
        manifest: The bundle's manifest.
        read: Gives a file's verified bytes.

    Raises:
        BundleFormatError: See ``examine``; or it cannot be loaded.
        DimensionError: The output's dimension is not fixed in the graph.
    """
    ort = manifest.kind == layout.ORT
    return OnnxEncoder(
        read(layout.ORT_MODEL if ort else layout.ONNX_MODEL),
        read(layout.TOKENIZER),
        ort_format=ort,
        max_length=examine(manifest, read).tokens,
        pad_id=manifest.pad_id,
    )
