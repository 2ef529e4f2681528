"""Export a transformer encoder as a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from fala.backbones import OnnxEncoder
from fala.bundle.format import ONNX, ONNX_MODEL, TOKENIZER
from fala.bundle.manifest import Manifest
from fala.cli import progress
from fala.examples import Example, unique_texts
from fala.model.heads import Vectors
from fala_export.bundles import versions, write_bundle
from fala_export.checks import check_room
from fala_export.embedding import embed
from fala_export.errors import ExportError
from fala_export.graph.adapter_inputs import add_adapter_inputs
from fala_export.graph.cost import cost
from fala_export.graph.parity import compare, speed
from fala_export.graph.quantization.calibration import token_sequences
from fala_export.graph.quantization.weights import PRECISIONS, SHARES, quantize, stored_precision
from fala_export.graph.runtime import LARGEST, model_bytes
from fala_export.graph.sentences import parity_texts
from fala_export.models.sentence_encoder import LAYER_POOLINGS
from fala_export.models.source import Source
from fala_export.settings import ExportOptions
from fala_export.writing import MEGABYTE, megabytes, writing

_NAMES = {"none": "fp32"}  # a precision in the manifest
_TIMED_TEXTS = 32


@dataclass(frozen=True)
class Export:
    """An encoder as a device will run it, not yet packed.

    Attributes:
        encoder: The exported encoder.
        options: The export options.
        max_length: Tokens of a text that are read.
        precision: One of ``PRECISIONS``.
        float_model: The ONNX graph in float32, or as the given file stores it.
        model: The graph in ``precision``, serialized.
        backbone: Runs ``model``.
        exported: Embeddings of the compared texts by the backbone, by text.
        reference: Embeddings of the same texts by the encoder in float32.
    """

    encoder: Source
    options: ExportOptions
    max_length: int
    precision: str
    float_model: ModelProto
    model: bytes
    backbone: OnnxEncoder
    exported: Mapping[str, Vectors]
    reference: Mapping[str, Vectors]

    @property
    def megabytes(self) -> float:
        """Size of the files that a device needs."""
        return round((len(self.model) + len(self.encoder.tokenizer)) / MEGABYTE, 2)


def check_disk(encoder: Source, options: ExportOptions, *folders: Path) -> None:
    """Check that the bundle of an encoder fits its format, and the disks that it is written to.

    Args:
        encoder: A loaded encoder, or the ONNX file of one.
        options: The export options.
        folders: They, or folders above them, exist; the temporary folder is checked, too.

    Raises:
        ExportError: It does not.
    """
    if encoder.size * SHARES.get(options.precision, 0) >= LARGEST:
        raise ExportError(
            f"{options.name}: {encoder.size / 1e9:.1f} GB of weights are too large for --quantize "
            f"{options.precision}: the file in a bundle ends at 2 GB; int8 takes a quarter"
        )
    needed = encoder.size * SHARES.get(options.precision, min(SHARES.values()))
    check_room(needed, Path(tempfile.gettempdir()), *folders)  # it is tried out as on a device


def convert(encoder: Source, options: ExportOptions, examples: Sequence[Example]) -> Export:
    """Convert an encoder to the model that a device runs, and compare both.

    Args:
        encoder: A loaded or trained encoder, or the ONNX file of one.
        options: The export options.
        examples: Examples to measure parity on.

    Raises:
        ExportError: The model cannot be exported so, or its mean cosine is below the floor.
    """
    if encoder.pooling in LAYER_POOLINGS and options.adapters:
        raise ExportError(f"adapters need another pooling than {encoder.pooling}")
    max_length = encoder.length(options.max_length)
    texts = unique_texts(examples)
    with progress("tracing the graph"):
        float_model = encoder.graph()
    stored = stored_precision(float_model)
    precisions = [
        precision for precision in reversed(PRECISIONS)
        if options.precision in (precision, "auto") and encoder.size * SHARES[precision] < LARGEST
    ]  # fmt: skip
    if stored != "none":
        if options.precision not in ("auto", "none", ExportOptions.precision, stored):
            raise ExportError(
                f"{options.name}: its weights are in {stored} already, not in float32: export them "
                "as they are with --quantize none, or give the model in float32"
            )
        precisions = ["none"]
    with progress("embedding texts with the model", len(texts)) as bar:
        reference = encoder.encode(texts, max_length, step=bar.update)
    sequences = token_sequences(encoder.tokenizer, max_length)
    cosines = {}
    for precision in precisions:
        graph = quantize(float_model, precision, sequences)
        if options.adapters:
            graph = add_adapter_inputs(graph)
        model = graph.SerializeToString(deterministic=True)
        backbone = OnnxEncoder(
            model, encoder.tokenizer, max_length=max_length, pad_id=encoder.pad_id
        )
        exported = embed(backbone, texts, f"embedding texts in {precision}")
        cosines[precision] = compare(exported, reference)["mean_cosine"]
        if cosines[precision] >= options.min_cosine:
            return Export(
                encoder,
                options,
                max_length,
                precision if stored == "none" else stored,
                float_model,
                model,
                backbone,
                dict(zip(texts, exported, strict=True)),
                dict(zip(texts, reference, strict=True)),
            )
    measured = ", ".join(f"{cosine:.4f} in {precision}" for precision, cosine in cosines.items())
    raise ExportError(
        f"{options.name}: the mean cosine to the model in float32 is {measured}, and should be at "
        f"least {options.min_cosine}; choose a finer precision, or a lower floor"
    )


def pack(export: Export, out: Path, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write an export as a bundle without a head.

    Args:
        export: From ``convert``.
        out: The bundle to write; left alone when anything fails.
        details: More to note in the manifest.

    Returns:
        What was written: name, dimension, precision, size in megabytes, parity with the model in
        float32, and cost; ``not_kept``, the settings of the model's files that the bundle does not
        have.

    Raises:
        ExportError: The output cannot be written.
    """
    encoder, options = export.encoder, export.options
    not_kept = {"not_kept": dict(encoder.not_kept)} if encoder.not_kept else {}
    files = {ONNX_MODEL: export.model, TOKENIZER: encoder.tokenizer}
    texts = list(export.exported)
    parity = {
        **compare(
            np.stack([export.exported[text] for text in texts]),
            np.stack([export.reference[text] for text in texts]),
        ),
        "megabytes": round(len(export.model) / MEGABYTE, 2),
        "fp32_megabytes": round(model_bytes(export.float_model) / MEGABYTE, 2),
    }
    if (stored := stored_precision(export.float_model)) != "none":
        parity["reference"] = stored
    # One text a pass, as an app encodes them: a batch of unlike lengths would time its padding.
    timed = encoder.token_ids(texts[:: -(-len(texts) // _TIMED_TEXTS)], export.max_length)
    passes = [
        {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        for ids in timed
    ]
    with progress("measuring speed"):
        timing = speed(export.float_model, export.model, passes)
    manifest = Manifest(
        name=options.name,
        kind=ONNX,
        dimension=export.backbone.dimension,
        precision=_NAMES.get(export.precision, export.precision),
        max_length=export.max_length,
        details={
            "pad_id": encoder.pad_id,
            "pooling": encoder.pooling,
            "normalized": encoder.normalized,
            "revision": encoder.revision,
            **encoder.changed,
            **not_kept,
            "opset": next(
                entry.version for entry in export.float_model.opset_import if not entry.domain
            ),
            "parity": {**parity, "speed": timing} if options.keep_speed else parity,
            "cost": cost(export.float_model, encoder.longest),
            "versions": versions("torch", "transformers", "onnx", "onnxruntime"),
            **({"optional_inputs": ["adapters"]} if options.adapters else {}),
            **options.details,
            **(details or {}),
        },
    )
    with writing(out):
        write_bundle(out, manifest, files)
    return {
        "bundle": str(out),
        "name": options.name,
        "dimension": manifest.dimension,
        "precision": manifest.precision,
        "pooling": encoder.pooling,
        **({"not_layers": encoder.not_layers} if encoder.not_layers else {}),
        "normalized": encoder.normalized,
        **encoder.changed,
        "megabytes": megabytes(out),
        **({"weights": f"in {stored} already, kept as they are"} if stored != "none" else {}),
        "parity": {**parity, "speed": timing},
        "cost": manifest.details["cost"],
        **not_kept,
    }


def export_encoder(
    encoder: Source, out: Path, options: ExportOptions, parity_text: Path | None = None
) -> dict[str, Any]:
    """Export an encoder as a bundle without a head: ``convert`` and ``pack``.

    Args:
        encoder: A loaded or trained encoder, or the ONNX file of one.
        out: The bundle to write; left alone when anything fails.
        options: The export options.
        parity_text: File with one text per line to measure parity on; None for built-in texts.

    Raises:
        ExportError: See ``convert`` and ``pack``.
    """
    return pack(convert(encoder, options, parity_texts(parity_text)), out)
