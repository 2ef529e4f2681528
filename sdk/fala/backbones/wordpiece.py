"""WordPiece, the tokenizer of BERT, on the standard library alone.

Schuster and Nakajima, "Japanese and Korean voice search", ICASSP 2012; Devlin, Chang, Lee and
Toutanova, "BERT", NAACL 2019.

Each character is mapped independently: it is removed, becomes a space, stands apart (as a word of
its own), or is replaced. The release contains these tables of characters, as the vendor's
``tokenizers`` library filled them. So a text has the same tokens under every version of Python,
although Python's own tables of Unicode differ between its versions, and from that library's.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from fala.audit import limits
from fala.audit.graph import UnsoundError
from fala.audit.values import as_list, as_object, as_string, as_whole
from fala.base.errors import BundleFormatError

_TOKENIZER = {"unknown", "prefix", "longest_word", "normalized", "split", "added"}
_CHARACTERS = {"removed", "spaces", "apart", "images", "hangul"}
_ADDED = {"token", "id", "normalized"}
# What becomes of a character in a range.
_FORMS = {"removed": "", "spaces": " ", "apart": " {} "}
_HANGUL = range(0xAC00, 0xD7A4)
_CODES = 0x110000


class WordPiece:
    """Splits a text into the tokens of a vocabulary.

    Args:
        vocabulary: The token of each id; empty where an id has none, or one of ``added`` alone.
        settings: ``unknown``, the token of a word that has no others; ``prefix``, what stands
            before a token inside a word; ``longest_word``, characters of the longest word that is
            not unknown. ``normalized`` and ``split``, two tables of characters, of which the second
            reads what the first returns: each has ``removed``, ``spaces`` and ``apart``, lists of
            the first and the last code point of ranges, ``images``, the text that replaces a
            character, and ``hangul``, whether a syllable becomes its letters. ``added``, tokens
            that stand for themselves in a text: each has a ``token``, an ``id``, and
            ``normalized``, whether it is found after the first table.

    Raises:
        BundleFormatError: The settings are not of this form, or too large, or do not fit the
            vocabulary.
    """

    def __init__(self, vocabulary: Sequence[str], settings: object) -> None:
        try:
            self._read(vocabulary, settings)
        except UnsoundError as error:
            raise BundleFormatError(f"the tokenizer cannot be loaded: {error}") from error
        self._find_raw, self._find_late = _finder(self._raw), _finder(self._late)
        self._cache: dict[str, tuple[int, ...]] = {}

    def _read(self, vocabulary: Sequence[str], settings: object) -> None:
        entries = _entries(settings, _TOKENIZER, "tokenizer")
        prefix = as_string(entries["prefix"], "a prefix", 0, limits.TEXT)
        self._longest_word = as_whole(entries["longest_word"], "longest_word", 1, limits.WORD + 1)
        self._first = {token: id for id, token in enumerate(vocabulary) if token}
        if len(self._first) != len(vocabulary) - vocabulary.count(""):
            raise UnsoundError("a token is in the vocabulary twice")
        self._longest_token = max(map(len, vocabulary), default=0)
        if self._longest_token > limits.TOKEN:
            raise UnsoundError(f"a token has more than {limits.TOKEN} characters")
        unknown = as_string(entries["unknown"], "unknown", 1, limits.TOKEN)
        if unknown not in self._first:
            raise UnsoundError("the token of unknown words is not in the vocabulary")
        self.unknown = self._first[unknown]
        self._inner = {
            token[len(prefix) :]: id
            for token, id in self._first.items() if token.startswith(prefix)
        }  # fmt: skip
        self._normalized = _Characters(entries["normalized"])
        self._split = _Characters(entries["split"])
        self._raw, self._late = _added(entries["added"], len(vocabulary))

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, as ``tokenizers`` does without special tokens."""
        ids: list[int] = []
        for position, part in enumerate(self._find_raw.split(text)):
            if position % 2:  # the splits of a pattern in brackets: a text, a match, a text
                ids.append(self._raw[part])
            elif part:
                self._add_part(part, ids)
        return ids

    def _add_part(self, part: str, ids: list[int]) -> None:
        """Add the ids of a text without the tokens that are found before the normalization."""
        for position, piece in enumerate(self._find_late.split(part.translate(self._normalized))):
            if position % 2:
                ids.append(self._late[piece])
                continue
            for word in piece.translate(self._split).split(" "):
                if word:
                    ids += self._cache.get(word) or self._word_ids(word)

    def _word_ids(self, word: str) -> tuple[int, ...]:
        """Return the ids of a word's tokens, each the longest one from the left."""
        if len(word) > self._longest_word:
            return (self.unknown,)
        ids: list[int] = []
        start, tokens = 0, self._first
        while start < len(word):
            for end in range(min(len(word), start + self._longest_token), start, -1):
                if (id := tokens.get(word[start:end])) is not None:
                    break
            else:
                break
            ids.append(id)
            start, tokens = end, self._inner
        found = tuple(ids) if start == len(word) else (self.unknown,)
        if len(self._cache) >= limits.WORDS:
            self._cache.clear()
        self._cache[word] = found
        return found

    def drop_words(self) -> None:
        """Forget the words of earlier texts, which are the user's, who may delete the texts."""
        self._cache.clear()


class _Characters(dict[int, str]):
    """The images of characters, by code point, for ``str.translate``; see ``WordPiece``."""

    def __init__(self, table: object) -> None:
        entries = _entries(table, _CHARACTERS, "table of characters")
        images = as_object(entries["images"], "object of images")
        if len(images) > limits.IMAGES:
            raise UnsoundError(f"there are more than {limits.IMAGES} images")
        super().__init__({
            ord(as_string(character, "a character", 1, 1)): as_string(
                image, "an image", 0, limits.IMAGE
            )
            for character, image in images.items()
        })  # fmt: skip
        if not isinstance(entries["hangul"], bool):
            raise UnsoundError("hangul must be true or false")
        self._letters = entries["hangul"]
        fault = f"the ranges of characters are not a list of at most {limits.RANGES}"
        self._ranges = sorted(
            (*_range(each), form)
            for kind, form in _FORMS.items()
            for each in as_list(entries[kind], fault, limits.RANGES)
        )
        self._starts = [first for first, _, _ in self._ranges]

    def __missing__(self, code: int) -> str:
        """Return the image of a character that no earlier text contained."""
        image = chr(code)
        position = bisect_right(self._starts, code) - 1
        if position >= 0 and code <= self._ranges[position][1]:
            image = self._ranges[position][2].format(image)
        elif self._letters and code in _HANGUL:
            # The same under every version: it is an arithmetic of the standard.
            image = unicodedata.normalize("NFD", image)
        if len(self) < limits.CHARACTERS:
            self[code] = image
        return image


def _added(tokens: object, count: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ids of added tokens that are found before the normalization, and after it."""
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    fault = f"the added tokens are not a list of at most {limits.STATIC_ADDED}"
    for each in as_list(tokens, fault, limits.STATIC_ADDED):
        entry = _entries(each, _ADDED, "added token")
        token = as_string(entry["token"], "an added token", 1, limits.STATIC_CONTENT)
        late = entry["normalized"]
        if not isinstance(late, bool) or token in found[late]:
            raise UnsoundError(
                "an added token is listed twice, or its normalized is not true or false"
            )
        found[late][token] = as_whole(entry["id"], "the id of an added token", 0, count)
    return found


def _finder(tokens: Mapping[str, int]) -> re.Pattern[str]:
    """Return a pattern that finds the longest of some tokens, from the left."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def _entries(value: object, keys: set[str], title: str) -> Mapping[str, object]:
    entries = as_object(value, title)
    if set(entries) != keys:
        raise UnsoundError(f"the {title} has other parts than {', '.join(sorted(keys))}")
    return entries


def _range(value: object) -> tuple[int, int]:
    bounds = as_list(value, "a range of characters must have a first and a last one", 2)
    if len(bounds) != 2:
        raise UnsoundError("a range of characters must have a first and a last one")
    first = as_whole(bounds[0], "a code point", 0, _CODES)
    return first, as_whole(bounds[1], "the last code point of a range", first, _CODES)
