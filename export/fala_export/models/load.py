"""Load a model of any form: a transformer, an exported graph, or static embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypedDict

import torch

from fala_export.base.errors import ExportError
from fala_export.models.encoder import Encoder, load_encoder, reads_forwards
from fala_export.models.folder import WEIGHTS, naming
from fala_export.models.onnx_file import OnnxFile, load_onnx
from fala_export.models.sentence_encoder import LAYERS, AttentionPooling, has_layers
from fala_export.models.static import is_static, load_static
from fala_export.recipe.settings import AnyPooling, ExportOptions, HubName, ModelSource

AnyEncoder: TypeAlias = Encoder | OnnxFile

_GRAPHS = ("model.onnx", "encoder_model.onnx")
"""Names of an exported graph in full precision; those in another have longer ones."""

_NO_LAYERS = "layers = N and --layers are for a transformer's folder with its weights"


class _Settings(TypedDict):
    ignore: Collection[str]
    prompt: str | None
    dimension: int | None


def load(
    model: ModelSource | str,
    pooling: AnyPooling | None = None,
    options: ExportOptions | None = None,
    *,
    tokenizer: Path | None = None,
    seed: int = 0,
) -> AnyEncoder:
    """Load a model of any form: a transformer, an exported graph, or static embeddings.

    A folder with weights and graphs is loaded by its weights. Of several graphs the one in full
    precision is taken.

    Args:
        model: A folder, a name on the hub, or an ONNX file; with settings of a model's files.
        pooling: ``"own"``, the pooling of the model's files, or a mode in its place; ``"layers"``
            (``LayerPooling``), or ``"attention"``, which is to be trained. None takes
            ``"layers"`` for a transformer where nothing needs its own pooling, and else ``"own"``.
        options: The options of a later export: the length of graphs, and whether adapters need the
            model's own pooling.
        tokenizer: The ``tokenizer.json`` of an ONNX file; None takes the one beside it.
        seed: Draws the weights of an untrained attention.

    Raises:
        ExportError: See ``load_encoder``, ``load_onnx`` and ``load_static``.
    """
    model = ModelSource(model) if isinstance(model, str) else model
    options = options or ExportOptions()
    settings: _Settings = {
        "ignore": model.ignore, "prompt": model.prompt, "dimension": model.dimension
    }  # fmt: skip
    path, graphs, weights = Path(model.source), list[Path](), None
    if not isinstance(model.source, HubName):
        if path.suffix == ".onnx" and path.is_file():
            graphs = [path]
        elif path.is_dir():
            graphs = _graphs(path)
            weights = next((name for name in WEIGHTS if (path / name).is_file()), None)
    static = path.is_dir() and not isinstance(model.source, HubName) and is_static(path)
    if static or (graphs and weights is None):
        with naming(str(path)):
            if model.layers is not None:
                raise ExportError(_NO_LAYERS)
            if pooling == "attention":
                raise ExportError('pooling = "attention" is of a transformer with its weights')
            graph = path if static or graphs == [path] else _choose(path, graphs)
        mode = None if pooling == "own" else pooling
        if static:
            file = load_static(path, mode, options.max_length, **settings)
            reason = "static embeddings have no layers"
        else:
            file = load_onnx(graph, tokenizer, mode, options.max_length, **settings)
            reason = "a graph returns no inner layers"
        read = None if graph == path else graph.relative_to(path).as_posix()
        return replace(file, file=read, not_layers=reason if pooling is None else "")
    own = "own" if pooling in (None, "attention") else pooling
    encoder = load_encoder(model.source, own, model.revision, layers=model.layers, **settings)
    encoder = replace(encoder, file=weights if graphs else None)
    if pooling == "attention":
        return attentive(encoder, seed)
    return encoder if pooling else _with_layers(encoder, options)


def _with_layers(encoder: Encoder, options: ExportOptions) -> Encoder:
    """Pool three layers of a loaded encoder, unless something needs its own pooling."""
    module = encoder.module
    reason = ""
    if options.adapters:
        reason = "adapters need the last layer"
    elif len(module.end.steps):
        reason = f"{type(module.end.steps[0]).__name__} follows the model's own pooling"
    elif module.end.cut is not None:
        reason = "embeddings that are cut are the model's own"
    elif not has_layers(module.transformer):
        reason = "its layers' states are not returned"
    elif reads_forwards(module.transformer):
        reason = "the model reads a text from left to right"
    if reason:
        return replace(encoder, not_layers=reason)
    return replace(encoder, module=module.pooled_by(LAYERS))


def attentive(encoder: Encoder, seed: int) -> Encoder:
    """Pool an encoder by attention.

    It starts as the mean: a query of zeros gives all tokens the same weight. An encoder that
    already pools by attention stays as it is.

    Args:
        encoder: A loaded encoder.
        seed: Seed of the attention's other weights.
    """
    if encoder.pooling == "attention":
        return encoder
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        attention = AttentionPooling(encoder.module.end.width)
    with torch.no_grad():
        attention.query.zero_()
    return replace(encoder, module=encoder.module.pooled_by(attention))


def _graphs(folder: Path) -> list[Path]:
    """The ONNX files of a model's folder, and of its folder ``onnx``."""
    return sorted(file for place in (folder, folder / "onnx") for file in place.glob("*.onnx"))


def _choose(folder: Path, graphs: list[Path]) -> Path:
    named = [file for name in _GRAPHS for file in graphs if file.name == name]
    if named or len(graphs) == 1:
        return [*named, *graphs][0]
    names = ", ".join(file.relative_to(folder).as_posix() for file in graphs)
    raise ExportError(f"has {names}: name one of these files, and its tokenizer with --tokenizer")
