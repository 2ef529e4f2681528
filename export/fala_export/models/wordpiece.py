"""Convert a model's WordPiece tokenizer to the form that a device reads without any library.

See ``fala.backbones.wordpiece``. The tables of characters record what the ``tokenizers`` library
does with every character, one by one, so that they contain its own version of Unicode.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

from fala.backbones.wordpiece import WordPiece
from fala.base.errors import BundleFormatError
from fala_export.graph.sentences import parity_texts

Tokens = tuple[list[str], dict[str, Any]]
"""The vocabulary and the settings of a ``WordPiece``."""

_NORMALIZERS = {"BertNormalizer", "Lowercase", "NFD", "StripAccents"}
_SPLITTER = "BertPreTokenizer"
_BARE = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
_MARK = "|"  # No character becomes this one, alone or as a part of a longer text.
_TOGETHER = 1_024  # Number of characters in one call of the library.
# The characters of all scripts, signs and tags. Other planes have no characters, except two with
# private characters, of which some are checked.
_CODES = [
    code for code in (*range(0x40000), *range(0xE0000, 0xE1000)) if not 0xD800 <= code < 0xE000
]
_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_FORMS = {"": "removed", " ": "spaces"}
_HANGUL = range(0xAC00, 0xD7A4)


class NotPlainError(ValueError):
    """The tokenizer is not supported by ``WordPiece``; the message is the reason."""


def plain_wordpiece(tokenizer: Tokenizer) -> Tokens:
    """Convert a tokenizer to the form that a device reads.

    Args:
        tokenizer: A tokenizer without truncation, padding and post-processor, which are not
            converted.

    Raises:
        NotPlainError: The tokenizer is of another kind, or has a part that ``WordPiece`` lacks.
    """
    state = json.loads(tokenizer.to_str())
    model = state["model"]
    if model["type"] != "WordPiece":
        raise NotPlainError(f"its tokenizer is {model['type']}, not WordPiece")
    kinds = set(_kinds(state["normalizer"]))
    if not kinds <= _NORMALIZERS or set(_kinds(state["pre_tokenizer"])) != {_SPLITTER}:
        raise NotPlainError("its tokenizer normalizes or splits texts differently from BERT's")
    normalize = _normalize(tokenizer)
    vocabulary = _vocabulary(tokenizer, model["vocab"])
    _check_marks("".join(model["vocab"]), normalize)
    added = _added(state["added_tokens"], normalize)
    bare = {**state, "model": _BARE, "added_tokens": []}
    normalized, split = _tables(json.dumps(bare))
    settings = {
        "unknown": model["unk_token"],
        "prefix": model["continuing_subword_prefix"],
        "longest_word": model["max_input_chars_per_word"],
        "normalized": normalized,
        "split": split,
        "added": added,
    }
    try:
        plain = WordPiece(vocabulary, settings)
    except BundleFormatError as error:
        raise NotPlainError(
            f"its tokenizer cannot run on a device without a library: {error}"
        ) from error
    texts = [*parity_texts(None), *model["vocab"]]
    library = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    if [plain.ids(text) for text in texts] != [encoding.ids for encoding in library]:
        raise NotPlainError(
            "its tokenizer gives other tokens on a device than in the tokenizers library"
        )
    return vocabulary, settings


def _normalize(tokenizer: Tokenizer) -> Callable[[str], str]:
    normalizer = tokenizer.normalizer
    return (lambda text: text) if normalizer is None else normalizer.normalize_str


@cache
def _tables(state: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables of characters of a tokenizer without its vocabulary.

    Most models have the same tables, so they are cached.
    """
    tokenizer = Tokenizer.from_str(state)
    return _normalized(_normalize(tokenizer)), _split(tokenizer.pre_tokenizer)


def _kinds(part: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the types of a tokenizer's part and of the parts in a sequence."""
    if part is None:
        return
    inner = part.get("normalizers", part.get("pretokenizers"))
    if part["type"] != "Sequence" or inner is None:
        yield str(part["type"])
        return
    for each in inner:
        yield from _kinds(each)


def _vocabulary(tokenizer: Tokenizer, own: Mapping[str, int]) -> list[str]:
    """Return the token of each id.

    A token is empty if it is only an added token or contains a line break.
    """
    last = max(tokenizer.get_vocab(with_added_tokens=True).values())
    tokens = [""] * (last + 1)
    for token, id in own.items():
        tokens[id] = "" if "\n" in token else token  # No word has a line break.
    return tokens


def _check_marks(vocabulary: str, normalize: Callable[[str], str]) -> None:
    """Check that combining marks of the vocabulary do not change their order next to one another.

    A word with any other mark is unknown in any order.
    """
    marks = sorted({mark for mark in vocabulary if unicodedata.combining(mark)})
    for one, other in permutations(marks, 2):
        if normalize(f"a{one}{other}") != normalize(f"a{one}") + normalize(other):
            raise NotPlainError("its tokenizer changes the order of marks above and below a letter")


def _added(tokens: Sequence[Mapping[str, Any]], normalize: Callable[[str], str]) -> list[Any]:
    """Return the added tokens as a device looks for them.

    White space next to them has no token, so it makes no difference whether they include it.
    """
    found = []
    for entry in tokens:
        late = bool(entry["normalized"])
        token = normalize(entry["content"]) if late else entry["content"]
        if entry["single_word"] or token != token.strip():
            raise NotPlainError(
                "it has added tokens that match only whole words, or end with white space"
            )
        found.append({"token": token, "id": entry["id"], "normalized": late})
    return found


def _normalized(normalize: Callable[[str], str]) -> dict[str, Any]:
    """Return what the normalizer makes of each character."""
    images: dict[int, str] = {}
    others = [code for code in _CODES if code != ord(_MARK)]
    for start in range(0, len(others), _TOGETHER):
        codes = others[start : start + _TOGETHER]
        parts = normalize(_MARK.join(map(chr, codes))).split(_MARK)
        if len(parts) != len(codes):
            raise NotPlainError("its tokenizer does not map each character independently")
        images |= {code: part for code, part in zip(codes, parts, strict=True) if part != chr(code)}
    table = _table(images)
    for plane in _PRIVATE:
        if {normalize(chr(code)) for code in (*plane[:: 1 << 12], plane[-1])} == {""}:
            table["removed"].append([plane[0], plane[-1]])
    return table


def _split(splitter: PreTokenizer) -> dict[str, Any]:
    """Return how each character is split; characters beyond scripts and signs are not split."""
    codes = [code for code in _CODES if code < 0x20000]
    pieces = splitter.pre_tokenize_str("".join(f"a{chr(code)}" for code in codes))
    images = dict.fromkeys(codes, " ")
    for piece, (start, end) in pieces:
        for at in range(start | 1, end, 2):  # The characters themselves are at odd positions.
            images[codes[at // 2]] = f" {piece} " if len(piece) == 1 else ""
    return _table({code: image for code, image in images.items() if image})


def _table(images: Mapping[int, str]) -> dict[str, Any]:
    """Return a table of a ``WordPiece`` from the images of the characters that change."""
    letters = all(images.get(code) == unicodedata.normalize("NFD", chr(code)) for code in _HANGUL)
    kinds: dict[str, list[int]] = {"removed": [], "spaces": [], "apart": []}
    single: dict[str, str] = {}
    for code, image in images.items():
        if image in _FORMS:
            kinds[_FORMS[image]].append(code)
        elif image == f" {chr(code)} ":
            kinds["apart"].append(code)
        elif not (letters and code in _HANGUL):
            single[chr(code)] = image
    ranges = {kind: _ranges(codes) for kind, codes in kinds.items()}
    return {**ranges, "images": single, "hangul": letters}


def _ranges(codes: Iterable[int]) -> list[list[int]]:
    """Return the first and the last number of each run of increasing numbers."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found
