"""Whether a tokenizer may be loaded, decided from its JSON.

The library that reads it builds any part that the JSON names. So every part must be one that
encoders have, with settings in bounds. Every regular expression must be one of a known family,
since others can take exponential time on some texts. Every id must be in the model's table.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.audit.graph import UnsoundError
from fala.audit.limits import TOKENIZER
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
_LEAF = 1 << 31  # a bit of a unit of a trie
_CHUNK = 1 << 12  # nodes of a trie that are followed at once


def _any_of(*expressions: str) -> str:
    return "|".join(expressions)


_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_ENDINGS = f"(?i:{_ENDINGS})"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"  # a word
_UPPER = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"  # an acronym
)

#: The regular expressions that tokenizers may split and replace by: those of known families, to be
#: compared as texts. Whether another one takes exponential time on some text is hard to decide.
#: They are in the syntax of Oniguruma, as the families' ``tokenizer.json`` writes them.
PATTERNS = frozenset(
    {
        # SentencePiece (T5, XLM-R, ALBERT, DeBERTa 3).
        " {2,}",
        # CLIP.
        r"\s+",
        _any_of(_ENDINGS, r"[\p{L}]+", r"[\p{N}]", r"[^\s\p{L}\p{N}]+"),
        # GPT-2 and RoBERTa, where they do not leave it to ByteLevel.
        _any_of(
            _ENDINGS, r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"\s+(?!\S)", r"\s+"
        ),
        # GPT-4 (cl100k), Llama 3.
        _any_of(_ANY_CASE_ENDINGS, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, _SPACES),
        # Qwen 2 and 3.
        _any_of(_ANY_CASE_ENDINGS, _LETTERS, r"\p{N}", _SYMBOLS, _SPACES),
        # Qwen 3.5.
        _any_of(
            _ANY_CASE_ENDINGS, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES,
        ),
        # GPT-4o (o200k), Llama 4.
        _any_of(
            f"{_LOWER}{_ANY_CASE_ENDINGS}?", f"{_UPPER}{_ANY_CASE_ENDINGS}?", r"\p{N}{1,3}",
            _SYMBOLS_AND_SLASHES, _SPACES,
        ),
        # Mistral's Tekken.
        _any_of(_LOWER, _UPPER, r"\p{N}", _SYMBOLS_AND_SLASHES, _SPACES),
        # DeepSeek 3, one after another.
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _any_of(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+", " ?[\\p{P}\\p{S}]+[\r\n]*",
            "\\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
        ),
        # DeepSeek Coder, one after another.
        "[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        # BLOOM.
        " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    }
)  # fmt: skip


def audit_tokenizer(data: bytes, rows: int | None, pad_id: int) -> None:
    """Check every part of a tokenizer.

    Args:
        data: Its JSON.
        rows: Rows of the model's table of tokens; None where the audit of the model finds none.
        pad_id: The padding token's id.

    Raises:
        BundleFormatError: It is no tokenizer, a part is none of an encoder's or out of bounds, or
            an id is not in the table.
    """
    try:
        if len(data) > TOKENIZER.bytes:
            raise UnsoundError(f"it has more than {TOKENIZER.bytes} bytes")
        if sum(data.count(mark) for mark in (b"[", b"{", b",")) > TOKENIZER.values:
            raise UnsoundError(f"it has more than {TOKENIZER.values} values")
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
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        # Readers differ in which of two they take.
        raise UnsoundError("a key appears twice in one object")
    return parsed


class _Audit:
    """The audit of one tokenizer: counts its parts, and how much longer they make a text."""

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

    def _added(self, added: object, ids: list[int]) -> list[int]:
        if not isinstance(added, list) or len(added) > TOKENIZER.added:
            raise UnsoundError(f"more than {TOKENIZER.added} added tokens, or no list of them")
        added_ids = []
        for token in added:
            entry = _object(token, "added token")
            content = entry.get("content")
            if not isinstance(content, str) or not 0 < len(content) <= TOKENIZER.content:
                raise UnsoundError("an added token is empty or too long")
            added_ids.append(_whole(entry.get("id"), "the id of an added token", 0, _MOST_IDS))
        # The library numbers tokens outside the vocabulary behind it.
        last = max(ids)
        return [*added_ids, last + sum(1 for one in added_ids if one > last)]

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
            _text(entry.get("prepend"), "a prefix", 1, TOKENIZER.text)
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
        raise UnsoundError("its tokens are random")
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) is not None:
            _text(model[key], key, 0, TOKENIZER.text)
    if name == "Unigram" and isinstance(vocabulary, list) and vocabulary:
        return _unigram(model, vocabulary)
    if name == "Unigram" or not isinstance(vocabulary, dict) or not vocabulary:
        raise UnsoundError("its vocabulary is empty, or none")
    ids = vocabulary.values()
    if not all(type(one) is int and 0 <= one < _MOST_IDS for one in ids):
        raise UnsoundError("its vocabulary has ids out of range")
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
    _whole(model.get("unk_id"), "the id of the unknown token", 0, len(vocabulary))
    return [len(vocabulary) - 1]


def _decoder(entry: Mapping[str, Any]) -> None:
    # No decoder runs; the library only reads it.
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
        raise UnsoundError(f"a template with {len(texts)} texts")
    ids: list[int] = []
    tokens = _object(listed, "special tokens").values() if listed else []
    if len(tokens) > TOKENIZER.template:
        raise UnsoundError("a template with too many special tokens")
    for token in tokens:
        listed_ids = _object(token, "special token").get("ids")
        if not isinstance(listed_ids, list) or len(listed_ids) > TOKENIZER.template:
            raise UnsoundError("a special token without ids, or with too many")
        ids += [_whole(one, "the id of a special token", 0, _MOST_IDS) for one in listed_ids]
    return ids


def _matcher(pattern: object) -> int:
    """Check a pattern; returns a lower bound of the characters of a match."""
    entry = _object(pattern, "pattern")
    if "Regex" in entry:
        expression = entry["Regex"]
        if not isinstance(expression, str) or expression not in PATTERNS:
            raise UnsoundError(
                f"the regular expression {safe_line(expression, 60)!r} is of no known tokenizer "
                "family; use one of fala.audit.tokenizer.PATTERNS, or a plain string"
            )
        return 1
    return len(_text(entry.get("String"), "a pattern", 1, TOKENIZER.pattern))


def _pair(value: object) -> int:
    """The id of a special token, which is listed behind its text."""
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


def check_charsmap(encoded: object) -> None:
    """Check SentencePiece's table of normal forms: a trie of characters, and a form for each leaf.

    The library that reads it believes every number in it: how long the trie is, where a step leads,
    where a form begins. So each is followed once before. The trie is a double array; its units'
    bits are those of Darts-clone.

    Args:
        encoded: The table in base 64.

    Raises:
        UnsoundError: A number in it leads out of it, or a character would become a long text.
    """
    try:
        data = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError) as error:
        raise UnsoundError("a table of normal forms that is not in base 64") from error
    length = int.from_bytes(data[:4], "little")
    if len(data) < 8 or length % 4 or not 4 <= length <= min(len(data) - 4, 4 * TOKENIZER.units):
        raise UnsoundError(
            f"a table of normal forms of {len(data)} bytes that claims {length} for its trie"
        )
    starts = _leaves(np.frombuffer(data, "<u4", length // 4, 4).astype(np.int64))
    forms = np.frombuffer(data, np.uint8, len(data) - 4 - length, 4 + length)
    try:
        forms.tobytes().decode()
    except UnicodeDecodeError as error:
        raise UnsoundError("a table of normal forms that are not UTF-8") from error
    if not len(starts):
        return
    if starts.max() >= max(len(forms), 1):
        raise UnsoundError("a table of normal forms with one outside it")
    if (forms[starts] & 0xC0 == 0x80).any():
        raise UnsoundError("a table of normal forms with one inside a character")
    ends = np.append(np.flatnonzero(forms == 0), len(forms))
    if (ends[np.searchsorted(ends, starts)] - starts).max() > TOKENIZER.segment:
        raise UnsoundError("a table of normal forms with one of a whole text")


def _leaves(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values at a trie's leaves: where forms begin.

    Raises:
        UnsoundError: A step leads out of the trie.
    """
    labels = np.arange(1, 256)
    pending = [_offsets(units[:1])]  # positions after one step; equal endings share theirs
    visited = np.zeros(len(units), dtype=bool)
    values = [np.zeros(0, np.int64)]
    while pending:
        nodes, rest = np.split(pending.pop(), [_CHUNK])
        if len(rest):
            pending.append(rest)
        # The library looks at every child, labelled or not.
        children = (nodes[:, None] ^ labels[None]).ravel()
        if max(nodes.max(), children.max()) >= len(units):
            raise UnsoundError("a table of normal forms with a step out of it")
        visited[nodes] = True
        taken = children[(units[children] & (_LEAF | 0xFF)) == np.tile(labels, len(nodes))]
        following = taken ^ _offsets(units[taken])
        if len(following) and following.max() >= len(units):
            raise UnsoundError("a table of normal forms with a step out of it")
        leaves = (units[taken] >> 8) & 1 == 1
        values.append(units[following[leaves]] & (_LEAF - 1))
        following = np.unique(following[~visited[following]])
        if len(following):
            visited[following] = True
            pending.append(following)
    return np.concatenate(values)


def _offsets(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & (1 << 9)) >> 6)
