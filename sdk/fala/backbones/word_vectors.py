"""Static word vectors, which embed a text as the mean of its words' vectors."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError, counted
from fala.base.examples import LARGEST, check_texts

_UNKNOWN_WORDS = ("<unk>", "unk")
_BLOCK = 8192
#: Characters of a text that are read: some 200,000 words, in 100 MB of memory.
LONGEST = 1 << 20
# Words whose vectors are in memory at a time.
_WORDS = 1 << 16
# "<user>" and "<url>" are words of their own in GloVe's Twitter vectors.
_TOKEN = r"<\w+>|{word}(?:['-]{word})*|[^\w\s]|_+"
_PLAIN = re.compile(_TOKEN.format(word=r"[^\W_]+"))
_CONTRACTION = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))$")


def words(text: str) -> list[str]:
    """Split a text into lower-case words and punctuation marks.

    Contractions are split as in the Penn Treebank ("don't" is "do" and "n't"), because that is
    how the text under the published GloVe vectors was split (Pennington, Socher and Manning,
    EMNLP 2014). Letters are composed with their marks (NFC), as in published vectors.

    Args:
        text: Any text.

    Returns:
        The words in order; empty for a text of white space.
    """
    result: list[str] = []
    pattern, text = _PLAIN, text.lower()
    if not text.isascii():
        text = _composed(text)
        if any(map(_is_mark, set(text))):
            pattern = _with_marks()
    for token in pattern.findall(text):
        match = _CONTRACTION.match(token) if "'" in token else None
        if match:
            result.extend(match.groups())
        else:
            result.append(token)
    return result


def _composed(text: str) -> str:
    """Return a lower-case text in the one spelling that words of texts and of vocabularies have."""
    text = unicodedata.normalize("NFC", text.replace("\u2019", "'"))
    return text.replace("i\u0307", "i")  # of a Turkish capital


def _is_mark(character: str) -> bool:
    """Return whether a character is a mark of letters: to Python it is no part of a word."""
    return (
        character >= "\u0300"
        and unicodedata.category(character)[0] == "M"
        and not ("\u20d0" <= character < "\u2100" or "\ufe00" <= character < "\ufe10")  # of symbols
    )


@cache
def _with_marks() -> re.Pattern[str]:
    """Return the pattern of words with marks, as Hindi's vowels; it takes milliseconds to make."""
    marks = "".join(filter(_is_mark, map(chr, range(0x1F000))))
    return re.compile(_TOKEN.format(word=rf"[^\W_]+(?:[{marks}]+[^\W_]*)*"))


class MeanOfVectors(ABC):
    """A backbone whose embedding of a text is the mean of its words' or tokens' vectors.

    Args:
        count: V, the number of words or tokens.
        vectors: Shape (V, dim), kept in this precision: float16 or float32, or int8 together with
            ``scales``.
        scales: Shape (V,) for int8 vectors: a vector is its row times its scale.

    Raises:
        BundleFormatError: The shapes or types do not fit, or a number is not finite.
    """

    def __init__(
        self, count: int, vectors: NDArray[Any], scales: NDArray[Any] | None = None
    ) -> None:
        if vectors.ndim != 2 or vectors.shape[0] != count or not vectors.size:
            raise BundleFormatError(
                f"{counted(count, 'word')}, but vectors of shape {vectors.shape}"
            )
        if (vectors.dtype == np.int8) != (scales is not None) or (
            vectors.dtype not in (np.int8, np.float16, np.float32)
        ):
            raise BundleFormatError(
                f"word vectors are float16, float32, or int8 with scales; these are {vectors.dtype}"
                f" {'with' if scales is not None else 'without'} scales"
            )
        if scales is not None and (
            scales.shape != (count,) or not np.issubdtype(scales.dtype, np.floating)
        ):
            raise BundleFormatError(
                f"{counted(count, 'word')}, but scales of shape {scales.shape} and {scales.dtype}"
            )
        self._vectors = vectors
        self._scales: NDArray[np.float32] | None = None
        if scales is not None:
            with np.errstate(over="ignore"):
                self._scales = scales.astype(np.float32)
        fit = (
            _all_fit(vectors, LARGEST)
            if self._scales is None
            else (_all_fit(self._scales, LARGEST / 128))
        )
        if not fit:
            raise BundleFormatError(
                f"a word vector holds NaN, infinity, or a number above {LARGEST:g}"
            )

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self._vectors.shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; only the first ``LONGEST`` characters count. See ``Backbone``."""
        texts = check_texts(texts)
        result = np.empty((len(texts), self.dimension), dtype=np.float32)
        for position, text in enumerate(texts):
            result[position] = self._mean(self._rows(text[:LONGEST]))
        return result

    @abstractmethod
    def _rows(self, text: str) -> Sequence[int]:
        """Return the rows of a text's words or tokens; without any the mean is zero."""

    def _mean(self, rows: Sequence[int]) -> NDArray[np.float32]:
        result = np.zeros(self.dimension, dtype=np.float32)
        for start in range(0, len(rows), _WORDS):
            part = rows[start : start + _WORDS]
            vectors = self._vectors[part].astype(np.float32)
            if self._scales is not None:
                vectors *= self._scales[part, None]
            result += vectors.mean(axis=0) * (len(part) / len(rows))
        return result


class WordVectors(MeanOfVectors):
    """Mean of word vectors (GloVe; Pennington, Socher and Manning, EMNLP 2014).

    A word of the vocabulary is found in every spelling that Unicode holds for equal (NFC). Unknown
    words are left out of the mean; an unknown word with hyphens is looked up by its
    parts. A text without any known word gets the vocabulary's ``<unk>`` vector if it has one,
    and otherwise the zero vector.

    Args:
        vocabulary: V words.
        vectors: Their vectors, or codes of them, shape (V, d).
        scales: The codes' steps, shape (V,).

    Raises:
        BundleFormatError: The shapes or types do not fit, or a number is not finite.
    """

    def __init__(
        self, vocabulary: Sequence[str], vectors: NDArray[Any], scales: NDArray[Any] | None = None
    ) -> None:
        super().__init__(len(vocabulary), vectors, scales)
        # The first of equal words counts: vocabularies begin with the frequent words.
        self._index = {word: row for row, word in reversed(list(enumerate(vocabulary)))}
        for row, word in enumerate(vocabulary):
            if not word.isascii():
                self._index.setdefault(_composed(word), row)
        self._unknown = next((self._index[w] for w in _UNKNOWN_WORDS if w in self._index), None)

    def _rows(self, text: str) -> list[int]:
        rows: list[int] = []
        for word in words(text):
            row = self._index.get(word)
            if row is not None:
                rows.append(row)
            elif "-" in word:
                rows.extend(self._index[part] for part in word.split("-") if part in self._index)
        if not rows and self._unknown is not None:
            rows.append(self._unknown)
        return rows


def _all_fit(array: NDArray[Any], largest: float) -> bool:
    # In blocks: Boolean values for a whole vocabulary would take half of its memory again.
    blocks = (array[start : start + _BLOCK] for start in range(0, len(array), _BLOCK))
    if array.dtype == np.float16:
        return all(bool(np.isfinite(block).all()) for block in blocks)
    return all(bool((np.abs(block) <= largest).all()) for block in blocks)
