"""Load whatever a vendor names: a transformer, an exported graph, or static embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypedDict

from fala_export.errors import ExportError
from fala_export.models.encoder import Encoder, load_encoder, reads_forwards
from fala_export.models.folder import WEIGHTS, naming
from fala_export.models.onnx_file import OnnxFile, load_onnx
from fala_export.models.sentence_encoder import LAYERS, SentenceEncoder, has_layers
from fala_export.models.static import is_static, load_static
from fala_export.settings import ExportOptions, FrozenPooling, HubName, ModelSource

Source: TypeAlias = Encoder | OnnxFile


class _Settings(TypedDict):
    ignore: Collection[str]
    prompt: str | None
    dimension: int | None


_GRAPHS = ("model.onnx", "encoder_model.onnx")
"""Names of an exported graph in full precision; those in another have longer ones."""

# Why the default pooling is a model's own; see ``with_layers``.
_NO_GRAPHS, _NO_TABLES = "a graph returns no inner layers", "static embeddings have no layers"

_NO_LAYERS = "layers = N and --layers are for a transformer's folder with its weights"


def load_source(
    model: ModelSource,
    pooling: FrozenPooling | None,
    options: ExportOptions,
    tokenizer: Path | None = None,
) -> tuple[Source, str | None]:
    """Load a model of any form, to export it as it is.

    A folder with weights and graphs is loaded by its weights. Of several graphs the one in full
    precision is taken.

    Args:
        model: The model.
        pooling: As for ``load_encoder``; None takes ``"layers"`` for a transformer where they can
            be, and else ``"own"``.
        options: The export options.
        tokenizer: The ``tokenizer.json`` of an ONNX file; None takes the one beside it.

    Returns:
        The model; and the name of the file that was read, where the folder has graphs.

    Raises:
        ExportError: See ``load_encoder``, ``load_onnx`` and ``load_static``.
    """
    settings: _Settings = {
        "ignore": model.ignore, "prompt": model.prompt, "dimension": model.dimension
    }  # fmt: skip
    path, max_length = Path(model.source), options.max_length
    if isinstance(model.source, HubName):
        return _load_weights(model, pooling, options, settings), None
    if model.layers is not None and (path.suffix == ".onnx" or (path.is_dir() and is_static(path))):
        raise ExportError(f"{path}: {_NO_LAYERS}")
    graph_pooling = None if pooling == "own" else pooling
    no_graphs, no_tables = (_NO_GRAPHS, _NO_TABLES) if pooling is None else ("", "")
    if path.suffix == ".onnx" and path.is_file():
        file = load_onnx(path, tokenizer, graph_pooling, max_length, **settings)
        return replace(file, not_layers=no_graphs), None
    if path.is_dir() and is_static(path):
        file = load_static(path, graph_pooling, max_length, **settings)
        return replace(file, not_layers=no_tables), None
    graphs = _graphs(path)
    weights = next((name for name in WEIGHTS if (path / name).is_file()), None)
    if graphs and weights is None:
        with naming(str(path)):
            graph = _choose(path, graphs)
            if model.layers is not None:
                raise ExportError(_NO_LAYERS)
        file = load_onnx(graph, tokenizer, graph_pooling, max_length, **settings)
        return replace(file, not_layers=no_graphs), graph.relative_to(path).as_posix()
    return _load_weights(model, pooling, options, settings), weights if graphs else None


def _load_weights(
    model: ModelSource, pooling: FrozenPooling | None, options: ExportOptions, settings: _Settings
) -> Encoder:
    """Load a transformer's weights; see ``load_source``."""
    loaded = load_encoder(
        model.source, pooling or "own", model.revision, layers=model.layers, **settings
    )
    return with_layers(loaded, options) if pooling is None else loaded


def with_layers(encoder: Encoder, options: ExportOptions) -> Encoder:
    """Pool three layers of a loaded encoder, unless something needs its own pooling.

    Args:
        encoder: With its own pooling.
        options: The export options.
    """
    module = encoder.module
    reason = needs_own(module, options)
    if not reason and reads_forwards(module.transformer):
        reason = "the model reads a text from left to right"
    if reason:
        return replace(encoder, not_layers=reason)
    return replace(encoder, module=module.pooled_by(LAYERS))


def needs_own(module: SentenceEncoder, options: ExportOptions) -> str:
    """What needs a model's own pooling; empty where three layers can be in its place.

    Args:
        module: With its own pooling.
        options: The export options.
    """
    if options.adapters:
        return "adapters need the last layer"
    if len(module.end.steps):
        return f"{type(module.end.steps[0]).__name__} follows the model's own pooling"
    if module.end.cut is not None:
        return "embeddings that are cut are the model's own"
    return "" if has_layers(module.transformer) else "its layers' states are not returned"


def _graphs(folder: Path) -> list[Path]:
    """The ONNX files of a model's folder, and of its folder ``onnx``."""
    return sorted(file for place in (folder, folder / "onnx") for file in place.glob("*.onnx"))


def _choose(folder: Path, graphs: list[Path]) -> Path:
    named = [file for name in _GRAPHS for file in graphs if file.name == name]
    if named or len(graphs) == 1:
        return [*named, *graphs][0]
    names = ", ".join(file.relative_to(folder).as_posix() for file in graphs)
    raise ExportError(f"has {names}: name one of these files, and its tokenizer with --tokenizer")
