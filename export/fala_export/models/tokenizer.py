"""Read a model's tokenizer: its tokenizer.json, and the settings next to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from fala.base.errors import install_hint
from fala.base.examples import tokenizer_inputs
from fala_export.base.errors import ExportError
from fala_export.base.quiet import first_line
from fala_export.graph.sentences import parity_texts
from fala_export.models.folder import TOKENIZER, VOCABULARIES, read_object, reading_part

# Settings of a BERT tokenizer, and their names in its file.
_NORMALIZED = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Padding tokens that are used if a tokenizer does not name its own.
_PADDING = ("[PAD]", "<pad>")
# Most characters of a prefix, and most tokens of a template's piece, that a device reads.
_PIECE = 64


@dataclass(frozen=True)
class TextReader:
    """A tokenizer, which neither truncates nor pads, and its settings.

    Attributes:
        tokenizer: The tokenizer.
        pad_id: The padding token's id.
        longest: Most tokens of a text; None if there is no limit.
        truncation_side: Side on which long texts are truncated.
    """

    tokenizer: Tokenizer
    pad_id: int
    longest: int | None
    truncation_side: str


def load_tokenizer(folder: Path, pad_id: int | None, embeddings: int) -> TextReader:
    """Load the tokenizer of a transformer.

    Its ``tokenizer.json`` is read unchanged, as a device reads it, because ``transformers`` would
    build another tokenizer for some families. ``transformers`` builds it from a vocabulary only if
    that file does not exist.

    Args:
        folder: The transformer's folder.
        pad_id: The padding token's id in the model's configuration.
        embeddings: Number of the model's token embeddings.

    Raises:
        ExportError: The folder has no tokenizer, a package that reads it is missing, or the
            tokenizer does not fit the model.
    """
    settings = read_object(folder / TOKENIZER[1]) or {}
    if (folder / TOKENIZER[0]).is_file():
        with reading_part(TOKENIZER[0]):
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER[0]))
        check_agreement(tokenizer, settings)
        token = {**(read_object(folder / TOKENIZER[2]) or {}), **settings}.get("pad_token")
        token = token.get("content") if isinstance(token, dict) else token
        padding = None if token is None else tokenizer.token_to_id(str(token))
        if padding is None:
            padding = (tokenizer.padding or {}).get("pad_id", pad_id)
    else:
        made = _make(folder)
        tokenizer, padding = made.backend_tokenizer, made.pad_token_id
        settings = {**settings, "truncation_side": made.truncation_side,
                    "model_max_length": made.model_max_length}  # fmt: skip
    if padding is None:
        raise ExportError(
            f"its tokenizer must have a padding token; set pad_token in {TOKENIZER[1]}"
        )
    ids = tokenizer.get_vocab(with_added_tokens=True)
    last = max(ids, key=ids.__getitem__)
    if ids[last] >= embeddings:
        raise ExportError(
            f"its tokenizer has the token {last!r} with id {ids[last]}, but the model has only "
            f"{embeddings} token embeddings, so they do not fit together"
        )
    truncation = tokenizer.truncation or {}
    side = settings.get("truncation_side") or truncation.get("direction", "right")
    longest = settings.get("model_max_length")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    limit = int(longest) if isinstance(longest, int | float) and longest > 0 else None
    return TextReader(tokenizer, int(padding), limit, str(side))


def _make(folder: Path) -> Any:  # noqa: ANN401  # of transformers, whose classes change
    """Make a tokenizer from a vocabulary."""
    files = [name for name in VOCABULARIES if (folder / name).is_file()]
    if not files:
        raise ExportError(
            f"has no tokenizer: neither {TOKENIZER[0]} nor a vocabulary; save the tokenizer "
            "there with transformers"
        )
    if files[0].endswith(".model") and find_spec("sentencepiece") is None:
        raise ExportError(
            f"its tokenizer exists only as {files[0]}, which sentencepiece reads; "
            f"{install_hint('export')}, or save the tokenizer as {TOKENIZER[0]}"
        )
    with reading_part("tokenizer"):
        made = AutoTokenizer.from_pretrained(
            folder, use_fast=True, local_files_only=True, trust_remote_code=False
        )
    if not made.is_fast:
        raise ExportError(
            f"its tokenizer, {type(made).__name__}, cannot be saved as tokenizer.json"
        )
    return made


def read_tokenizer(path: Path) -> tuple[Tokenizer, int]:
    """Read a tokenizer without padding, and return it with the id of its padding token."""
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # The library has no class for its errors.
        raise ExportError(f"{path}: cannot be read as a tokenizer: {first_line(error)}") from error
    padding = tokenizer.padding or {}
    ids = [tokenizer.token_to_id(token) for token in _PADDING]
    pad_id = padding.get("pad_id", next((id for id in ids if id is not None), 0))
    tokenizer.no_padding()
    return tokenizer, int(pad_id)


def token_ids(
    tokenizer: bytes, pad_id: int, texts: Sequence[str], max_length: int
) -> list[list[int]]:
    """Return the first ``max_length`` tokens of each text, or a padding token if it has none."""
    reader = Tokenizer.from_str(tokenizer.decode())
    reader.enable_truncation(max_length)
    return [encoding.ids or [pad_id] for encoding in reader.encode_batch(tokenizer_inputs(texts))]


def check_agreement(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    """Check that a tokenizer normalizes texts as the settings next to it say.

    ``transformers`` follows the settings, and other libraries follow the tokenizer.

    Raises:
        ExportError: The tokenizer and the settings differ.
    """
    normalizer = json.loads(tokenizer.to_str())["normalizer"] or {}
    for name, own in _NORMALIZED.items():
        if own in normalizer and settings.get(name, normalizer[own]) != normalizer[own]:
            raise ExportError(
                f"{TOKENIZER[1]} sets {name} to {settings[name]}, but the tokenizer next to it "
                f"sets {own} to {normalizer[own]}; save both again with transformers"
            )


def lower_case(tokenizer: Tokenizer) -> None:
    """Make a tokenizer read texts in lower case."""
    _normalize_first(tokenizer, normalizers.Lowercase())


def put_before(tokenizer: Tokenizer, prompt: str) -> None:
    """Make a tokenizer read a prompt before every text, as if both were one text.

    The prompt's tokens go into the template around a text. If a prompt's end and a text's beginning
    may share a token, as with byte-level tokenizers, the prompt becomes a normalizer. It is then
    also put after each special token inside a text, which texts hardly ever contain.

    Args:
        tokenizer: The tokenizer, which is changed in place.
        prompt: The prompt.
    """
    texts = parity_texts(None)
    expected = [encoding.ids for encoding in tokenizer.encode_batch([prompt + t for t in texts])]
    plain = tokenizer.encode(texts[0], add_special_tokens=False).ids
    both = tokenizer.encode(prompt + texts[0], add_special_tokens=False).ids
    processor = tokenizer.post_processor
    tokenizer.post_processor = _template(tokenizer, both[: len(both) - len(plain)])
    if [encoding.ids for encoding in tokenizer.encode_batch(texts)] == expected:
        return
    tokenizer.post_processor = processor
    for start in range(0, len(prompt), _PIECE):
        _normalize_first(tokenizer, normalizers.Prepend(prompt[start : start + _PIECE]))


def _template(tokenizer: Tokenizer, prompt: list[int]) -> TemplateProcessing:
    """Return the template of a tokenizer, with a prompt's tokens before a text."""
    parts = [prompt[start : start + _PIECE] for start in range(0, len(prompt), _PIECE)]
    names = {f"prompt{number}": ids for number, ids in enumerate(parts)}

    def pieces(encoding: Encoding) -> list[str]:
        found = []
        each = zip(encoding.sequence_ids, encoding.type_ids, encoding.ids, strict=True)
        for (sequence, kind), run in groupby(each, key=lambda part: part[:2]):
            if sequence is None:
                for *_, token in run:
                    names[str(token)] = [token]
                    found.append(f"{token}:{kind}")
                continue
            if sequence == 0:
                found += [f"{name}:{kind}" for name in names if name.startswith("prompt")]
            found.append(f"${'AB'[sequence]}:{kind}")
        return found

    single, pair = pieces(tokenizer.encode("a")), pieces(tokenizer.encode("a", "a"))
    tokens = [
        {"id": name, "ids": ids, "tokens": [tokenizer.id_to_token(token) for token in ids]}
        for name, ids in names.items()
    ]
    return TemplateProcessing(single=single, pair=pair, special_tokens=tokens)


def _normalize_first(tokenizer: Tokenizer, first: normalizers.Normalizer) -> None:
    rest = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([first, *rest])
