"""Read a model's folder: a transformer's files, and those of sentence-transformers next to them.

Messages in this module do not name the model; ``naming`` puts its name before them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sentence_transformers.sentence_transformer import modules as steps_of_library
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.models.sentence_encoder import AttentionPooling

CONFIGURATION = "config.json"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Names of a tokenizer's files; the first contains everything in the others."""

VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)
"""Names of the files that older models have instead of ``tokenizer.json``."""

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
"""Names of the files that hold weights, best first; the second lists the parts of the first."""

_LFS_POINTER = b"version https://git-lfs"  # The beginning of a file that was not downloaded.

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
SENTENCE_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
)
"""Names of the files with sentence-transformers' settings of a transformer, newest first."""

TYPES = "sentence_transformers."
"""Prefix of the types of sentence-transformers' own steps."""

ATTENTION_TYPE = "fala_export.models.sentence_encoder.AttentionPooling"
"""The type of our attention pooling, which the library does not have."""

# Steps after the pooling, and the position of the pooling among a model's steps.
_AFTER = ("Dense", "LayerNorm", "Dropout", "Normalize")
_POOLING = 1

STATIC = "StaticEmbedding"
"""The kind of a table of vectors by token, among the steps of sentence-transformers."""

ADAPTER = "adapter_config.json"
"""The file of a PEFT adapter, which loading may merge into the model."""


@contextlib.contextmanager
def naming(model: str) -> Iterator[None]:
    """Prefix errors about a model's files with the model's name."""
    try:
        yield
    except ExportError as error:
        raise ExportError(f"{model}: {error}") from error


@contextlib.contextmanager
def reading_part(part: str) -> Iterator[None]:
    """Convert any library error about a bad model to an ExportError of one line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        raise ExportError(f"cannot load its {part}: {first_line(error)}") from error


def read_any_json(path: Path) -> Any:  # noqa: ANN401  # JSON is of any type
    """Read a JSON file of a model; return None if the file does not exist.

    Raises:
        ExportError: The file is not JSON.
    """
    if not path.is_file():
        return None
    with reading_part(path.name):
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object of a model; return None if the file does not exist.

    Raises:
        ExportError: The file is not a JSON object.
    """
    content = read_any_json(path)
    if content is None or isinstance(content, dict):
        return content
    raise ExportError(f"{path.name} must be a JSON object")


def check_configuration(folder: Path) -> None:
    """Check that a folder has a complete transformer that needs no code of its own.

    Args:
        folder: The transformer's folder.

    Raises:
        ExportError: The folder has no such transformer.
    """
    if (folder / ADAPTER).is_file():
        raise ExportError(
            f"{ADAPTER} names a PEFT adapter, such as LoRA; first merge it into its model "
            "(PeftModel.merge_and_unload), and save the merged model"
        )
    config = read_object(folder / CONFIGURATION)
    if config is None:
        raise ExportError(f"not a model folder: it has no {CONFIGURATION}")
    if config.get("quantization_config"):
        raise ExportError(f"{CONFIGURATION} has quantized weights; use the model in float32")
    for name in (CONFIGURATION, TOKENIZER[1]):
        if (read_object(folder / name) or {}).get("auto_map"):
            raise ExportError(
                f"{name} names custom code, which is never run; export the model to ONNX in an "
                "environment where you trust the code, and use that file"
            )


def find_weights(folder: Path) -> Path:
    """Find the file with a transformer's weights, or the index of its parts.

    Raises:
        ExportError: The folder has no weights, a part is missing or outside the folder, or a file
            is only a Git LFS pointer.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    graphs = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.onnx"))
    if path is None and graphs:
        raise ExportError(
            f"has no weights, but {', '.join(graphs)}; name one of these files, and its "
            "tokenizer with --tokenizer"
        )
    if path is None:
        raise ExportError(f"has no weights: neither {WEIGHTS[0]} nor {WEIGHTS[-1]}")
    files = [path]
    if path.suffix == ".json":
        files += [folder / part for part in weight_parts(path)]
    for file in files:
        if not file.is_file():
            raise ExportError(f"has no {file.name}, although {path.name} names it")
        check_pointer(file)
    return path


def check_pointer(path: Path) -> None:
    """Check that a file is not only a Git LFS pointer.

    Raises:
        ExportError: The file is a pointer, or cannot be read.
    """
    try:
        with path.open("rb") as stream:
            pointer = stream.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError as error:
        raise ExportError(f"{path.name} cannot be read: {error.strerror or error}") from error
    if pointer:
        raise ExportError(f"{path.name} is only a Git LFS pointer; run git lfs pull in its folder")


def weight_parts(index: Path) -> list[str]:
    """Read the names of the weight files from their index in the same folder.

    Raises:
        ExportError: The index names no files, or files of other folders.
    """
    with reading_part(index.name):
        parts = sorted(set((read_object(index) or {})["weight_map"].values()))
        if any(Path(part).name != part for part in parts):
            raise ValueError("its index names files outside the model's folder")
    return parts


@dataclass(frozen=True)
class Modules:
    """The steps from a text to its embedding; folders are relative to the model's folder.

    Attributes:
        transformer: Folder of the transformer and its tokenizer; empty for the model's own folder.
        pooling: Folder of the pooling; None if the model has none.
        attention: Whether the pooling is our attention pooling.
        after: Kinds and folders of the steps after the pooling.
        normalize: Whether the last step scales embeddings to length 1.
        listed: Whether a file lists the steps; otherwise the model is a plain transformer.
        static: Whether the first step is a table of vectors by token.
    """

    transformer: str = ""
    pooling: str | None = None
    attention: bool = False
    after: tuple[tuple[str, str], ...] = ()
    normalize: bool = False
    listed: bool = False
    static: bool = False


def read_modules(folder: Path, kinds: Collection[str] = ("Transformer",)) -> Modules:
    """Read the steps of a model; by default, of a plain transformer.

    Args:
        folder: The model's folder.
        kinds: Accepted kinds of the first step.

    Raises:
        ExportError: A step cannot be exported, or is custom code of the model.
    """
    listed = read_any_json(folder / MODULES)
    if listed is None:
        return Modules()
    with reading_part(MODULES):
        steps = [(str(step["type"]), str(step["path"])) for step in listed]
    named: list[tuple[str, str]] = []
    for kind, path in steps:
        if not kind.startswith(TYPES) and kind != ATTENTION_TYPE:
            raise ExportError(
                f"{MODULES} names {kind}, which is custom code of the model and is never run"
            )
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ExportError(
                f"{MODULES} names the folder {path}, which is outside the model's folder"
            )
        named.append((kind.rpartition(".")[2], path))
    names = [name for name, _ in named]
    first = " or a ".join(kinds)
    if names[:1] not in [[kind] for kind in kinds]:
        if names[:1] in (["Router"], ["Asym"]):
            raise ExportError(
                f"{MODULES} begins with a {names[0]}, which chooses among several models; name "
                "the folder of one of these models, inside this one"
            )
        found = f"a {names[0]}" if names else f"no {first}"
        raise ExportError(f"{MODULES} begins with {found}, but the first step must be a {first}")
    pools = names[_POOLING:][:1] in (["Pooling"], ["AttentionPooling"])
    after = [(name, path) for name, path in named[_POOLING + pools :] if name != "Dropout"]
    for name, _ in after:
        if name not in _AFTER:
            raise ExportError(
                f"{MODULES} names {', '.join(names)}, but {name} cannot be exported in this "
                f"place; supported: a Transformer, a Pooling, then any of {', '.join(_AFTER)}"
            )
    normalize = [name for name, _ in after][-1:] == ["Normalize"]
    return Modules(
        transformer=named[0][1],
        pooling=named[_POOLING][1] if pools else None,
        attention=names[_POOLING:][:1] == ["AttentionPooling"],
        after=tuple(after[: len(after) - normalize]),
        normalize=normalize,
        listed=True,
        static=names[0] == STATIC,
    )


def read_steps(folder: Path, modules: Modules, dimension: int | None = None) -> list[nn.Module]:
    """Read the steps between a model's pooling and the scaling to length 1.

    Args:
        folder: The model's folder.
        modules: The model's steps.
        dimension: Length of a pooled embedding; None does not check whether the first step fits
            that length.

    Raises:
        ExportError: A file cannot be read, or the steps do not fit together.
    """
    steps: list[nn.Module] = []
    for kind, path in modules.after:
        step = _read_step(folder, kind, path)
        width = {"Dense": "in_features", "LayerNorm": "dimension"}.get(kind)
        if width is not None and getattr(step, width) != (dimension or getattr(step, width)):
            raise ExportError(
                f"{path} must have {getattr(step, width)} dimensions as its input, not {dimension}"
            )
        dimension = getattr(step, "out_features", dimension)
        steps.append(step)
    return steps


def _read_step(folder: Path, kind: str, path: str) -> Any:  # noqa: ANN401  # one of the library's
    """Read a step that works on embeddings.

    Args:
        folder: The model's folder.
        kind: The library's class of the step, such as ``Dense``.
        path: The step's folder in the model's folder.

    Raises:
        ExportError: A file cannot be read, or the step does not work on embeddings.
    """
    with reading_part(path or kind):
        settings = read_object(folder / path / CONFIGURATION) or {}
        activation = settings.get("activation_function") or "torch."
        if not str(activation).startswith("torch."):
            raise ExportError(f"{path} names {activation}, which is custom code of the model")
        places = {settings.get(f"module_{end}_name") for end in ("input", "output")}
        if places - {None, "sentence_embedding"}:
            raise ExportError(f"{path} works on the states of tokens, so it cannot be exported")
        step = getattr(steps_of_library, kind).load(str(folder / path), local_files_only=True)
    return step.eval()


def read_pooling(
    folder: Path, modules: Modules, dimension: int
) -> str | Pooling | AttentionPooling:
    """Read how a model pools; a plain transformer pools by the mean.

    Args:
        folder: The model's folder.
        modules: The model's steps.
        dimension: Length of a token's state.

    Raises:
        ExportError: The files cannot be read, or do not fit together.
    """
    if modules.pooling is None:
        beside = sorted(path.parent.name for path in folder.glob(f"*Pooling/{CONFIGURATION}"))
        if modules.listed or beside:
            found = f"{MODULES} names no pooling" if modules.listed else f"has no {MODULES}"
            raise ExportError(
                f"{found}{', but a folder ' * bool(beside)}{', '.join(beside)}; complete the "
                "folder, or choose a pooling with --pooling"
            )
        return "mean"
    kind = AttentionPooling if modules.attention else Pooling
    with reading_part("pooling"):
        if not modules.attention:
            _check_modes(read_any_json(folder / modules.pooling / CONFIGURATION))
        pooling = kind.load(str(folder / modules.pooling), local_files_only=True)
        width = pooling.projection.in_features if modules.attention else pooling.embedding_dimension
        if not getattr(pooling, "include_prompt", True):
            raise ValueError("it leaves out the tokens of prompts, which devices do not support")
        if width != dimension:
            raise ValueError(
                f"it must be for states of {dimension} dimensions, as the model has, not {width}"
            )
    return pooling


def _check_modes(settings: Any) -> None:  # noqa: ANN401  # JSON is of any type
    """Check that the library supports every mode that a pooling's file switches on.

    Raises:
        AttributeError: The settings are not an object.
        ValueError: The library would use the mean instead of the mode.
    """
    switches = {
        name.removeprefix("pooling_mode_"): value
        for name, value in settings.items()
        if name.startswith("pooling_mode_")
    }
    known = {f"{mode.removesuffix('_tokens')}{end}" for mode in Pooling.POOLING_MODES
             for end in ("", "_token", "_tokens")}  # fmt: skip
    unknown = [name for name, value in switches.items() if value and name not in known]
    if unknown or (switches and "pooling_mode" not in settings and not any(switches.values())):
        raise ValueError(
            f"unsupported pooling mode {unknown[0]!r}"
            if unknown
            else "no pooling mode is switched on"
        )
