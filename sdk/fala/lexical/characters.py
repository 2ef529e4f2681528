"""What characters are to a lexicon: parts of words, tokens by themselves, or space.

Normal forms and letter cases are Unicode's, which keeps them for every character that it has; a
character newer than Python's tables is a token by itself. Python 3.10 has Unicode 13's.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

#: Classes: unknown yet; no part of any token; a token by itself; part of a word; a letter of a
#: script that writes without spaces; a mark, which belongs to what stands before it.
UNKNOWN, SPACE, SYMBOL, WORD, UNSPACED, JOINED = range(6)

# First and last code points, by blocks: Thai and Lao, Burmese, Khmer, Tai scripts, Balinese and
# Javanese, kana, Han and their kin. Korean and Tibetan part their words or syllables.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f"
    "\u2e80-\u2fdf\u3000-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\U00016fe0-\U00018dff\U0001b000-\U0001b2ff"
    "\U00020000-\U0003ffff]"
)
# Unicode's characters to be ignored, with which a word could be written in two ways: soft
# hyphens, joiners, directions, selectors of variants.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_APOSTROPHES = re.compile("[\u00b4\u02bc\u2018\u2019]")  # as phones type them

_table = np.zeros(0x110000, dtype=np.uint8)  # classes, filled as characters are met


def normal(text: str) -> str:
    """The text without what is only another way of writing: case, width, composition.

    Unicode's NFKC_Casefold, nearly, and one apostrophe.
    """
    if text.isascii():
        return text.lower()
    plain = _APOSTROPHES.sub("'", _IGNORED.sub("", text))
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())


def classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Classes of characters by their code points, of the same shape."""
    found = _table[codes]
    if not found.all():
        for code in set(codes[found == UNKNOWN].tolist()):
            _table[code] = _class(chr(code))
        found = _table[codes]
    return found


def _class(character: str) -> int:
    category = unicodedata.category(character)
    if category == "Cc" or category[0] == "Z":
        return SPACE
    if category[0] == "M":
        return JOINED
    if character == "'" or category[0] in "LN":
        return UNSPACED if _UNSPACED.match(character) else WORD
    return SYMBOL
