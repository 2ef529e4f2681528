"""WordPiece, the tokenizer of BERT, with the standard library alone.

Schuster and Nakajima, "Japanese and Korean voice search", ICASSP 2012; Devlin, Chang, Lee and
Toutanova, "BERT", NAACL 2019.

What becomes of a character depends on the character alone: it is removed, a space, apart (a word of
its own), or replaced. These tables of characters come with the release, as the vendor's
``tokenizers`` library filled them. So a text has the same tokens as there, under every version of
Python; Python's own tables of Unicode differ between its versions, and from that library's.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from fala.audit.limits import WORDPIECE
from fala.errors import BundleFormatError

_TOKENIZER = {"unknown", "prefix", "longest_word", "normalized", "split", "added"}
_CHARACTERS = {"removed", "spaces", "apart", "images", "hangul"}
_ADDED = {"token", "id", "normalized"}
# What becomes of a character in a range.
_FORMS = {"removed": "", "spaces": " ", "apart": " {} "}
_HANGUL = range(0xAC00, 0xD7A4)
_CODES = range(0x110000)


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
        entries = _object(settings, _TOKENIZER, "the tokenizer")
        unknown, self._prefix = entries["unknown"], entries["prefix"]
        if not isinstance(self._prefix, str) or len(self._prefix) > WORDPIECE.prefix:
            raise BundleFormatError(f"a prefix is a text of up to {WORDPIECE.prefix} characters")
        self._longest_word = _whole(
            entries["longest_word"], range(1, WORDPIECE.word + 1), "longest_word"
        )
        self._first = {token: id for id, token in enumerate(vocabulary) if token}
        if len(self._first) != len(vocabulary) - vocabulary.count(""):
            raise BundleFormatError("a token stands twice in the vocabulary")
        self._longest_token = max(map(len, vocabulary), default=0)
        if self._longest_token > WORDPIECE.token:
            raise BundleFormatError(f"a token has more than {WORDPIECE.token} characters")
        if not isinstance(unknown, str) or unknown not in self._first:
            raise BundleFormatError("the token of unknown words is not in the vocabulary")
        self.unknown = self._first[unknown]
        length = len(self._prefix)
        self._inner = {
            token[length:]: id
            for token, id in self._first.items() if token.startswith(self._prefix)
        }  # fmt: skip
        self._normalized = _Characters(entries["normalized"])
        self._split = _Characters(entries["split"])
        self._raw, self._late = _added(entries["added"], len(vocabulary))
        self._find_raw, self._find_late = _finder(self._raw), _finder(self._late)
        self._cache: dict[str, tuple[int, ...]] = {}

    def ids(self, text: str) -> list[int]:
        """The ids of a text's tokens, as ``tokenizers`` returns them without special tokens."""
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
        """From the left, the longest tokens that a word is made of."""
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
        if len(self._cache) >= WORDPIECE.words:
            self._cache.clear()
        self._cache[word] = found
        return found


class _Characters(dict[int, str]):
    """What becomes of characters, by code point, for ``str.translate``; see ``WordPiece``."""

    def __init__(self, table: object) -> None:
        entries = _object(table, _CHARACTERS, "a table of characters")
        images = entries["images"]
        if not isinstance(images, dict) or len(images) > WORDPIECE.images:
            raise BundleFormatError(f"images are an object of up to {WORDPIECE.images} texts")
        for character, image in images.items():
            if len(character) != 1 or not isinstance(image, str) or len(image) > WORDPIECE.image:
                raise BundleFormatError(
                    f"an image is a text of up to {WORDPIECE.image} characters, of one character"
                )
        super().__init__({ord(character): image for character, image in images.items()})
        if not isinstance(entries["hangul"], bool):
            raise BundleFormatError("hangul is neither true nor false")
        self._letters = entries["hangul"]
        self._ranges = sorted(
            (*_range(each), form)
            for kind, form in _FORMS.items() for each in _list(entries[kind], WORDPIECE.ranges)
        )  # fmt: skip
        self._starts = [first for first, _, _ in self._ranges]

    def __missing__(self, code: int) -> str:
        """What becomes of a character that no text before had."""
        image = chr(code)
        position = bisect_right(self._starts, code) - 1
        if position >= 0 and code <= self._ranges[position][1]:
            image = self._ranges[position][2].format(image)
        elif self._letters and code in _HANGUL:
            # The same under every version: it is an arithmetic of the standard.
            image = unicodedata.normalize("NFD", image)
        if len(self) < WORDPIECE.characters:
            self[code] = image
        return image


def _added(tokens: object, count: int) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of added tokens that are found before the normalization, and after it."""
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    for each in _list(tokens, WORDPIECE.added):
        entry = _object(each, _ADDED, "an added token")
        token, late = entry["token"], entry["normalized"]
        if not isinstance(token, str) or not 0 < len(token) <= WORDPIECE.content:
            raise BundleFormatError(
                f"an added token is a text of 1 to {WORDPIECE.content} characters"
            )
        if not isinstance(late, bool) or token in found[late]:
            raise BundleFormatError("an added token stands twice, or is normalized by no boolean")
        found[late][token] = _whole(entry["id"], range(count), "the id of an added token")
    return found


def _finder(tokens: Mapping[str, int]) -> re.Pattern[str]:
    """Finds the longest of some tokens, from the left."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def _object(value: object, keys: set[str], title: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or set(value) != keys:
        raise BundleFormatError(f"{title} is not an object of {', '.join(sorted(keys))}")
    return value


def _list(value: object, most: int) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        raise BundleFormatError(f"a part of the tokenizer is no list of up to {most}")
    return value


def _range(value: object) -> tuple[int, int]:
    bounds = _list(value, 2)
    if len(bounds) != 2:
        raise BundleFormatError("a range of characters is not a first and a last code point")
    first = _whole(bounds[0], _CODES, "a code point")
    return first, _whole(bounds[1], _CODES[first:], "the last code point of a range")


def _whole(value: object, within: range, title: str) -> int:
    if type(value) is not int or value not in within:
        raise BundleFormatError(
            f"{title} is not a whole number from {within.start} to {within.stop - 1}"
        )
    return value
