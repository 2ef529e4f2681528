"""Model folders as sentence-transformers writes them: a transformer, its pooling, its tokenizer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fala.errors import ExportError

if TYPE_CHECKING:
    from fala_export.encoder import Encoder
    from fala_export.sentence_encoder import AttentionPooling

_MODULES = "modules.json"
_POOLING = "1_Pooling"
_ATTENTION = "1_AttentionPooling"  # ours; sentence-transformers has no such module
_WEIGHTS = "model.safetensors"
_LAYERS = "sentence_transformers.models"
_POOLING_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@contextlib.contextmanager
def loading(source: str, part: str) -> Iterator[None]:
    """Turn whatever transformers raises for a bad or unreachable model into one line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # OSError, ValueError, KeyError, safetensors' and tokenizers' own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        where = "" if Path(source).is_dir() else " (neither a folder here, nor on the hub)"
        raise ExportError(f"{source}{where}: cannot load its {part}: {lines[0]}") from error


def find_file(source: str, name: str, revision: str | None) -> Path | None:
    """Find one file of a model, in its folder or on the hub; None where it has none."""
    from transformers.utils import cached_file

    with loading(source, name):
        path = cached_file(
            source,
            name,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    return None if path is None else Path(path)


def read_pooling(
    source: str, revision: str | None, dimension: int
) -> tuple[str | AttentionPooling, bool]:
    """Read how a model pools and whether it normalizes.

    Args:
        source: A folder, or a name on the hub.
        revision: The hub's revision.
        dimension: Length of a token's state.

    Returns:
        What ``SentenceEncoder`` takes: the mean without normalization, where nothing says more.

    Raises:
        ExportError: The model ends in something that cannot be exported.
    """
    modules = _read_json(source, _MODULES, revision)
    if modules is None:
        return "mean", False
    with loading(source, _MODULES):
        paths = {
            str(module["type"]).rpartition(".")[2]: str(module["path"])
            for module in modules  # type: ignore[attr-defined]  # loading() reports what is none
        }
    if unknown := sorted(set(paths) - {"Transformer", "Pooling", "AttentionPooling", "Normalize"}):
        raise ExportError(f"{source}: {_MODULES} names {unknown[0]}, which cannot be exported")
    pooling: str | AttentionPooling = "mean"
    if "AttentionPooling" in paths:
        pooling = _read_attention(source, f"{paths['AttentionPooling']}/{_WEIGHTS}", dimension)
    elif "Pooling" in paths:
        pooling = _read_mode(source, f"{paths['Pooling']}/config.json", revision)
    return pooling, "Normalize" in paths


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
    steps = [("", f"{_LAYERS}.Transformer")]
    if module.attention is None:
        name = next(key for key, mode in _POOLING_MODES.items() if mode == module.pooling)
        (folder / _POOLING).mkdir(exist_ok=True)
        settings = {"word_embedding_dimension": module.dimension, name: True}
        (folder / _POOLING / "config.json").write_text(json.dumps(settings))
        steps.append((_POOLING, f"{_LAYERS}.Pooling"))
    else:
        (folder / _ATTENTION).mkdir(exist_ok=True)
        save_file(module.attention.state_dict(), folder / _ATTENTION / _WEIGHTS)
        steps.append((_ATTENTION, "fala_export.sentence_encoder.AttentionPooling"))
    if module.normalize:
        steps.append(("2_Normalize", f"{_LAYERS}.Normalize"))
    (folder / _MODULES).write_text(
        json.dumps(
            [
                {"idx": index, "name": str(index), "path": path, "type": kind}
                for index, (path, kind) in enumerate(steps)
            ],
            indent=2,
        )
    )


def _read_mode(source: str, name: str, revision: str | None) -> str:
    settings = _read_json(source, name, revision)
    modes = settings if isinstance(settings, dict) else {}
    chosen = [key for key, on in modes.items() if key.startswith("pooling_mode_") and on]
    if len(chosen) != 1 or chosen[0] not in _POOLING_MODES:
        raise ExportError(
            f"{source}: pooling by {', '.join(chosen) or 'nothing'} cannot be exported; "
            "mean and cls can"
        )
    return _POOLING_MODES[chosen[0]]


def _read_attention(source: str, name: str, dimension: int) -> AttentionPooling:
    from safetensors.torch import load_file

    from fala_export.sentence_encoder import AttentionPooling

    with loading(source, name):
        state = load_file(Path(source) / name)
        attention = AttentionPooling(dimension, len(state["query"]))
        attention.load_state_dict(state)
    return attention


def _read_json(source: str, name: str, revision: str | None) -> object:
    path = find_file(source, name, revision)
    with loading(source, name):
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))
