"""Model folders as sentence-transformers writes them: a transformer, its pooling, its tokenizer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fala.errors import ExportError

if TYPE_CHECKING:
    from fala_export.encoder import Encoder
    from fala_export.sentence_encoder import AttentionPooling

CONFIGURATION, MODULES = "config.json", "modules.json"
PROMPTS = "config_sentence_transformers.json"
SENTENCE_SETTINGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
)
"""Names of the settings that sentence-transformers keeps beside a transformer, newest first."""

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
"""Names of the files that hold weights, best first; the second one names its parts."""

_POOLING, _ATTENTION = "1_Pooling", "1_AttentionPooling"
_ATTENTION_TYPE = "fala_export.sentence_encoder.AttentionPooling"
_TYPES = "sentence_transformers."
_STEPS = ("Transformer", "Pooling", "Normalize")
_POOLING_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Modules:
    """The steps from a text to its embedding; folders are relative to the model's.

    Attributes:
        transformer: Folder of the transformer and its tokenizer; empty for the model's own.
        pooling: Folder of the pooling's settings; None where nothing names one.
        attention: Folder of our attention pooling's weights; None without it.
        normalize: Whether embeddings are scaled to length 1.
        sentence: Whether sentence-transformers wrote the folder.
    """

    transformer: str = ""
    pooling: str | None = None
    attention: str | None = None
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


@contextlib.contextmanager
def loading(source: str, part: str) -> Iterator[None]:
    """Turn whatever a library raises for a bad model into one line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"{source}: cannot load its {part}: {lines[0]}") from error


def read_json(source: str, path: Path) -> dict[str, Any] | None:
    """Read a JSON object of a model; None where there is no such file.

    Raises:
        ExportError: It is no JSON, or no object.
    """
    found = _read(source, path)
    if found is None or isinstance(found, dict):
        return found
    raise ExportError(f"{source}: {path.name} is not a JSON object")


def read_modules(source: str, folder: Path) -> Modules:
    """Read the steps of a model; those of a plain transformer, where nothing says more.

    Args:
        source: The model's name in messages.
        folder: The model's.

    Raises:
        ExportError: One of the steps cannot be exported, or is code of the model's own.
    """
    listed = _read(source, folder / MODULES)
    if listed is None:
        return Modules()
    with loading(source, MODULES):
        steps = [(str(step["type"]), str(step["path"])) for step in listed]
    paths: dict[str, str] = {}
    for kind, path in steps:
        name = kind.rpartition(".")[2]
        if not kind.startswith(_TYPES) and kind != _ATTENTION_TYPE:
            raise ExportError(
                f"{source}: {MODULES} names {kind}, code of the model's own, which is never run"
            )
        if name in paths or (kind.startswith(_TYPES) and name not in _STEPS):
            raise ExportError(f"{source}: {MODULES} names {name}, which cannot be exported")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ExportError(f"{source}: {MODULES} names the folder {path}, outside the model's")
        paths[name] = path
    return Modules(
        transformer=paths.get("Transformer", ""),
        pooling=paths.get("Pooling"),
        attention=paths.get("AttentionPooling"),
        normalize="Normalize" in paths,
        sentence=True,
    )


def read_pooling(
    source: str, folder: Path, modules: Modules, dimension: int
) -> str | AttentionPooling:
    """Read how a model pools: by the mean, where nothing says more.

    Args:
        source: The model's name in messages.
        folder: The model's.
        modules: Its steps.
        dimension: Length of a token's state.

    Raises:
        ExportError: It pools in a way that cannot be exported.
    """
    if modules.attention is not None:
        return _read_attention(source, folder / modules.attention / WEIGHTS[0], dimension)
    if modules.pooling is None:
        return "mean"
    settings = read_json(source, folder / modules.pooling / CONFIGURATION) or {}
    # Older versions of the library write a switch for every mode, newer ones the mode's name.
    declared = settings.get("pooling_mode") or [
        key for key, on in settings.items() if key.startswith("pooling_mode_") and on is True
    ]
    chosen = [declared] if isinstance(declared, str) else list(declared)
    modes = {_POOLING_MODES.get(str(mode), str(mode)) for mode in chosen}
    if len(modes) == 1 and modes <= set(_POOLING_MODES.values()):
        return modes.pop()
    raise ExportError(
        f"{source}: pooling by {' and '.join(map(str, chosen)) or 'nothing'} cannot be exported; "
        "mean and cls can (--pooling chooses one)"
    )


def read_sentence_settings(source: str, folder: Path, modules: Modules) -> SentenceSettings:
    """Read what sentence-transformers notes about a model's texts.

    Raises:
        ExportError: The texts are read in a way that cannot be exported.
    """
    if not modules.sentence:
        return SentenceSettings()
    prompts = read_json(source, folder / PROMPTS) or {}
    name = prompts.get("default_prompt_name")
    if name is not None and (prompts.get("prompts") or {}).get(name):
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


def check_configuration(source: str, folder: Path, family: Sequence[str]) -> None:
    """Check that a transformer is an encoder of a family, and brings no code of its own.

    Args:
        source: The model's name in messages.
        folder: The transformer's.
        family: Model types, as ``transformers`` names them.

    Raises:
        ExportError: It is something else.
    """
    config = read_json(source, folder / CONFIGURATION)
    if config is None:
        raise ExportError(f"{source}: not a model folder: it has no {CONFIGURATION}")
    kind = config.get("model_type")
    if config.get("auto_map"):
        raise ExportError(f"{source}: brings model code of its own, which is never run")
    if kind not in family or config.get("is_decoder") or config.get("is_encoder_decoder"):
        raise ExportError(
            f"{source}: a {kind or 'nameless'} model{' that decodes' * (kind in family)} is not "
            f"an encoder of the BERT family ({', '.join(family)})"
        )


def check_weights(source: str, folder: Path) -> None:
    """Check that a transformer's folder holds weights.

    Raises:
        ExportError: It holds none, or what git leaves of them without its extension for them.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise ExportError(f"{source}: has no weights: neither {WEIGHTS[0]} nor {WEIGHTS[2]}")
    with path.open("rb") as stream:
        if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise ExportError(
                f"{source}: {path.name} only points to the weights: run git lfs pull there"
            )


def save_encoder(encoder: Encoder, folder: Path) -> None:
    """Write a model that ``load_encoder`` reads; sentence-transformers does, but for attention.

    Args:
        encoder: A loaded or trained encoder.
        folder: Made if missing.
    """
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    module = encoder.module
    module.transformer.save_pretrained(folder)
    tokenizer = Tokenizer.from_str(encoder.tokenizer.decode())
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=tokenizer.id_to_token(encoder.pad_id),
        model_max_length=encoder.longest,
    ).save_pretrained(folder)
    steps = [("", f"{_TYPES}models.Transformer")]
    if module.attention is None:
        name = next(key for key, mode in _POOLING_MODES.items() if mode == module.pooling)
        (folder / _POOLING).mkdir(exist_ok=True)
        settings = {"word_embedding_dimension": module.dimension, name: True}
        (folder / _POOLING / CONFIGURATION).write_text(json.dumps(settings))
        steps.append((_POOLING, f"{_TYPES}models.Pooling"))
    else:
        (folder / _ATTENTION).mkdir(exist_ok=True)
        save_file(module.attention.state_dict(), folder / _ATTENTION / WEIGHTS[0])
        steps.append((_ATTENTION, _ATTENTION_TYPE))
    if module.normalize:
        steps.append(("2_Normalize", f"{_TYPES}models.Normalize"))
    (folder / MODULES).write_text(
        json.dumps(
            [
                {"idx": index, "name": str(index), "path": path, "type": kind}
                for index, (path, kind) in enumerate(steps)
            ],
            indent=2,
        )
    )


def _read_attention(source: str, path: Path, dimension: int) -> AttentionPooling:
    from safetensors.torch import load_file

    from fala_export.sentence_encoder import AttentionPooling

    with loading(source, "attention pooling"):
        state = load_file(path)
        attention = AttentionPooling(dimension, len(state["query"]))
        attention.load_state_dict(state)
    return attention


def _read(source: str, path: Path) -> Any:  # noqa: ANN401  # JSON is of any type
    if not path.is_file():
        return None
    with loading(source, path.name):
        return json.loads(path.read_text(encoding="utf-8"))
