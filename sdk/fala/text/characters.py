"""Classes of characters: parts of words, tokens by themselves, or space.

Normal forms and letter cases are Unicode's, which never change for a character. A character that
is newer than Python's tables is a token by itself. Python 3.10 has the tables of Unicode 13.
"""

from __future__ import annotations

import bisect
import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

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
_APOSTROPHES = "\u00b4\u02bc\u2018\u2019"  # as phones type them

_table = np.zeros(0x110000, dtype=np.uint8)  # classes, filled at a character's first use


def normal(text: str) -> str:
    """The text without differences of case, width and composition.

    Nearly Unicode's NFKC_Casefold, and one apostrophe.
    """
    if text.isascii():
        return text.lower()
    for apostrophe in _APOSTROPHES:
        text = text.replace(apostrophe, "'")
    text = unicodedata.normalize("NFKC", _IGNORED.sub("", text))
    return unicodedata.normalize("NFKC", text.casefold())


def classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Classes of characters by their code points, of the same shape."""
    kinds = _table[codes]
    if not kinds.all():
        for code in set(codes[kinds == UNKNOWN].tolist()):
            _table[code] = _class(chr(code))
        kinds = _table[codes]
    return kinds


def _class(character: str) -> int:
    category = unicodedata.category(character)
    if category == "Cc" or category[0] == "Z":
        return SPACE
    if category[0] == "M":
        return JOINED
    if character == "'" or category[0] in "LN":
        return UNSPACED if bisect.bisect(_UNSPACED, ord(character)) % 2 else WORD
    return SYMBOL
