"""Export an encoder as a bundle: a transformer's graph, or a table of static embeddings."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from fala.backbones import OnnxEncoder, StaticEmbeddings
from fala.base.examples import Example, unique_texts
from fala.bundle.format import MAX_TOKENS, ONNX, ONNX_MODEL, STATIC, TOKENIZER, VECTORS
from fala.bundle.manifest import Manifest
from fala.bundle.writing import write_bundle
from fala.cli import progress
from fala.model.heads import Vectors
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


@dataclass(frozen=True)
class Export:
    """An encoder as a device will run it, not yet packed.

    Attributes:
        encoder: The exported encoder.
        options: The export options.
        max_length: Number of tokens of a text that are read.
        precision: One of ``PRECISIONS``.
        float_model: The ONNX graph in float32, or as the given file stores it.
        files: The bundle's files of the backbone, by name.
        backbone: The backbone that runs the files.
        exported: Embeddings of the compared texts by the backbone, by text.
        reference: Embeddings of the same texts by the encoder in float32, by text.
    """

    encoder: Encoder
    options: ExportOptions
    max_length: int | None
    precision: str
    float_model: ModelProto
    files: Mapping[str, bytes]
    backbone: OnnxEncoder | StaticEmbeddings
    exported: Mapping[str, Vectors]
    reference: Mapping[str, Vectors]


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


def convert(
    encoder: Encoder,
    options: ExportOptions,
    examples: Sequence[Example],
    whole: Encoder | None = None,
) -> Export:
    """Convert an encoder to the model that a device runs, and compare both.

    Args:
        encoder: A loaded or trained encoder, or an encoder's ONNX file.
        options: The export options.
        examples: Examples on which parity is measured.
        whole: The model before its vocabulary was trimmed, to compare with; None compares with the
            encoder itself.

    Raises:
        ExportError: The model cannot be exported with these options, or its mean cosine is too low.
    """
    if encoder.pooling == LAYERS and options.adapters:
        raise ExportError(
            f"adapters do not support the pooling {encoder.pooling}; choose another with --pooling"
        )
    table = encoder.table
    if table is not None and options.adapters:
        raise ExportError(f"{options.name}: adapters need a transformer, not a table of vectors")
    max_length = encoder.length(options.max_length)
    texts = unique_texts(examples)
    with progress("tracing the graph"):
        float_model = encoder.graph()
    stored = stored_precision(float_model)
    precisions = [
        precision for precision in reversed(PRECISIONS if table is None else TABLE_PRECISIONS)
        if options.precision in (precision, "auto") and encoder.size * SHARES[precision] < LARGEST
    ]  # fmt: skip
    if stored != "none":
        if options.precision not in ("auto", "none", ExportOptions.precision, stored):
            raise ExportError(
                f"{options.name}: its weights are already in {stored}, not in float32; export "
                "them unchanged with --quantize none, or use the model in float32"
            )
        precisions = ["none"]
    if not precisions:
        raise ExportError(
            f"{options.name}: static embeddings do not support {options.precision}; choose one "
            f"of {', '.join(TABLE_PRECISIONS)} with --quantize"
        )
    with progress("embedding texts with the model", len(texts)) as bar:
        reference = (whole or encoder).encode(texts, max_length, step=bar.update)
    stored_in = partial(_stored_graph, encoder, options, float_model, max_length)
    cosines = {}
    for precision in precisions:
        files, backbone = (stored_in if table is None else table.stored)(precision)
        exported = embed(backbone, texts, f"embedding texts in {precision}")
        cosines[precision] = compare_embeddings(exported, reference)["mean_cosine"]
        if cosines[precision] >= options.min_cosine:
            return Export(
                encoder,
                options,
                max_length if table is None else table.max_length,
                precision if stored == "none" else stored,
                float_model,
                files,
                backbone,
                dict(zip(texts, exported, strict=True)),
                dict(zip(texts, reference, strict=True)),
            )
    measured = ", ".join(f"{cosine:.4f} in {precision}" for precision, cosine in cosines.items())
    raise ExportError(
        f"{options.name}: the mean cosine to the model in float32 is {measured}, but must be at "
        f"least {options.min_cosine}; choose a finer precision, or a lower --min-cosine"
    )


def _stored_graph(
    encoder: Encoder,
    options: ExportOptions,
    float_model: ModelProto,
    max_length: int,
    precision: str,
) -> tuple[dict[str, bytes], OnnxEncoder]:
    """Return the files of a graph's bundle by name, and the backbone that they define."""
    tokenizer = encoder.tokenizer
    graph = quantize(float_model, precision, token_sequences(tokenizer, max_length))
    if options.adapters:
        graph = add_adapter_inputs(graph)
    model = graph.SerializeToString(deterministic=True)
    backbone = OnnxEncoder(model, tokenizer, max_length=max_length, pad_id=encoder.pad_id)
    return {ONNX_MODEL: model, TOKENIZER: tokenizer}, backbone


def pack(export: Export, out: Path) -> dict[str, Any]:
    """Write an export as a bundle without a head.

    Args:
        export: An export from ``convert``.
        out: The bundle to write; not changed if anything fails.

    Returns:
        A summary of what was written: name, kind, dimension, precision, size in megabytes, parity
        with the model in float32, and a graph's cost; ``not_kept``, the settings of the model's
        files that the bundle does not store; and ``not_static``, why static embeddings are stored
        as a graph.

    Raises:
        ExportError: The output cannot be written.
    """
    encoder, options = export.encoder, export.options
    not_kept = {"not_kept": dict(encoder.not_kept)} if encoder.not_kept else {}
    texts = list(export.exported)
    is_graph = ONNX_MODEL in export.files
    parity = {
        **compare_embeddings(
            np.stack([export.exported[text] for text in texts]),
            np.stack([export.reference[text] for text in texts]),
        ),
        "megabytes": round(len(export.files[ONNX_MODEL if is_graph else VECTORS]) / MEGABYTE, 2),
        "fp32_megabytes": round(model_bytes(export.float_model) / MEGABYTE, 2),
    }
    if (stored := stored_precision(export.float_model)) != "none":
        parity["reference"] = stored
    timing = {"speed": _speed(export, texts)} if is_graph else {}
    not_static = encoder.not_static
    manifest = Manifest(
        name=options.name,
        kind=ONNX if is_graph else STATIC,
        dimension=export.backbone.dimension,
        precision=_NAMES.get(export.precision, export.precision),
        max_length=export.max_length,
        details={
            "pooling": encoder.pooling,
            "normalized": encoder.normalized,
            "revision": encoder.revision,
            **encoder.changed,
            **not_kept,
            "parity": {**parity, **timing} if options.keep_speed else parity,
            "versions": versions("torch", "transformers", "onnx", "onnxruntime"),
            **(_graph_details(export) if is_graph else {}),
            **options.details,
        },
    )
    with writing(out):
        write_bundle(out, manifest, export.files)
    return {
        "bundle": str(out),
        "name": options.name,
        "kind": manifest.kind,
        "dimension": manifest.dimension,
        "precision": manifest.precision,
        "pooling": encoder.pooling,
        **({"not_layers": encoder.not_layers} if encoder.not_layers else {}),
        **({"not_static": not_static} if not_static else {}),
        "normalized": encoder.normalized,
        **encoder.changed,
        "megabytes": megabytes(out),
        **({"weights": f"in {stored} already, kept as they are"} if stored != "none" else {}),
        "parity": {**parity, **timing},
        **({"cost": manifest.details["cost"]} if is_graph else {}),
        **not_kept,
    }


def _speed(export: Export, texts: Sequence[str]) -> dict[str, float]:
    """Time a graph with one text per pass, as an app encodes texts.

    A batch of texts with different lengths would measure its padding.
    """
    some = texts[:: -(-len(texts) // _TIMED_TEXTS)]
    passes = [
        {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        for ids in export.encoder.token_ids(some, export.max_length or MAX_TOKENS)
    ]
    with progress("measuring speed"):
        return speed(export.float_model, export.files[ONNX_MODEL], passes)


def _graph_details(export: Export) -> dict[str, Any]:
    """Return the manifest's details that only a graph has."""
    operators = export.float_model.opset_import
    return {
        "pad_id": export.encoder.pad_id,
        "opset": next(entry.version for entry in operators if not entry.domain),
        "cost": cost(export.float_model, export.encoder.longest),
        **({"optional_inputs": ["adapters"]} if export.options.adapters else {}),
    }


def export_encoder(
    encoder: Encoder, out: Path, options: ExportOptions, parity_text: Path | None = None
) -> dict[str, Any]:
    """Export an encoder as a bundle without a head: ``convert`` and ``pack``.

    Args:
        encoder: A loaded or trained encoder, or an encoder's ONNX file.
        out: The bundle to write; not changed if anything fails.
        options: The export options.
        parity_text: File with one text on each line for measuring parity; None uses built-in texts.

    Raises:
        ExportError: The encoder cannot be exported or written; see ``convert`` and ``pack``.
    """
    return pack(convert(encoder, options, parity_texts(parity_text)), out)
