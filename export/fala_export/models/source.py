"""Load whatever a vendor names: a transformer, an exported graph, or static embeddings."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TypeAlias, TypedDict

from fala_export.errors import ExportError
from fala_export.models.encoder import Encoder, load_encoder
from fala_export.models.folder import WEIGHTS, naming
from fala_export.models.onnx_file import OnnxFile, load_onnx
from fala_export.models.static import is_static, load_static
from fala_export.settings import FrozenPooling, ModelSource

Source: TypeAlias = Encoder | OnnxFile


class _Settings(TypedDict):
    ignore: Collection[str]
    prompt: str | None
    dimension: int | None


_GRAPHS = ("model.onnx", "encoder_model.onnx")
"""Names of an exported graph in full precision; those in another have longer ones."""


def load_source(
    model: ModelSource,
    pooling: FrozenPooling | None = None,
    max_length: int | None = None,
    tokenizer: Path | None = None,
) -> tuple[Source, str | None]:
    """Load a model of any form.

    A folder with weights and graphs is loaded by its weights. Of several graphs the one in full
    precision is taken.

    Args:
        model: The model.
        pooling: As for ``load_encoder``.
        max_length: As for ``load_onnx``.
        tokenizer: The ``tokenizer.json`` of an ONNX file; None takes the one beside it.

    Returns:
        The model; and the name of the file that was read, where the folder has graphs.

    Raises:
        ExportError: See ``load_encoder``, ``load_onnx`` and ``load_static``.
    """
    settings: _Settings = {
        "ignore": model.ignore, "prompt": model.prompt, "dimension": model.dimension
    }  # fmt: skip
    path = Path(model.source)
    if path.suffix == ".onnx" and path.is_file():
        return load_onnx(path, tokenizer, pooling, max_length, **settings), None
    if path.is_dir() and is_static(path):
        return load_static(path, pooling, max_length, **settings), None
    graphs = _graphs(path)
    weights = next((name for name in WEIGHTS if (path / name).is_file()), None)
    if graphs and weights is None:
        with naming(str(path)):
            graph = _choose(path, graphs)
        encoder = load_onnx(graph, tokenizer, pooling, max_length, **settings)
        return encoder, graph.relative_to(path).as_posix()
    loaded = load_encoder(model.source, pooling, model.revision, **settings)
    return loaded, weights if graphs else None


def _graphs(folder: Path) -> list[Path]:
    """The ONNX files of a model's folder, and of its folder ``onnx``."""
    return sorted(file for place in (folder, folder / "onnx") for file in place.glob("*.onnx"))


def _choose(folder: Path, graphs: list[Path]) -> Path:
    named = [file for name in _GRAPHS for file in graphs if file.name == name]
    if named or len(graphs) == 1:
        return [*named, *graphs][0]
    names = ", ".join(file.relative_to(folder).as_posix() for file in graphs)
    raise ExportError(f"has {names}: name one of these files, and its tokenizer with --tokenizer")
