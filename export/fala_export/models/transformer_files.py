"""A transformer's own files, as ``transformers`` saves them: settings, tokenizer and weights."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fala import ExportError

CONFIGURATION = "config.json"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Names of a tokenizer's files; the first one holds all that others repeat."""

VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)
"""Names of the files that older models have in place of the tokenizer's first one."""

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
"""Names of the files that hold weights, best first; the second one names its parts."""

_LFS_POINTER = b"version https://git-lfs"


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


def read_any_json(source: str, path: Path) -> Any:  # noqa: ANN401  # JSON is of any type
    """Read a JSON file of a model; None where there is no such file.

    Raises:
        ExportError: It is no JSON.
    """
    if not path.is_file():
        return None
    with loading(source, path.name):
        return json.loads(path.read_text(encoding="utf-8"))


def read_json(source: str, path: Path) -> dict[str, Any] | None:
    """Read a JSON object of a model; None where there is no such file.

    Raises:
        ExportError: It is no JSON, or no object.
    """
    found = read_any_json(source, path)
    if found is None or isinstance(found, dict):
        return found
    raise ExportError(f"{source}: {path.name} is not a JSON object")


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
    for name in (CONFIGURATION, TOKENIZER[1]):
        if (read_json(source, folder / name) or {}).get("auto_map"):
            raise ExportError(f"{source}: {name} names code of its own, which is never run")
    kind = config.get("model_type")
    if kind not in family or config.get("is_decoder") or config.get("is_encoder_decoder"):
        raise ExportError(
            f"{source}: a {kind or 'nameless'} model{' that decodes' * (kind in family)} is not "
            f"an encoder of the BERT family ({', '.join(family)})"
        )


def check_tokenizer(source: str, folder: Path) -> None:
    """Check that a transformer's folder holds a tokenizer that can be read here.

    Raises:
        ExportError: None of its files is there, or a package is missing to read them.
    """
    found = [name for name in (TOKENIZER[0], *VOCABULARIES) if (folder / name).is_file()]
    if not found:
        raise ExportError(f"{source}: has no tokenizer: neither {TOKENIZER[0]} nor a vocabulary")
    if found[0].endswith(".model") and find_spec("sentencepiece") is None:
        raise ExportError(
            f"{source}: its tokenizer is only there as {found[0]}: pip install "
            "'fala-sdk[export]' to read it (sentencepiece is missing), or save the tokenizer as "
            f"{TOKENIZER[0]}"
        )


def find_weights(source: str, folder: Path) -> Path:
    """Find the file with a transformer's weights, or with the names of their parts.

    Raises:
        ExportError: There is none, a part is missing or outside the folder, or there is only what
            git leaves of a file without its extension for large files.
    """
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise ExportError(f"{source}: has no weights: neither {WEIGHTS[0]} nor {WEIGHTS[-1]}")
    files = [path]
    if path.suffix == ".json":
        files += [folder / part for part in weight_parts(source, path)]
    for file in files:
        if not file.is_file():
            raise ExportError(f"{source}: has no {file.name}, which {path.name} names")
        with file.open("rb") as stream:
            if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise ExportError(
                    f"{source}: {file.name} only points to the weights: run git lfs pull there"
                )
    return path


def weight_parts(source: str, index: Path) -> list[str]:
    """Read which files beside it hold the weights, from the file that says so.

    Raises:
        ExportError: It does not, or it names files of other folders.
    """
    with loading(source, index.name):
        parts = sorted(set((read_json(source, index) or {})["weight_map"].values()))
        if any(Path(part).name != part for part in parts):
            raise ValueError("it names files outside the model's folder")
    return parts
