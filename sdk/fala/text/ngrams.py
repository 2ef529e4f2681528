"""A text's words, pairs of words and character n-grams, hashed into buckets, and its features.

Heads are fitted to buckets, so a text's buckets are a format, which never changes under one
`VERSION`. The hash of characters c_1 ... c_k is their polynomial sum_i c_i B^(k - i) modulo 2^64,
times a mark of the n-gram's kind, and mixed. All texts of a chunk are hashed together, in arrays.

Characters are parts of words, tokens by themselves, or space. Normal forms and letter cases are
Unicode's, which never change for a character. A character that is newer than Python's tables is a
token by itself. Python 3.10 has the tables of Unicode 13.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.text.sparse_rows import SparseRows

#: Classes: not looked up yet; no part of any token; a token by itself; part of a word; a letter of
#: a script that writes without spaces; a mark, which belongs to the character before it.
UNKNOWN, SPACE, SYMBOL, WORD, UNSPACED, JOINED = range(6)

# Scripts that write without spaces, by the first code points of their blocks and behind them:
# Thai and Lao, Burmese, Khmer, Tai scripts, Balinese, Han and kana and their kin, Javanese.
# Korean and Tibetan separate their words or syllables.
_UNSPACED = (
    0x0E00, 0x0F00, 0x1000, 0x10A0, 0x1780, 0x1800, 0x1950, 0x19E0, 0x1A20, 0x1AB0, 0x1B00, 0x1B80,
    0x2E80, 0x2FE0, 0x3000, 0x3130, 0x31A0, 0x31C0, 0x31F0, 0x3200, 0x3400, 0x4DC0, 0x4E00, 0xA4D0,
    0xA980, 0xAA00, 0xAA60, 0xAAE0, 0xF900, 0xFB00, 0x16FE0, 0x18E00, 0x1AFF0, 0x1B300, 0x20000,
    0x40000,
)  # fmt: skip
# Unicode's ignorable characters, which would give a word two spellings: soft hyphens, joiners,
# directions, variation selectors.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
# The vowel marks and points of Arabic and Hebrew, which most writers leave out, and the stroke that
# only lengthens an Arabic word.
_OPTIONAL = re.compile("[\u05b0-\u05bd\u05bf\u05c1\u05c2\u05c7\u0640\u064b-\u0652\u0670]+")
_APOSTROPHES = "\u00b4\u02bc\u2018\u2019"  # as phones type them

_table = np.zeros(0x110000, dtype=np.uint8)  # classes, filled at a character's first use


def normal(text: str) -> str:
    """Return the text without differences of case, width and composition.

    This is nearly Unicode's NFKC_Casefold, but with one apostrophe, one i (Turkish has two, each
    with its own capital), and without the optional marks of Arabic and Hebrew.
    """
    if text.isascii():
        return text.lower()
    for apostrophe in _APOSTROPHES:
        text = text.replace(apostrophe, "'")
    text = unicodedata.normalize("NFKC", _IGNORED.sub("", text))
    folded = unicodedata.normalize("NFKC", _OPTIONAL.sub("", text).casefold())
    return folded.replace("i\u0307", "i").replace("ı", "i")


def _classes(codes: NDArray[np.uint32]) -> tuple[NDArray[np.uint8], bool]:
    """Return the classes of characters by their code points, and whether any of them is a mark."""
    kinds = _table[codes]
    found = kinds.tobytes()
    if UNKNOWN in found:
        for code in set(codes[kinds == UNKNOWN].tolist()):
            _table[code] = _class(chr(code))
        kinds = _table[codes]
        found = kinds.tobytes()
    return kinds, JOINED in found


def _class(character: str) -> int:
    category = unicodedata.category(character)
    if category == "Cc" or category[0] == "Z":
        return SPACE
    if category[0] == "M":
        return JOINED
    if character == "'" or category[0] in "LN":
        return UNSPACED if bisect.bisect(_UNSPACED, ord(character)) % 2 else WORD
    return SYMBOL


#: Buckets that n-grams are hashed into.
BUCKETS = 1 << 16
#: The version of the n-grams and of their hash. A change of the rules needs a new version.
VERSION = 1
#: Characters of a text that count, before and after normalization.
LONGEST = 1 << 16

#: The result of ``ngrams``: starts (n + 1,) and buckets (nnz,).
Ngrams = tuple[NDArray[np.intp], NDArray[np.int32]]

_CHUNK = 1 << 15  # characters hashed at a time: the arrays stay in a processor's cache
_BLOCK = 10_000  # texts whose n-grams are weighted at a time
_SHORTEST = 1e-30  # length of a text's features, unless all are 0
_MOST = BUCKETS - 1  # texts hashed at a time: a text's number and a bucket share 32 bits

# Odd, so that no character is lost: digits of the golden ratio.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_MARKS = np.array(  # of tokens, pairs, runs of 3, 4 and 5 characters: further odd numbers
    [
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
    ],
    dtype=np.uint64,
)
_PAIR = _MARKS[1]
# B^0, B^1 and so on: no token of a chunk's texts is longer.
_POWERS = np.multiply.accumulate(np.append(np.uint64(1), np.full(LONGEST - 1, _BASE)))
_SHIFT, _TOP = np.uint64(32), np.uint64(48)
_TEXT, _BUCKET = np.uint32(16), np.uint32(BUCKETS - 1)  # the bits of a key
_START, _END = np.array([ord("<")], np.uint64), np.array([ord(">")], np.uint64)
_TRUE = np.ones(1, dtype=np.bool_)


def ngrams(texts: Sequence[str]) -> Ngrams:
    """Return the set of n-grams of every text.

    A text's tokens are its words in lower case (letters, digits and apostrophes of any script,
    with their marks) and every other visible character; in scripts that write without spaces
    every character is a token. Its n-grams are its tokens, its pairs of neighbouring tokens, and
    the runs of 3, 4 and 5 characters of "<word>", where a word of such a script is all that is
    written without a space. Only the first `LONGEST` characters count. An empty text has no
    n-grams.

    Args:
        texts: n texts.

    Returns:
        starts (n + 1,), and buckets (nnz,): those of text i are from starts[i] to starts[i + 1],
        in ascending order.
    """
    parts = [_of_chunk(chunk) for chunk in _chunks(texts)]
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(buckets) for _, buckets in parts)])
    starts = [part[0][:-1] + first for part, first in zip(parts, before, strict=False)]
    buckets = [np.empty(0, dtype=np.int32), *(part[1] for part in parts)]
    return np.concatenate([*starts, before[-1:]]), np.concatenate(buckets)


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in normal form, a chunk at a time."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(normal(text[:LONGEST])[:LONGEST])
        characters += len(chunk[-1])
        if characters > _CHUNK or len(chunk) == _MOST:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


# When one text is predicted, the processor's cache holds the backbone's weights and nothing that
# follows here. So each of NumPy's functions takes ten times its usual time, and those written in
# Python take the longest. The following code calls few of them, and prefers the arrays' methods.


def _of_chunk(texts: list[str]) -> Ngrams:
    """Return the sets of n-grams of texts in normal form."""
    joined = "\n".join(texts).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(joined, dtype="<u4")
    visible, word, token = _boundaries(codes)
    numbers = np.arange(len(texts) + 1, dtype=np.uint32) << _TEXT
    keys = numbers[:0]
    if len(at := visible.nonzero()[0]):
        text = None if len(texts) == 1 else numbers.repeat([*(len(t) + 1 for t in texts), 0])[at]
        codes = codes[at].astype(np.uint64)
        kinds = (*_of_tokens(codes, text, token[at]), *_of_words(codes, word[at]))
        mixed = np.concatenate([hashed for hashed, _ in kinds])
        mixed ^= mixed >> _SHIFT
        mixed *= _MARKS.repeat([len(hashed) for hashed, _ in kinds])
        mixed >>= _TOP
        keys = mixed.astype(np.uint32)
        if text is not None:
            keys += np.concatenate([text[first] for _, first in kinds])
        keys.sort()
        keys = keys[np.concatenate((_TRUE, keys[1:] != keys[:-1]))]
    return keys.searchsorted(numbers), (keys & _BUCKET).astype(np.int32)


def _boundaries(
    codes: NDArray[np.uint32],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which characters are visible, which begin a word, and which begin a token."""
    kind, marked = _classes(codes)
    if marked:
        mark = kind == JOINED
        kind = kind[np.maximum.accumulate(np.where(mark, 0, np.arange(len(kind))))]
        kind[mark & ((kind == SPACE) | (kind == JOINED))] = WORD  # a mark without a character
    symbol, alone = kind == SYMBOL, kind == UNSPACED
    if marked:
        symbol &= ~mark
        alone &= ~mark
    word = symbol
    word[:1] = True
    word[1:] |= kind[1:] != kind[:-1]
    return kind != SPACE, word, word | alone


#: Hashes of n-grams of one kind before they are mixed, and the positions of their first characters.
Hashed = tuple[NDArray[np.uint64], NDArray[np.intp] | slice]


def _of_tokens(
    codes: NDArray[np.uint64], text: NDArray[np.uint32] | None, token: NDArray[np.bool_]
) -> tuple[Hashed, Hashed]:
    """Return the tokens and the pairs of tokens; no pair reaches from one text into the next."""
    bounds = np.concatenate((token, _TRUE)).nonzero()[0]
    starts, ends = bounds[:-1], bounds[1:]
    behind = (ends - 1).repeat(ends - starts) - np.arange(len(codes))
    hashed = np.add.reduceat(codes * _POWERS[behind], starts)
    pairs, first = hashed[:-1] * _PAIR + hashed[1:], starts[:-1]
    if text is not None:
        same = text[first] == text[starts[1:]]
        pairs, first = pairs[same], first[same]
    return (hashed, starts), (pairs, first)


def _of_words(codes: NDArray[np.uint64], word: NDArray[np.bool_]) -> tuple[Hashed, Hashed, Hashed]:
    """Return the runs of 3, 4 and 5 characters of "<word>"; each character has one run of 3."""
    last = np.concatenate((word[1:], _TRUE))
    before = np.concatenate((_START, codes[:-1]))
    before[word] = _START
    after = np.concatenate((codes[1:], _END))
    after[last] = _END
    three = (before * _BASE + codes) * _BASE + after
    begin = (~last).nonzero()[0]
    four = three[begin] * _BASE + after[begin + 1]
    inner = (~last[begin + 1]).nonzero()[0]
    longer = begin[inner]
    five = four[inner] * _BASE + after[longer + 2]
    return (three, slice(None)), (four, begin), (five, longer)


def lexical_rows(
    idf: NDArray[np.float32], texts: Sequence[str], known: Ngrams | None = None
) -> SparseRows:
    """Return the lexical features x_g = idf_g / |x| of n texts.

    Args:
        idf: Inverse document frequencies, shape (BUCKETS,).
        texts: The texts.
        known: The texts' n-grams, if the caller has them.
    """
    starts, buckets = ngrams(texts) if known is None else known
    rows = SparseRows(starts, buckets, idf[buckets], BUCKETS)
    for first in range(0, len(rows), _BLOCK):  # in place: the arrays of many texts are large
        part = rows.between(first, first + _BLOCK)
        lengths = np.maximum(np.sqrt(part.squared_lengths()), _SHORTEST)
        values = part.values
        values /= lengths.repeat(part.starts[1:] - part.starts[:-1])
    return rows


class CachedRows:
    """Cached rows of the latest texts, for callers that need the same rows again.

    Args:
        compute: Returns the n-grams of texts.
    """

    def __init__(self, compute: Callable[[Sequence[str]], Ngrams]) -> None:
        self._compute = compute
        self._texts: list[str] = []
        self._ngrams: Ngrams | None = None
        self._rows: list[tuple[NDArray[np.float32], SparseRows]] = []

    def of(self, idf: NDArray[np.float32], texts: list[str]) -> SparseRows:
        """Return ``lexical_rows``, as the same object for the same texts and equal frequencies."""
        if self._ngrams is None or texts != self._texts:
            self._texts, self._ngrams, self._rows = texts, self._compute(texts), []
        for cached, rows in self._rows:
            if np.array_equal(cached, idf):
                return rows
        rows = lexical_rows(idf, texts, self._ngrams)
        self._rows.append((idf, rows))
        return rows
