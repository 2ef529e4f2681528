"""Model folders as sentence-transformers writes them: a transformer and the steps after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fala import ExportError
from fala_export.models.transformer_files import (
    loading,
    read_any_json,
    read_json,
)

if TYPE_CHECKING:
    from sentence_transformers.sentence_transformer.modules import Pooling

    from fala_export.models.sentence_encoder import AttentionPooling

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
SENTENCE_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
)
"""Names of the settings that sentence-transformers keeps beside a transformer, newest first."""

TYPES = "sentence_transformers."
"""How sentence-transformers names the types of its own steps."""

ATTENTION_TYPE = "fala_export.models.sentence_encoder.AttentionPooling"
"""The type of our attention pooling: the library has none."""

_STEPS = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class Modules:
    """The steps from a text to its embedding; folders are relative to the model's.

    Attributes:
        transformer: Folder of the transformer and its tokenizer; empty for the model's own.
        pooling: Folder of the pooling; None where nothing names one.
        attention: Whether it is our attention pooling.
        normalize: Whether embeddings are scaled to length 1.
        sentence: Whether sentence-transformers wrote the folder.
    """

    transformer: str = ""
    pooling: str | None = None
    attention: bool = False
    normalize: bool = False
    sentence: bool = False


@dataclass(frozen=True)
class SentenceSettings:
    """What sentence-transformers notes about the texts that a model reads.

    Attributes:
        longest: Tokens of a text that are read; None where it does not say.
        lowercase: Whether texts are read in lower case.
    """

    longest: int | None = None
    lowercase: bool = False


def read_modules(source: str, folder: Path) -> Modules:
    """Read the steps of a model; those of a plain transformer, where nothing says more.

    Args:
        source: The model's name in messages.
        folder: The model's.

    Raises:
        ExportError: One of the steps cannot be exported, or is code of the model's own.
    """
    listed = read_any_json(source, folder / MODULES)
    if listed is None:
        return Modules()
    with loading(source, MODULES):
        steps = [(str(step["type"]), str(step["path"])) for step in listed]
    paths: dict[str, str] = {}
    for kind, path in steps:
        name = kind.rpartition(".")[2]
        if not kind.startswith(TYPES) and kind != ATTENTION_TYPE:
            raise ExportError(
                f"{source}: {MODULES} names {kind}, code of the model's own, which is never run"
            )
        if name in paths or (kind.startswith(TYPES) and name not in _STEPS):
            raise ExportError(f"{source}: {MODULES} names {name}, which cannot be exported")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ExportError(f"{source}: {MODULES} names the folder {path}, outside the model's")
        paths[name] = path
    return Modules(
        transformer=paths.get("Transformer", ""),
        pooling=paths.get("AttentionPooling", paths.get("Pooling")),
        attention="AttentionPooling" in paths,
        normalize="Normalize" in paths,
        sentence=True,
    )


def read_pooling(
    source: str, folder: Path, modules: Modules, dimension: int
) -> str | Pooling | AttentionPooling:
    """Read how a model pools: by the mean, where nothing says more.

    Args:
        source: The model's name in messages.
        folder: The model's.
        modules: Its steps.
        dimension: Length of a token's state.

    Raises:
        ExportError: Its files cannot be read.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling

    from fala_export.models.sentence_encoder import AttentionPooling

    if modules.pooling is None:
        return "mean"
    kind = AttentionPooling if modules.attention else Pooling
    with loading(source, "pooling"):
        pooling = kind.load(str(folder / modules.pooling), local_files_only=True)
        width = pooling.projection.in_features if modules.attention else pooling.embedding_dimension
        if width != dimension:
            raise ValueError(f"it is for states of {width} numbers, the model's have {dimension}")
    return pooling


def read_sentence_settings(source: str, folder: Path, modules: Modules) -> SentenceSettings:
    """Read what sentence-transformers notes about a model's texts.

    Raises:
        ExportError: The texts are read in a way that cannot be exported.
    """
    if not modules.sentence:
        return SentenceSettings()
    prompts = read_json(source, folder / PROMPTS) or {}
    if name := prompts.get("default_prompt_name"):
        with loading(source, PROMPTS):
            prompt = prompts["prompts"][name]
        if prompt:
            raise ExportError(
                f"{source}: puts its prompt {name!r} before every text, which cannot be exported; "
                f"if texts shall go without it, set default_prompt_name to null in {PROMPTS}"
            )
    names = (folder / modules.transformer / name for name in SENTENCE_SETTINGS)
    settings = next((found for name in names if (found := read_json(source, name))), {})
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise ExportError(f"{source}: a transformer for {task} cannot be exported")
    longest = settings.get("max_seq_length")
    return SentenceSettings(
        longest=longest if isinstance(longest, int) and longest > 0 else None,
        lowercase=settings.get("do_lower_case") is True,
    )
