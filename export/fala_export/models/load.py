"""Load a model of any form: a transformer, an exported graph, or static embeddings."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import get_args

from fala import Bundle
from fala.base.errors import counted
from fala.bundle.format import TOKENIZER
from fala_export.base.errors import ExportError
from fala_export.models.encoder import Encoder
from fala_export.models.folder import STATIC, WEIGHTS, naming, read_modules
from fala_export.models.onnx_file import load_onnx
from fala_export.models.static import is_static, load_static
from fala_export.models.transformer import load_transformer
from fala_export.models.vocabulary import same_tokens
from fala_export.recipe.settings import (
    AnyPooling,
    ExportOptions,
    FrozenPooling,
    HubName,
    ModelSource,
)

_GRAPHS = ("model.onnx", "encoder_model.onnx")
"""Names of a graph exported in full precision; graphs in other precisions have longer names."""


def load(
    model: ModelSource | str | PathLike[str],
    pooling: AnyPooling | None = None,
    options: ExportOptions | None = None,
    *,
    tokenizer: Path | None = None,
    seed: int = 0,
    like: Bundle | None = None,
) -> Encoder:
    """Load a model of any form: a transformer, an exported graph, or static embeddings.

    A folder with weights and graphs is loaded by its weights. If there are several graphs, the
    graph in full precision is used.

    Args:
        model: A folder, a name on the hub, or an ONNX file, with settings of a model's files.
        pooling: ``"own"`` (the pooling of the model's files), another mode, ``"layers"``
            (``LayerPooling``), or ``"attention"``, which must be trained. If None, ``"layers"`` is
            used for a transformer unless something needs its own pooling, and otherwise ``"own"``.
        options: The options of a later export: the length of graphs, and whether adapters need the
            model's own pooling.
        tokenizer: The ``tokenizer.json`` of an ONNX file; if None, the file in the same folder is
            used.
        seed: Seed for the weights of an untrained attention.
        like: A bundle that was exported from the transformer. The encoder embeds as this bundle
            does, whatever the other settings are.

    Raises:
        ExportError: The model cannot be loaded; see ``load_transformer``, ``load_onnx`` and
            ``load_static``. Or the bundle was not exported from it.
    """
    if not isinstance(model, ModelSource):
        model = ModelSource(model if isinstance(model, str) else fspath(model))
    if like is not None:
        return _load_like(like, model)
    options = options or ExportOptions()
    path, is_here = Path(model.source), not isinstance(model.source, HubName)
    if is_here and path.suffix == ".onnx" and path.is_file():
        return _load_graph(path, model, pooling, options, tokenizer)
    graphs, weights = list[Path](), None
    if is_here and path.is_dir():
        graphs = _graphs(path)
        weights = next((name for name in WEIGHTS if (path / name).is_file()), None)
        with naming(str(path)):
            modules = read_modules(path, ("Transformer", STATIC))
            if is_static(path, modules):
                mode = _mode_without_layers(model, pooling)
                encoder = load_static(path, modules, model, mode, options.max_length)
                reason = "static embeddings have no layers"
                return replace(encoder, not_layers=reason if pooling is None else "")
            graph = _choose(path, graphs) if graphs and weights is None else None
        if graph is not None:
            encoder = _load_graph(graph, model, pooling, options, tokenizer)
            return replace(encoder, file=graph.relative_to(path).as_posix())
    encoder = load_transformer(model, pooling, options, seed)
    return replace(encoder, file=weights if graphs else None)


def _load_graph(
    path: Path,
    model: ModelSource,
    pooling: AnyPooling | None,
    options: ExportOptions,
    tokenizer: Path | None,
) -> Encoder:
    with naming(str(model.source)):
        mode = _mode_without_layers(model, pooling)
    encoder = load_onnx(path, model, mode, options.max_length, tokenizer)
    reason = "a graph returns no inner layers"
    return replace(encoder, not_layers=reason if pooling is None else "")


def _mode_without_layers(model: ModelSource, pooling: AnyPooling | None) -> str | None:
    """Return the pooling of a graph or a table of vectors; None uses its own.

    Raises:
        ExportError: An option is set that only a transformer with its weights has.
    """
    if model.layers is not None:
        raise ExportError("layers = N and --layers need a transformer's folder with its weights")
    if pooling == "attention":
        raise ExportError('pooling = "attention" needs a transformer with its weights')
    return None if pooling == "own" else pooling


def _load_like(bundle: Bundle, model: ModelSource) -> Encoder:
    """Load the transformer that a bundle was exported from, and embed as the bundle does."""
    details = bundle.manifest.details
    pooling = details.get("pooling")
    # Any other pooling has weights or settings, which are in the model's own files.
    named = pooling if pooling in get_args(FrozenPooling) else "own"
    not_kept, cut, layers = (details.get(name) for name in ("not_kept", "cut", "layers"))
    not_kept = not_kept if isinstance(not_kept, dict) else {}
    model = replace(
        model, ignore=(*not_kept, "prompts"), prompt=None,
        dimension=cut if isinstance(cut, int) else None,
        layers=max(layers) if isinstance(layers, list) and layers else None,
    )  # fmt: skip
    encoder = load_transformer(model, named, ExportOptions())
    # The bundle's tokenizer also has the prompt.
    tokenizer, prompt = bundle.read(TOKENIZER), str(details.get("prompt") or "")
    if isinstance(details.get("tokens"), int):
        with naming(str(model.source)):
            old_ids = same_tokens(encoder.tokenizer, tokenizer, encoder.pad_id)
            encoder = encoder.with_tokens(tokenizer, old_ids)
    encoder = replace(encoder, tokenizer=tokenizer, prompt=prompt, not_kept=not_kept)
    if isinstance(details.get("normalized"), bool):
        encoder.end.normalize = details["normalized"]
    if encoder.end.dimension != bundle.manifest.dimension:
        raise ExportError(
            f"{model.source} is not the model that {bundle.path} was exported from, because it "
            f"has {counted(encoder.end.dimension, 'dimension')}, and the bundle has "
            f"{bundle.manifest.dimension}"
        )
    return encoder


def _graphs(folder: Path) -> list[Path]:
    """Return the ONNX files of a model's folder and of its folder ``onnx``."""
    return sorted(file for place in (folder, folder / "onnx") for file in place.glob("*.onnx"))


def _choose(folder: Path, graphs: list[Path]) -> Path:
    named = [file for name in _GRAPHS for file in graphs if file.name == name]
    if named or len(graphs) == 1:
        return [*named, *graphs][0]
    names = ", ".join(file.relative_to(folder).as_posix() for file in graphs)
    raise ExportError(
        f"has several graphs, {names}; name one of these files, and its tokenizer with --tokenizer"
    )
