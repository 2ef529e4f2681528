"""Export an encoder as a bundle: a transformer's graph, or a table of static embeddings."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from fala.backbones import OnnxEncoder, StaticEmbeddings
from fala.base.examples import Example, unique_texts
from fala.bundle.format import ONNX, ONNX_MODEL, STATIC, TOKENIZER, VECTORS
from fala.bundle.manifest import Manifest
from fala.bundle.writing import write_bundle
from fala.cli import progress
from fala_export.base.checks import check_room
from fala_export.base.errors import ExportError
from fala_export.base.files import MEGABYTE, megabytes, writing
from fala_export.bundle.writing import versions
from fala_export.embedding import embed
from fala_export.graph.adapter_inputs import add_adapter_inputs
from fala_export.graph.cost import cost
from fala_export.graph.parity import compare_embeddings, speed
from fala_export.graph.quantization.calibration import token_sequences
from fala_export.graph.quantization.weights import PRECISIONS, SHARES, quantize, stored_precision
from fala_export.graph.runtime import LARGEST, model_bytes
from fala_export.graph.sentences import parity_texts
from fala_export.models.encoder import Encoder
from fala_export.models.sentence_encoder import LAYERS
from fala_export.models.static_table import PRECISIONS as TABLE_PRECISIONS
from fala_export.recipe.settings import ExportOptions

_NAMES = {"none": "fp32"}  # The precision's name in the manifest.
_TIMED_TEXTS = 32


def check_disk(encoder: Encoder, options: ExportOptions, *folders: Path) -> None:
    """Check that an encoder's bundle fits its format and the disks that it is written to.

    Args:
        encoder: A loaded encoder, or an encoder's ONNX file.
        options: The export options.
        folders: Folders to write to; they, or folders above them, exist. The temporary folder is
            also checked.

    Raises:
        ExportError: The bundle does not fit.
    """
    if encoder.size * SHARES.get(options.precision, 0) >= LARGEST:
        raise ExportError(
            f"{options.name}: {encoder.size / 1e9:.1f} GB of weights are too large for "
            f"--quantize {options.precision}, because a file in a bundle can have at most 2 GB; "
            "int8 takes a quarter of the size"
        )
    needed = encoder.size * SHARES.get(options.precision, min(SHARES.values()))
    # The bundle is tried out there as on a device.
    check_room(needed, Path(tempfile.gettempdir()), *folders)


def write_backbone(
    encoder: Encoder,
    out: Path,
    options: ExportOptions,
    examples: Sequence[Example],
    whole: Encoder | None = None,
) -> dict[str, Any]:
    """Write the model that a device runs as a bundle without a head, and compare both models.

    Args:
        encoder: A loaded or trained encoder, or an encoder's ONNX file.
        out: The bundle to write; not changed if anything fails.
        options: The export options.
        examples: Examples on which parity is measured.
        whole: The model before its vocabulary was trimmed, to compare with; None compares with the
            encoder itself.

    Returns:
        A summary of what was written: name, kind, dimension, precision, size in megabytes, parity
        with the model in float32, and a graph's cost; ``not_kept``, the settings of the model's
        files that the bundle does not store; and ``not_static``, why static embeddings are stored
        as a graph.

    Raises:
        ExportError: The model cannot be exported with these options, its mean cosine is too low, or
            the output cannot be written.
    """
    table, texts = encoder.table, unique_texts(examples)
    if encoder.pooling == LAYERS and options.adapters:
        raise ExportError(
            f"adapters do not support the pooling {encoder.pooling}; choose another with --pooling"
        )
    if table is not None and options.adapters:
        raise ExportError(f"{options.name}: adapters need a transformer, not a table of vectors")
    max_length = encoder.length(options.max_length)
    with progress("tracing the graph"):
        graph = encoder.graph()
    stored = stored_precision(graph)
    precisions = _precisions(encoder, options, stored)
    with progress("embedding texts with the model", len(texts)) as bar:
        reference = (whole or encoder).encode(texts, max_length, step=bar.update)
    backbone: OnnxEncoder | StaticEmbeddings
    cosines = {}
    for precision in precisions:
        if table is None:
            files, backbone = _stored_graph(encoder, options, graph, max_length, precision)
        else:
            files, backbone = table.stored(precision)
        exported = embed(backbone, texts, f"embedding texts in {precision}")
        parity = compare_embeddings(exported, reference)
        cosines[precision] = parity["mean_cosine"]
        if cosines[precision] >= options.min_cosine:
            break
    else:
        measured = ", ".join(f"{cosine:.4f} in {name}" for name, cosine in cosines.items())
        raise ExportError(
            f"{options.name}: the mean cosine to the model in float32 is {measured}, but must be "
            f"at least {options.min_cosine}; choose a finer precision, or a lower --min-cosine"
        )
    parity |= {
        "megabytes": round(len(files[ONNX_MODEL if table is None else VECTORS]) / MEGABYTE, 2),
        "fp32_megabytes": round(model_bytes(graph) / MEGABYTE, 2),
        **({} if stored == "none" else {"reference": stored}),
    }
    timing, of_graph = {}, {}
    if table is None:
        timing = {"speed": _speed(encoder, max_length, graph, files[ONNX_MODEL], texts)}
        of_graph = {
            "pad_id": encoder.pad_id,
            "opset": next(entry.version for entry in graph.opset_import if not entry.domain),
            "cost": cost(graph, encoder.longest),
            **({"optional_inputs": ["adapters"]} if options.adapters else {}),
        }
    not_kept = {"not_kept": dict(encoder.not_kept)} if encoder.not_kept else {}
    used = precision if stored == "none" else stored
    manifest = Manifest(
        name=options.name,
        kind=ONNX if table is None else STATIC,
        dimension=backbone.dimension,
        precision=_NAMES.get(used, used),
        max_length=max_length if table is None else table.max_length,
        details={
            "pooling": encoder.pooling,
            "normalized": encoder.normalized,
            "revision": encoder.revision,
            **encoder.changed,
            **not_kept,
            "parity": {**parity, **timing} if options.keep_speed else parity,
            "versions": versions("torch", "transformers", "onnx", "onnxruntime"),
            **of_graph,
            **options.details,
        },
    )
    with writing(out):
        write_bundle(out, manifest, files)
    reasons = {"not_layers": encoder.not_layers, "not_static": encoder.not_static}
    return {
        "bundle": str(out),
        "name": options.name,
        "kind": manifest.kind,
        "dimension": manifest.dimension,
        "precision": manifest.precision,
        "pooling": encoder.pooling,
        **{name: reason for name, reason in reasons.items() if reason},
        "normalized": encoder.normalized,
        **encoder.changed,
        "megabytes": megabytes(out),
        **({} if stored == "none" else {"weights": f"in {stored} already, kept as they are"}),
        "parity": {**parity, **timing},
        **({"cost": manifest.details["cost"]} if table is None else {}),
        **not_kept,
    }


def _precisions(encoder: Encoder, options: ExportOptions, stored: str) -> Sequence[str]:
    """Return the precisions to try, from the smallest file to the largest.

    Args:
        encoder: The encoder.
        options: The export options.
        stored: The precision in which the weights already are; "none" for float32.

    Raises:
        ExportError: The encoder cannot be stored in the precision of the options.
    """
    if stored != "none":
        if options.precision not in ("auto", "none", ExportOptions.precision, stored):
            raise ExportError(
                f"{options.name}: its weights are already in {stored}, not in float32; export "
                "them unchanged with --quantize none, or use the model in float32"
            )
        return ["none"]
    precisions = [
        precision
        for precision in reversed(PRECISIONS if encoder.table is None else TABLE_PRECISIONS)
        if options.precision in (precision, "auto") and encoder.size * SHARES[precision] < LARGEST
    ]
    if not precisions:
        raise ExportError(
            f"{options.name}: static embeddings do not support {options.precision}; choose one "
            f"of {', '.join(TABLE_PRECISIONS)} with --quantize"
        )
    return precisions


def _stored_graph(
    encoder: Encoder, options: ExportOptions, graph: ModelProto, max_length: int, precision: str
) -> tuple[dict[str, bytes], OnnxEncoder]:
    """Return the files of a graph's bundle by name, and the backbone that they define."""
    tokenizer = encoder.tokenizer
    graph = quantize(graph, precision, token_sequences(tokenizer, max_length))
    if options.adapters:
        graph = add_adapter_inputs(graph)
    model = graph.SerializeToString(deterministic=True)
    backbone = OnnxEncoder(model, tokenizer, max_length=max_length, pad_id=encoder.pad_id)
    return {ONNX_MODEL: model, TOKENIZER: tokenizer}, backbone


def _speed(
    encoder: Encoder, max_length: int, graph: ModelProto, model: bytes, texts: Sequence[str]
) -> dict[str, float]:
    """Time a graph with one text per pass, as an app encodes texts.

    A batch of texts with different lengths would measure its padding.
    """
    some = texts[:: -(-len(texts) // _TIMED_TEXTS)]
    passes = [
        {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        for ids in encoder.token_ids(some, max_length)
    ]
    with progress("measuring speed"):
        return speed(graph, model, passes)


def export_encoder(
    encoder: Encoder, out: Path, options: ExportOptions, parity_text: Path | None = None
) -> dict[str, Any]:
    """Export an encoder as a bundle without a head.

    Args:
        encoder: A loaded or trained encoder, or an encoder's ONNX file.
        out: The bundle to write; not changed if anything fails.
        options: The export options.
        parity_text: File with one text on each line for measuring parity; None uses built-in texts.

    Raises:
        ExportError: The encoder cannot be exported or written; see ``write_backbone``.
    """
    return write_backbone(encoder, out, options, parity_texts(parity_text))
