"""Export a transformer encoder as a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fala.backbones import OnnxEncoder
from fala.bundle import Manifest, write_bundle
from fala.bundle_format import ONNX, ONNX_MODEL, TOKENIZER
from fala.errors import ExportError
from fala_export.parity import compare, parity_texts

if TYPE_CHECKING:
    from fala_export.encoder import Encoder

_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class ExportOptions:
    """How to turn an encoder into a bundle.

    Attributes:
        name: In the manifest.
        precision: One of ``PRECISIONS``.
        max_length: Tokens of a text that are read.
        parity_text: File with a text a line to measure parity on; None for built-in texts.
        details: More to note in the manifest.
    """

    name: str
    precision: str = "int8"
    max_length: int = 128
    parity_text: Path | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def load(source: str, pooling: str | None = None, revision: str | None = None) -> Encoder:
    """Load an encoder as ``fala_export.encoder.load_encoder`` does, where torch is installed.

    Raises:
        ExportError: As there, or the extra is missing.
    """
    try:
        from fala_export.encoder import load_encoder

        return load_encoder(source, pooling, revision)
    except ImportError as error:
        raise ExportError(f"install fala[export] to load a transformer ({error})") from error


def export_encoder(encoder: Encoder, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Export an encoder as a bundle, with pooling inside the graph.

    Args:
        encoder: A loaded or trained encoder.
        out: The bundle to write; left alone when anything fails.
        options: How.

    Returns:
        What was written: name, dimension, precision, size in megabytes and parity with the
        model in float32.

    Raises:
        ExportError: The model cannot be exported so, or the output cannot be written.
    """
    from fala_export.onnx_graph import OPSET, encoder_graph, quantize

    texts = parity_texts(options.parity_text)
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    if not 0 < options.max_length <= encoder.longest:
        raise ExportError(
            f"{options.name}: reads up to {encoder.longest} tokens; "
            f"--max-length is {options.max_length}"
        )
    graph = encoder_graph(encoder.module)
    model = quantize(graph) if options.precision == "int8" else graph
    exported = OnnxEncoder(
        model, encoder.tokenizer, max_length=options.max_length, pad_id=encoder.pad_id
    )
    parity = compare(exported.encode(texts), encoder.encode(texts, options.max_length))
    manifest = Manifest(
        name=options.name,
        kind=ONNX,
        dimension=exported.dimension,
        precision="int8" if options.precision == "int8" else "fp32",
        max_length=options.max_length,
        details={
            "pad_id": encoder.pad_id,
            "pooling": encoder.module.pooling,
            "normalized": encoder.module.normalize,
            "revision": encoder.revision,
            "opset": OPSET,
            "parity": parity,
            "versions": versions("torch", "transformers", "optimum-onnx", "onnx", "onnxruntime"),
            **options.details,
        },
    )
    try:
        write_bundle(out, manifest, {ONNX_MODEL: model, TOKENIZER: encoder.tokenizer})
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return {
        "bundle": str(out),
        "name": options.name,
        "dimension": exported.dimension,
        "precision": manifest.precision,
        "pooling": encoder.module.pooling,
        "normalized": encoder.module.normalize,
        "megabytes": round(out.stat().st_size / _MEGABYTE, 2),
        "parity": parity,
    }


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, for the manifest."""
    return {package: metadata.version(package) for package in packages}
