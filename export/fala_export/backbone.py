"""Export a transformer encoder as a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from fala.backbones import OnnxEncoder
from fala.bundle import Manifest, write_bundle
from fala.bundle_format import ONNX, ONNX_MODEL, TOKENIZER
from fala.errors import ExportError
from fala_export.parity import compare, parity_texts

_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class BackboneOptions:
    """How to export an encoder.

    Attributes:
        quantize: ``"int8"`` or ``"none"``.
        name: In the manifest; None takes the source's last part.
        max_length: Tokens of a text that are read.
        pooling: ``"mean"``, ``"cls"``, or None for the model's own.
        parity_text: File with a text a line to measure parity on; None for built-in texts.
        details: More to note in the manifest.
    """

    quantize: str = "int8"
    name: str | None = None
    max_length: int = 128
    pooling: str | None = None
    parity_text: Path | None = None
    details: Mapping[str, Any] | None = None


def export_backbone(source: str, out: Path, options: BackboneOptions) -> dict[str, Any]:
    """Export an encoder of the BERT family, with pooling inside the graph.

    Args:
        source: A Hugging Face model folder, or a name on the hub.
        out: The bundle to write; left alone when anything fails.
        options: How.

    Returns:
        What was written: name, dimension, precision, size in megabytes and parity with the
        model in float32.

    Raises:
        ExportError: Anything about the source, the extra or the output that does not work.
    """
    texts = parity_texts(options.parity_text)
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    try:
        from fala_export.encoder import load_encoder
        from fala_export.onnx_graph import OPSET, encoder_graph, quantize

        encoder = load_encoder(source, options.pooling)
        _check_length(source, options.max_length, encoder.longest)
        graph = encoder_graph(encoder.model, pooling=encoder.pooling, normalize=encoder.normalize)
        model = quantize(graph) if options.quantize == "int8" else graph
    except ImportError as error:
        raise ExportError(f"install fala[export] to export a transformer ({error})") from error
    exported = OnnxEncoder(
        model, encoder.tokenizer, max_length=options.max_length, pad_id=encoder.pad_id
    )
    parity = compare(exported.encode(texts), encoder.encode(texts, options.max_length))
    name = options.name or Path(source).name
    manifest = Manifest(
        name=name,
        kind=ONNX,
        dimension=exported.dimension,
        precision="int8" if options.quantize == "int8" else "fp32",
        max_length=options.max_length,
        details={
            "pad_id": encoder.pad_id,
            "pooling": encoder.pooling,
            "normalized": encoder.normalize,
            "opset": OPSET,
            "parity": parity,
            "versions": versions("torch", "transformers", "optimum-onnx", "onnx", "onnxruntime"),
            **(options.details or {}),
        },
    )
    try:
        write_bundle(out, manifest, {ONNX_MODEL: model, TOKENIZER: encoder.tokenizer})
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return {
        "bundle": str(out),
        "name": name,
        "dimension": exported.dimension,
        "precision": manifest.precision,
        "pooling": encoder.pooling,
        "normalized": encoder.normalize,
        "megabytes": round(out.stat().st_size / _MEGABYTE, 2),
        "parity": parity,
    }


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, for the manifest."""
    return {package: metadata.version(package) for package in packages}


def _check_length(source: str, wanted: int, longest: int) -> None:
    if not 0 < wanted <= longest:
        raise ExportError(f"{source}: reads up to {longest} tokens; --max-length is {wanted}")
