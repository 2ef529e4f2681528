"""The audit of a tokenizer: it decides from the JSON whether the tokenizer may be loaded.

The library that reads it builds any part that the JSON names. So every part must be one that
encoders have, with settings in bounds. A regular expression can take exponential time on some
texts. So it must be one of a known family, or of a release that the vendor signed.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fala.audit import limits
from fala.audit.graph import UnsoundError
from fala.audit.values import as_list, as_object, as_string, as_whole
from fala.base.errors import BundleFormatError, safe_line

_MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}
#: The parts of a tokenizer besides its model: the key of a sequence's parts, and their names.
_PARTS = {
    "normalizer": (
        "normalizers",
        "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace "
        "Sequence Strip StripAccents",
    ),
    "pre_tokenizer": (
        "pretokenizers",
        "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation Sequence Split "
        "UnicodeScripts Whitespace WhitespaceSplit",
    ),
    "post_processor": (
        "processors",
        "BertProcessing ByteLevel RobertaProcessing Sequence TemplateProcessing",
    ),
    "decoder": (
        "decoders",
        "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Sequence Strip WordPiece",
    ),
}
_MOST_IDS = 1 << 24

#: The regular expressions that any release may have: those of known families, compared as texts.
#: For others it is hard to decide whether some text takes exponential time. They are in the syntax
#: of Oniguruma, as in the families' ``tokenizer.json``.
PATTERNS = frozenset(
    {
        # SentencePiece (T5, XLM-R, ALBERT, DeBERTa 3).
        " {2,}",
        r"\A▁",
        # CLIP.
        r"\s+",
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        # GPT-2 and RoBERTa, if they do not use ByteLevel's own.
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # GPT-4 (cl100k), Llama 3.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        # Qwen 2 and 3.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        # Qwen 3.5.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        # GPT-4o (o200k), Llama 4: words, acronyms, and so on.
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        # Mistral's Tekken.
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        # DeepSeek 3, one after another.
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
        # DeepSeek Coder, one after another.
        "[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        # BLOOM.
        " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    }
)


def audit_tokenizer(data: bytes, pad_id: int, *, signed: bool) -> None:
    """Check every part of a tokenizer.

    Args:
        data: Its JSON.
        pad_id: The padding token's id.
        signed: Whether its release is signed by the key that the device trusts, so that it may
            have a regular expression of no known family. A child process tries it under its limit
            of time.

    Raises:
        BundleFormatError: The file is not a tokenizer, or a part is not permitted or out of bounds.
    """
    try:
        if len(data) > limits.TOKENIZER_BYTES:
            raise UnsoundError(f"it has more than {limits.TOKENIZER_BYTES} bytes")
        if sum(data.count(mark) for mark in (b"[", b"{", b",")) > limits.VALUES:
            raise UnsoundError(f"it has more than {limits.VALUES} values")
        tokenizer = json.loads(data.decode(), object_pairs_hook=distinct_keys)
        if not isinstance(tokenizer, dict):
            raise UnsoundError("it is not a JSON object")
        highest = max(_highest_id(tokenizer, signed=signed), pad_id)
        if highest >= _MOST_IDS:
            token = "the padding token" if highest == pad_id else "a token"
            raise UnsoundError(
                f"{token} has the id {highest}, which is beyond every embedding table"
            )
    except RecursionError as error:
        raise BundleFormatError(
            "the tokenizer cannot be loaded: it is nested too deeply"
        ) from error
    except ValueError as error:
        raise BundleFormatError(f"the tokenizer cannot be loaded: {safe_line(error)}") from error


def unknown_patterns(data: bytes) -> list[str]:
    """Return the regular expressions of an audited tokenizer that no known family has.

    Args:
        data: The tokenizer's JSON.
    """
    parts = [part for part in _parts(json.loads(data)) if part["type"] in ("Replace", "Split")]
    expressions = [part["pattern"]["Regex"] for part in parts if "Regex" in part["pattern"]]
    return [expression for expression in expressions if expression not in PATTERNS]


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object from its keys and values.

    Raises:
        UnsoundError: A key appears twice, and readers differ in which value they use.
    """
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise UnsoundError("a key appears twice in one object")
    return parsed


def _highest_id(tokenizer: Mapping[str, Any], *, signed: bool) -> int:
    """Check all parts, and return the highest id of a token."""
    last = _model(as_object(tokenizer.get("model"), "model"))
    added = _added(tokenizer.get("added_tokens") or [])
    parts = list(islice(_parts(tokenizer), limits.PARTS + 1))
    if len(parts) > limits.PARTS:
        raise UnsoundError(f"it has more than {limits.PARTS} parts")
    if math.prod(_growth(part, signed=signed) for part in parts) > limits.GROWTH:
        raise UnsoundError(f"replacements make a text more than {limits.GROWTH} times longer")
    # The library numbers tokens outside the vocabulary after it.
    last_added = last + sum(1 for token in added if token > last)
    # In a processor all numbers are ids, or smaller than those.
    return max(last, last_added, *added, *_numbers(tokenizer.get("post_processor")))


def _parts(tokenizer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the parts besides the model, including those in sequences."""
    pending = [(kind, tokenizer[kind], 0) for kind in _PARTS if tokenizer.get(kind) is not None]
    while pending:
        kind, part, depth = pending.pop()
        entry, (key, names) = as_object(part, kind), _PARTS[kind]
        name = entry.get("type")
        if not isinstance(name, str) or name not in names.split():
            raise UnsoundError(f"the {kind} {name!r:.40} is not supported")
        if depth > limits.SEQUENCES:
            raise UnsoundError("its parts are nested too deeply")
        yield entry
        if name == "Sequence":
            inner = as_list(entry.get(key), f"a sequence of no {kind}", limits.PARTS)
            pending += [(kind, each, depth + 1) for each in inner]


def _growth(part: Mapping[str, Any], *, signed: bool) -> int:
    """Check a part, and return the factor by which its replacements may lengthen a text."""
    name = part["type"]
    if name == "Replace":
        shortest = _shortest_match(part.get("pattern"), signed=signed)
        content = as_string(part.get("content"), "a replacement", 0, limits.TEXT)
        return max(1, -(-len(content) // shortest))
    if name == "Split":
        _shortest_match(part.get("pattern"), signed=signed)
    elif name == "Prepend":
        as_string(part.get("prepend"), "a prefix", 1, limits.TEXT)
    elif name == "Precompiled":
        check_charsmap(part.get("precompiled_charsmap"))
    elif name == "TemplateProcessing":
        _check_template(part)
    return 1


def _shortest_match(pattern: object, *, signed: bool) -> int:
    """Check a pattern, and return the least number of characters of a match."""
    entry = as_object(pattern, "pattern")
    if "Regex" not in entry:
        return len(as_string(entry.get("String"), "a pattern", 1, limits.PATTERN))
    expression = as_string(entry["Regex"], "a regular expression", 1, limits.PATTERN)
    if expression not in PATTERNS and not signed:
        raise UnsoundError(
            f"the regular expression {safe_line(expression, 60)!r} is of no known tokenizer "
            "family; only a release that is signed by the key that the device trusts (trust=) "
            "may have it"
        )
    return 1


def _model(model: Mapping[str, Any]) -> int:
    """Check a tokenizer's model, and return its largest id."""
    name, vocabulary = model.get("type"), model.get("vocab")
    if not isinstance(name, str) or name not in _MODELS:
        raise UnsoundError(
            f"the model {name!r:.40} is not supported; supported: {', '.join(sorted(_MODELS))}"
        )
    if model.get("dropout"):
        raise UnsoundError("its tokens are random")
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) is not None:
            as_string(model[key], key, 0, limits.TEXT)
    if name == "Unigram" and isinstance(vocabulary, list) and vocabulary:
        return _unigram(model, vocabulary)
    if name == "Unigram" or not isinstance(vocabulary, dict) or not vocabulary:
        raise UnsoundError("its vocabulary is empty or missing")
    ids: list[int] = [*vocabulary.values()]
    if not all(type(each) is int and 0 <= each < _MOST_IDS for each in ids):
        raise UnsoundError("its vocabulary has ids out of range")
    if len(max(vocabulary, key=len)) > limits.TOKEN:
        raise UnsoundError(f"a token has more than {limits.TOKEN} characters")
    if name == "BPE":
        as_list(model.get("merges"), "it has no list of merges", _MOST_IDS)
    elif model.get("unk_token") not in vocabulary:
        raise UnsoundError("its token for unknown words is not in its vocabulary")
    if name == "WordPiece" and "max_input_chars_per_word" in model:
        as_whole(model["max_input_chars_per_word"], "max_input_chars_per_word", 1, limits.WORD)
    return max(ids)


def _unigram(model: Mapping[str, Any], vocabulary: list[Any]) -> int:
    if not all(
        isinstance(piece, list) and len(piece) == 2 and isinstance(piece[0], str)
        and isinstance(piece[1], int | float) and -1e30 < piece[1] < 1e30
        for piece in vocabulary
    ):  # fmt: skip
        raise UnsoundError("its vocabulary is not a list of pieces with scores")
    if max(len(piece[0]) for piece in vocabulary) > limits.TOKEN:
        raise UnsoundError(f"a token has more than {limits.TOKEN} characters")
    as_whole(model.get("unk_id"), "the id of the unknown token", 0, len(vocabulary))
    return len(vocabulary) - 1


def _added(tokens: object) -> list[int]:
    """Check the tokens outside the vocabulary, and return their ids."""
    ids = []
    for token in as_list(tokens, "too many added tokens, or no list of them", limits.ADDED):
        entry = as_object(token, "added token")
        content = entry.get("content")
        if not isinstance(content, str) or not 0 < len(content) <= limits.CONTENT:
            raise UnsoundError("an added token is empty or too long")
        ids.append(as_whole(entry.get("id"), "the id of an added token", 0, _MOST_IDS))
    return ids


def _check_template(entry: Mapping[str, Any]) -> None:
    for key, fewest, most in (("single", 1, 1), ("pair", 0, 2)):
        fault = "a template is not a list, or is too long"
        pieces = as_list(entry.get(key) or [], fault, limits.TEMPLATE)
        texts = sum(isinstance(piece, dict) and "Sequence" in piece for piece in pieces)
        if not fewest <= texts <= most:
            raise UnsoundError(f"a template contains {texts} texts")
    tokens = as_object(entry.get("special_tokens") or {}, "special tokens")
    for token in as_list([*tokens.values()], "too many special tokens", limits.TEMPLATE):
        ids = as_object(token, "special token").get("ids")
        as_list(ids, "a special token without ids, or with too many", limits.TEMPLATE)


def _numbers(value: object) -> Iterator[int]:
    """Yield all whole numbers in a JSON value."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def check_charsmap(encoded: object) -> None:
    """Check SentencePiece's table of normal forms: a trie of characters, then the forms.

    The library that reads it trusts the length of the trie. A form ends with a zero.

    Args:
        encoded: The table in base 64.

    Raises:
        UnsoundError: The trie is longer than the table, or a form is too long.
    """
    try:
        data = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except binascii.Error as error:
        raise UnsoundError("its table of normal forms is not in base 64") from error
    length = int.from_bytes(data[:4], "little")
    if length % 4 or not 4 <= length <= min(len(data) - 4, 4 * limits.UNITS):
        raise UnsoundError(
            f"a table of normal forms of {len(data)} bytes that claims {length} for its trie"
        )
    if re.search(rb"[^\0]{%d}" % (limits.SEGMENT + 1), data[4 + length :]):
        raise UnsoundError("its table of normal forms maps a whole text")
