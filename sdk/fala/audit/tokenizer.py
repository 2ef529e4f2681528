"""Whether a tokenizer may be loaded, told from its JSON.

The library that reads it builds whatever it says. So every part must be one that encoders have,
with settings in bounds, and every id must be in the model's table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fala.audit.charsmap import check_charsmap
from fala.audit.graph import UnsoundError
from fala.audit.limits import TOKENIZER
from fala.audit.patterns import check_pattern
from fala.errors import BundleFormatError, safe_line

_NORMALIZERS = {
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled",
    "Prepend", "Replace", "Sequence", "Strip", "StripAccents",
}  # fmt: skip
_PRE_TOKENIZERS = {
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation",
    "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
}  # fmt: skip
_PROCESSORS = {
    "BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing",
}  # fmt: skip
_DECODERS = {
    "BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence",
    "Strip", "WordPiece",
}  # fmt: skip
_MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}
_MOST_IDS = 1 << 24


def audit_tokenizer(data: bytes, rows: int | None, pad_id: int) -> None:
    """Look at every part of a tokenizer.

    Args:
        data: Its JSON.
        rows: Rows of the model's table of tokens; None where that is not known.
        pad_id: The padding token's id.

    Raises:
        BundleFormatError: It is no tokenizer, a part is none of an encoder's or out of bounds, or
            an id is not in the table.
    """
    try:
        if len(data) > TOKENIZER.bytes:
            raise UnsoundError(f"it has more than {TOKENIZER.bytes} bytes")
        try:
            tokenizer = json.loads(data.decode(), object_pairs_hook=_distinct)
        except RecursionError as error:
            raise UnsoundError("it is nested too deeply") from error
        if not isinstance(tokenizer, dict):
            raise UnsoundError("it is not a JSON object")
        _Audit().check(tokenizer, rows, pad_id)
    except ValueError as error:
        raise BundleFormatError(f"the tokenizer cannot be loaded: {safe_line(error)}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Readers differ in which of two they take.
        raise UnsoundError("a key appears twice in one object")
    return found


class _Audit:
    """One tokenizer under way."""

    def __init__(self) -> None:
        self._parts = 0
        self._growth = 1

    def check(self, tokenizer: Mapping[str, Any], rows: int | None, pad_id: int) -> None:
        ids = _model(_object(tokenizer.get("model"), "model"))
        ids += self._added(tokenizer.get("added_tokens") or [], ids)
        for kind, names in (
            ("normalizer", _NORMALIZERS), ("pre_tokenizer", _PRE_TOKENIZERS),
            ("post_processor", _PROCESSORS), ("decoder", _DECODERS),
        ):  # fmt: skip
            part = tokenizer.get(kind)
            if part is not None:
                ids += self._part(part, kind, names, 0)
        highest = max(max(ids), pad_id)
        if rows is not None and highest >= rows:
            what = "the padding token" if highest == pad_id else "a token"
            raise UnsoundError(f"{what} has the id {highest}; the model's table has {rows} rows")
        if highest >= _MOST_IDS:
            raise UnsoundError(f"a token has the id {highest}")

    def _added(self, added: object, known: list[int]) -> list[int]:
        if not isinstance(added, list) or len(added) > TOKENIZER.added:
            raise UnsoundError(f"more than {TOKENIZER.added} added tokens, or no list of them")
        ids = []
        for token in added:
            entry = _object(token, "added token")
            content = entry.get("content")
            if not isinstance(content, str) or not 0 < len(content) <= TOKENIZER.content:
                raise UnsoundError("an added token is empty or too long")
            ids.append(_whole(entry.get("id"), "the id of an added token", 0, _MOST_IDS))
        # The library numbers those that it does not know behind the vocabulary.
        last = max(known)
        return [*ids, last + sum(1 for one in ids if one > last)]

    def _part(self, part: object, kind: str, names: set[str], depth: int) -> list[int]:
        entry, ids = _object(part, kind), []
        name = entry.get("type")
        if not isinstance(name, str) or name not in names:
            raise UnsoundError(f"the {kind} {name!r:.40} is none that encoders have")
        self._parts += 1
        if self._parts > TOKENIZER.parts or depth > TOKENIZER.depth:
            raise UnsoundError(f"more than {TOKENIZER.parts} parts, or nested too deeply")
        if name == "Sequence":
            inside = next(
                (entry[key] for key in ("normalizers", "pretokenizers", "processors", "decoders")
                 if key in entry), None,
            )  # fmt: skip
            if not isinstance(inside, list):
                raise UnsoundError(f"a sequence of no {kind}")
            return [one for each in inside for one in self._part(each, kind, names, depth + 1)]
        if kind == "decoder":
            _decoder(entry)
        elif name == "Replace":
            self._replace(entry)
        elif name == "Prepend":
            _text(entry.get("prepend"), "what is put before a text", 1, TOKENIZER.text)
        elif name == "Precompiled":
            check_charsmap(entry.get("precompiled_charsmap"))
        elif name == "Split":
            _matcher(entry.get("pattern"))
        elif name in ("BertProcessing", "RobertaProcessing"):
            ids = [_pair(entry.get(key)) for key in ("sep", "cls")]
        elif name == "TemplateProcessing":
            ids = _template(entry)
        return ids

    def _replace(self, entry: Mapping[str, Any]) -> None:
        shortest = _matcher(entry.get("pattern"))
        content = _text(entry.get("content"), "a replacement", 0, TOKENIZER.text)
        self._growth *= max(1, -(-len(content) // shortest))
        if self._growth > TOKENIZER.growth:
            raise UnsoundError(
                f"replacements make a text more than {TOKENIZER.growth} times longer"
            )


def _model(model: Mapping[str, Any]) -> list[int]:
    """Check a tokenizer's model; its largest id, in a list."""
    name, vocabulary = model.get("type"), model.get("vocab")
    if not isinstance(name, str) or name not in _MODELS:
        raise UnsoundError(f"the model {name!r:.40} is none that encoders have")
    if model.get("dropout"):
        raise UnsoundError("it gives a text other tokens every time")
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) is not None:
            _text(model[key], key, 0, TOKENIZER.text)
    if name == "Unigram" and isinstance(vocabulary, list) and vocabulary:
        return _unigram(model, vocabulary)
    if name == "Unigram" or not isinstance(vocabulary, dict) or not vocabulary:
        raise UnsoundError("its vocabulary is empty, or none")
    ids = vocabulary.values()
    if not all(type(one) is int and 0 <= one < _MOST_IDS for one in ids):
        raise UnsoundError("its vocabulary has ids that are none")
    if len(max(vocabulary, key=len)) > TOKENIZER.token:
        raise UnsoundError(f"a token has more than {TOKENIZER.token} characters")
    if name == "BPE":
        if not isinstance(model.get("merges"), list) or len(model["merges"]) > _MOST_IDS:
            raise UnsoundError("it has no list of merges")
    elif model.get("unk_token") not in vocabulary:
        raise UnsoundError("its token for unknown words is not in its vocabulary")
    if name == "WordPiece" and "max_input_chars_per_word" in model:
        _whole(model["max_input_chars_per_word"], "max_input_chars_per_word", 1, TOKENIZER.word)
    return [max(ids)]


def _unigram(model: Mapping[str, Any], vocabulary: list[Any]) -> list[int]:
    if not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str)
        and isinstance(one[1], int | float) and -1e30 < one[1] < 1e30
        for one in vocabulary
    ):  # fmt: skip
        raise UnsoundError("its vocabulary is no list of pieces with scores")
    if max(len(one[0]) for one in vocabulary) > TOKENIZER.token:
        raise UnsoundError(f"a token has more than {TOKENIZER.token} characters")
    _whole(model.get("unk_id"), "the id of what is unknown", 0, len(vocabulary))
    return [len(vocabulary) - 1]


def _decoder(entry: Mapping[str, Any]) -> None:
    # It never runs; it must only be read.
    if entry.get("type") == "Replace":
        _matcher(entry.get("pattern"))
    for value in entry.values():
        if isinstance(value, str) and len(value) > TOKENIZER.pattern:
            raise UnsoundError("a decoder with a long text")


def _template(entry: Mapping[str, Any]) -> list[int]:
    single, listed = entry.get("single"), entry.get("special_tokens")
    pair = entry.get("pair") or []
    for pieces in (single, pair):
        if not isinstance(pieces, list) or len(pieces) > TOKENIZER.template:
            raise UnsoundError("a template that is no list, or too long")
    texts = [piece for piece in single or [] if isinstance(piece, dict) and "Sequence" in piece]
    if len(texts) != 1:
        raise UnsoundError(f"a template with {len(texts)} places for a text")
    ids: list[int] = []
    tokens = _object(listed, "special tokens").values() if listed else []
    if len(tokens) > TOKENIZER.template:
        raise UnsoundError("a template with too many special tokens")
    for token in tokens:
        given = _object(token, "special token").get("ids")
        if not isinstance(given, list) or len(given) > TOKENIZER.template:
            raise UnsoundError("a special token without ids, or with too many")
        ids += [_whole(one, "the id of a special token", 0, _MOST_IDS) for one in given]
    return ids


def _matcher(pattern: object) -> int:
    """Check a pattern; the least number of characters that it is known to match."""
    entry = _object(pattern, "pattern")
    if "Regex" in entry:
        check_pattern(entry["Regex"])
        return 1
    return len(_text(entry.get("String"), "a pattern", 1, TOKENIZER.pattern))


def _pair(value: object) -> int:
    if not isinstance(value, list) or len(value) != 2:
        raise UnsoundError("a special token is a text with its id")
    return _whole(value[1], "the id of a special token", 0, _MOST_IDS)


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnsoundError(f"the {what} is not an object")
    return value


def _text(value: object, what: str, low: int, high: int) -> str:
    if not isinstance(value, str) or not low <= len(value) <= high:
        raise UnsoundError(f"{what} is not a text of {low} to {high} characters")
    return value


def _whole(value: object, what: str, low: int, end: int) -> int:
    if type(value) is not int or not low <= value < end:
        raise UnsoundError(f"{what} is not a whole number from {low} to {end - 1}")
    return value
