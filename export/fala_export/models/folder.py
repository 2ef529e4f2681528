"""A model's folder: a transformer's files, and the files of sentence-transformers beside them.

Messages here do not name the model; ``naming`` puts its name before them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
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
"""Names of a tokenizer's files; the first one holds everything in the others."""

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
"""Names of the files that hold weights, best first; the second one names its parts."""

LFS_POINTER = b"version https://git-lfs"
"""How a file begins that Git LFS has not fetched."""

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
SENTENCE_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
)
"""Names of sentence-transformers' settings of a transformer, newest first."""

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
"""The file of an adapter of PEFT, which a load may mix in."""

# What the settings of a transformer may set besides its length and case, without another embedding.
_NEUTRAL = {
    "module_output_name": ("token_embeddings",),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
    "unpad_inputs": (True, False),
}


@contextlib.contextmanager
def naming(model: str) -> Iterator[None]:
    """Put a model's name before the errors about its files."""
    try:
        yield
    except ExportError as error:
        raise ExportError(f"{model}: {error}") from error


@contextlib.contextmanager
def reading_part(part: str) -> Iterator[None]:
    """Turn any error of a library about a bad model into an ExportError of one line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        raise ExportError(f"cannot load its {part}: {first_line(error)}") from error


def read_any_json(path: Path) -> Any:  # noqa: ANN401  # JSON is of any type
    """Read a JSON file of a model; None where there is no such file.

    Raises:
        ExportError: It is not JSON.
    """
    if not path.is_file():
        return None
    with reading_part(path.name):
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object of a model; None where there is no such file.

    Raises:
        ExportError: It is not a JSON object.
    """
    content = read_any_json(path)
    if content is None or isinstance(content, dict):
        return content
    raise ExportError(f"{path.name} is not a JSON object")


def check_configuration(folder: Path) -> None:
    """Check that a folder has a transformer whose weights are its own, without code of its own.

    Args:
        folder: The transformer's.

    Raises:
        ExportError: It has not.
    """
    if (folder / ADAPTER).is_file():
        raise ExportError(
            f"{ADAPTER} names an adapter of PEFT, such as LoRA: merge it into its model first "
            "(PeftModel.merge_and_unload), and save that"
        )
    config = read_object(folder / CONFIGURATION)
    if config is None:
        raise ExportError(f"not a model folder: it has no {CONFIGURATION}")
    if config.get("quantization_config"):
        raise ExportError(f"{CONFIGURATION} has quantized weights; give the model in float32")
    for name in (CONFIGURATION, TOKENIZER[1]):
        if (read_object(folder / name) or {}).get("auto_map"):
            raise ExportError(
                f"{name} names code of its own, which is never run: export the model to ONNX where "
                "you trust it, and give that file"
            )


def find_weights(folder: Path) -> Path:
    """Find the file with a transformer's weights, or with the names of their parts.

    Raises:
        ExportError: There is none, a part is missing or outside the folder, or a file is only a
            pointer of Git LFS.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    graphs = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.onnx"))
    if path is None and graphs:
        raise ExportError(
            f"has no weights, but {', '.join(graphs)}: name one of these files, and its tokenizer "
            "with --tokenizer"
        )
    if path is None:
        raise ExportError(f"has no weights: neither {WEIGHTS[0]} nor {WEIGHTS[-1]}")
    files = [path]
    if path.suffix == ".json":
        files += [folder / part for part in weight_parts(path)]
    for file in files:
        if not file.is_file():
            raise ExportError(f"has no {file.name}, which {path.name} names")
        with file.open("rb") as stream:
            if stream.read(len(LFS_POINTER)) == LFS_POINTER:
                raise ExportError(f"{file.name} only points to the weights: run git lfs pull there")
    return path


def weight_parts(index: Path) -> list[str]:
    """Read the names of the files of weights from their index, which is beside them.

    Raises:
        ExportError: It names none, or files of other folders.
    """
    with reading_part(index.name):
        parts = sorted(set((read_object(index) or {})["weight_map"].values()))
        if any(Path(part).name != part for part in parts):
            raise ValueError("it names files outside the model's folder")
    return parts


@dataclass(frozen=True)
class Modules:
    """The steps from a text to its embedding; folders are relative to the model's.

    Attributes:
        transformer: Folder of the transformer and its tokenizer; empty for the model's own.
        pooling: Folder of the pooling; None without one.
        attention: Whether it is our attention pooling.
        after: Kinds and folders of the steps after the pooling.
        normalize: Whether embeddings are scaled to length 1 by the last of them.
        listed: Whether a file lists the steps; without it a model is a plain transformer.
        static: Whether the first step is a table of vectors by token.
    """

    transformer: str = ""
    pooling: str | None = None
    attention: bool = False
    after: tuple[tuple[str, str], ...] = ()
    normalize: bool = False
    listed: bool = False
    static: bool = False


@dataclass(frozen=True)
class SentenceSettings:
    """Sentence-transformers' settings of a model's texts and embeddings.

    Attributes:
        longest: Tokens of a text that are read; None where it is not set.
        lowercase: Whether texts are read in lower case.
        prompts: Texts to put before every text, by name.
        default_prompt: The name of the one that is put there where none is named.
        cut: Numbers of an embedding that are kept; None keeps all.
    """

    longest: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    cut: int | None = None

    def prompt(self, name: str | None, ignore: Collection[str]) -> str:
        """The prompt of a name, or the default one; empty for none.

        Args:
            name: None takes the default one.
            ignore: See ``ModelSource``.

        Raises:
            ExportError: There is no prompt of the name.
        """
        if name is None:
            default = None if "prompts" in ignore else self.default_prompt
            return "" if default is None else self.prompts[default]
        if name in self.prompts:
            return self.prompts[name]
        named = ", ".join(self.prompts) or "none"
        raise ExportError(f"{PROMPTS} has no prompt {name!r}; its prompts are: {named}")

    def kept_numbers(self, wanted: int | None, full: int, ignore: Collection[str]) -> int | None:
        """How many numbers of an embedding are kept; None for all of them.

        Args:
            wanted: The vendor's number; None takes that of the model's files.
            full: Numbers of an embedding.
            ignore: See ``ModelSource``.

        Raises:
            ExportError: There are not so many.
        """
        kept = wanted or (None if "truncate_dim" in ignore else self.cut) or full
        if kept > full:
            raise ExportError(f"an embedding has {full} numbers, and cannot be cut to {kept}")
        return None if kept == full else kept

    def left_out(self, prompt: str, ignore: Collection[str]) -> dict[str, str]:
        """What a bundle does not have of these settings, a sentence by the setting's name.

        Args:
            prompt: The prompt that every text has; empty for none.
            ignore: See ``ModelSource``.
        """
        notes = {}
        prompts = {name: text for name, text in self.prompts.items() if text}
        if prompts and not prompt:
            named = ", ".join(f"{name} ({text!r:.40})" for name, text in prompts.items())
            notes["prompts"] = f"{PROMPTS} has prompts, and none is put before a text: {named}"
        if self.cut is not None and "truncate_dim" in ignore:
            statement = f"{PROMPTS} cuts embeddings to truncate_dim = {self.cut}"
            notes |= not_kept("truncate_dim", statement, ignore)
        return notes


def read_modules(folder: Path, kinds: Collection[str] = ("Transformer",)) -> Modules:
    """Read the steps of a model; by default those of a plain transformer.

    Args:
        folder: The model's.
        kinds: Kinds of the first step.

    Raises:
        ExportError: One of the steps cannot be exported, or is code of the model's own.
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
                f"{MODULES} names {kind}, code of the model's own, which is never run"
            )
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ExportError(f"{MODULES} names the folder {path}, outside the model's")
        named.append((kind.rpartition(".")[2], path))
    names = [name for name, _ in named]
    first = " or a ".join(kinds)
    if names[:1] not in [[kind] for kind in kinds]:
        if names[:1] in (["Router"], ["Asym"]):
            raise ExportError(
                f"{MODULES} begins with a {names[0]}, which chooses among several models; give the "
                "folder of one of them, which lies in this one"
            )
        found = f"a {names[0]}" if names else f"no {first}"
        raise ExportError(
            f"{MODULES} begins with {found}; a model whose first step is a {first} can be exported"
        )
    pools = names[_POOLING:][:1] in (["Pooling"], ["AttentionPooling"])
    after = [(name, path) for name, path in named[_POOLING + pools :] if name != "Dropout"]
    for name, _ in after:
        if name not in _AFTER:
            raise ExportError(
                f"{MODULES} names {', '.join(names)}: {name} cannot be exported there; a "
                f"Transformer, a Pooling, and any of {', '.join(_AFTER)} can"
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
        folder: The model's.
        modules: Its steps.
        dimension: Length of a pooled embedding; None does not check whether the first step is for
            that length.

    Raises:
        ExportError: A file cannot be read, or the steps do not belong together.
    """
    steps: list[nn.Module] = []
    for kind, path in modules.after:
        step = _read_step(folder, kind, path)
        width = {"Dense": "in_features", "LayerNorm": "dimension"}.get(kind)
        if width is not None and getattr(step, width) != (dimension or getattr(step, width)):
            raise ExportError(
                f"{path} is for {getattr(step, width)} numbers, and its input has {dimension}"
            )
        dimension = getattr(step, "out_features", dimension)
        steps.append(step)
    return steps


def _read_step(folder: Path, kind: str, path: str) -> Any:  # noqa: ANN401  # one of the library's
    """Read a step on embeddings.

    Args:
        folder: The model's.
        kind: The library's class of it, such as ``Dense``.
        path: Its folder in the model's.

    Raises:
        ExportError: A file cannot be read, or the step is not of embeddings.
    """
    with reading_part(path or kind):
        settings = read_object(folder / path / CONFIGURATION) or {}
        activation = settings.get("activation_function") or "torch."
        if not str(activation).startswith("torch."):
            raise ExportError(f"{path} names {activation}, code of the model's own")
        places = {settings.get(f"module_{end}_name") for end in ("input", "output")}
        if places - {None, "sentence_embedding"}:
            raise ExportError(f"{path} is for states of tokens, and cannot be exported")
        step = getattr(steps_of_library, kind).load(str(folder / path), local_files_only=True)
    return step.eval()


def read_pooling(
    folder: Path, modules: Modules, dimension: int
) -> str | Pooling | AttentionPooling:
    """Read how a model pools; a plain transformer by the mean.

    Args:
        folder: The model's.
        modules: Its steps.
        dimension: Length of a token's state.

    Raises:
        ExportError: Its files cannot be read, or do not belong together.
    """
    if modules.pooling is None:
        beside = sorted(path.parent.name for path in folder.glob(f"*Pooling/{CONFIGURATION}"))
        if modules.listed or beside:
            found = f"{MODULES} names no pooling" if modules.listed else f"has no {MODULES}"
            raise ExportError(
                f"{found}{', but a folder ' * bool(beside)}{', '.join(beside)}: complete the "
                "folder, or choose with --pooling"
            )
        return "mean"
    kind = AttentionPooling if modules.attention else Pooling
    with reading_part("pooling"):
        if not modules.attention:
            _check_modes(read_any_json(folder / modules.pooling / CONFIGURATION))
        pooling = kind.load(str(folder / modules.pooling), local_files_only=True)
        width = pooling.projection.in_features if modules.attention else pooling.embedding_dimension
        if not getattr(pooling, "include_prompt", True):
            raise ValueError("it leaves out the tokens of prompts, which a device does not know")
        if width != dimension:
            raise ValueError(f"it is for states of {width} numbers, the model's have {dimension}")
    return pooling


def _check_modes(settings: Any) -> None:  # noqa: ANN401  # JSON is of any type
    """Check that the library knows every mode that a pooling's file switches on.

    Raises:
        AttributeError: It is no object.
        ValueError: The library would take the mean instead.
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
        raise ValueError(f"its mode is {unknown[0] if unknown else 'none of all'}")


def read_settings(folder: Path, modules: Modules) -> SentenceSettings:
    """Read sentence-transformers' settings of a model's texts and embeddings.

    Args:
        folder: The model's.
        modules: Its steps.

    Raises:
        ExportError: The texts are read in a way that cannot be exported.
    """
    model = read_object(folder / PROMPTS) or {}
    with reading_part(PROMPTS):
        prompts = {name: str(text or "") for name, text in (model.get("prompts") or {}).items()}
        default = model.get("default_prompt_name")
        if default is not None and default not in prompts:
            raise ValueError(f"there is no prompt {default!r}, its default")
        cut = model.get("truncate_dim")
        if cut is not None and (type(cut) is not int or cut < 1):
            raise ValueError("truncate_dim is not a whole number from 1")
    names = [(modules.transformer and f"{modules.transformer}/{n}") or n for n in SENTENCE_SETTINGS]
    name = next((name for name in names if (folder / name).is_file()), names[0])
    settings = read_object(folder / name) or {}
    task = settings.pop("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise ExportError(f"a transformer for {task} cannot be exported")
    longest = settings.pop("max_seq_length", None)
    lowercase = settings.pop("do_lower_case", None)
    valid_length = longest is None or (type(longest) is int and longest > 0)
    if not valid_length or lowercase not in (None, True, False):
        wrong = "do_lower_case" if valid_length else "max_seq_length"
        raise ExportError(f"{name} sets {wrong} to a value that is not valid; correct it there")
    for key, value in settings.items():
        if value not in (None, {}, [], *_NEUTRAL.get(key, ())):
            raise ExportError(
                f"{name} sets {key} to {json.dumps(value)[:80]}, which cannot be exported; to "
                "export without it, remove it there"
            )
    return SentenceSettings(
        longest=longest,
        lowercase=bool(lowercase),
        prompts=prompts,
        default_prompt=default,
        cut=cut,
    )


def not_kept(name: str, statement: str, ignore: Collection[str]) -> dict[str, str]:
    """A setting that no bundle keeps, by its name, if the vendor leaves it out on purpose.

    Args:
        name: The setting's.
        statement: What it does, and in which file.
        ignore: See ``ModelSource``.

    Raises:
        ExportError: It is not left out on purpose.
    """
    if name in ignore:
        return {name: f"{statement}; the bundle does not"}
    raise ExportError(f"{statement}, which cannot be exported; --ignore {name} exports without it")
