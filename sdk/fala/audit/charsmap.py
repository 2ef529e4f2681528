"""SentencePiece's table of normal forms: a trie of character sequences, and what each becomes.

The library that reads it believes every number in it: how long the trie is, where a step leads,
where a replacement begins. So all of them are followed once before it does. (The trie is a double
array; its units' bits are those of Darts-clone.)
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

from fala.audit.graph import UnsoundError
from fala.audit.limits import TOKENIZER

_MOST_UNITS = 1 << 22
_LEAF = 1 << 31


def check_charsmap(encoded: object) -> None:
    """Refuse a table that does not hold together.

    Raises:
        UnsoundError: A number in it leads out of it, or a character would become a long text.
    """
    try:
        data = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError) as error:
        raise UnsoundError("a table of normal forms that is not in base 64") from error
    length = int.from_bytes(data[:4], "little")
    if len(data) < 8 or length % 4 or not 4 <= length <= len(data) - 4:
        raise UnsoundError(
            f"a table of normal forms of {len(data)} bytes that claims {length} for its trie"
        )
    if length // 4 > _MOST_UNITS:
        raise UnsoundError("a table of normal forms larger than any real one")
    units = np.frombuffer(data, "<u4", length // 4, 4)
    starts = _replacements(units)
    forms = np.frombuffer(data, np.uint8, len(data) - 4 - length, 4 + length)
    try:
        forms.tobytes().decode()
    except UnicodeDecodeError as error:
        raise UnsoundError("a table of normal forms that are not UTF-8") from error
    if not len(starts):
        return
    ends = np.append(np.flatnonzero(forms == 0), len(forms))
    if starts.max() >= max(len(forms), 1):
        raise UnsoundError("a table of normal forms with one outside it")
    if (forms[starts] & 0xC0 == 0x80).any():
        raise UnsoundError("a table of normal forms with one inside a character")
    if (ends[np.searchsorted(ends, starts)] - starts).max() > TOKENIZER.segment:
        raise UnsoundError("a table of normal forms with one of a whole text")


def _replacements(
    units: np.ndarray[tuple[int], np.dtype[np.uint32]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where the replacements begin that some character sequence leads to.

    Raises:
        UnsoundError: A step leads out of the trie.
    """
    wide = units.astype(np.int64)
    labels = np.arange(1, 256)
    # Places after a step, from the root. Endings that are alike share theirs.
    here = np.array([_offset(wide[:1])[0]])
    met = np.zeros(len(wide), dtype=bool)
    found = [np.zeros(0, np.int64)]
    while len(here):
        if here.max() >= len(wide):
            raise UnsoundError("a table of normal forms with a step out of it")
        met[here] = True
        steps = (here[:, None] ^ labels[None]).ravel()
        steps_labels = np.tile(labels, len(here))
        if steps.max() >= len(wide):
            # The library looks at every one of them.
            raise UnsoundError("a table of normal forms with a step out of it")
        taken = (wide[steps] & (_LEAF | 0xFF)) == steps_labels
        places = steps[taken]
        following = places ^ _offset(wide[places])
        leaves = (wide[places] >> 8) & 1 == 1
        if len(following) and following.max() >= len(wide):
            raise UnsoundError("a table of normal forms with a step out of it")
        found.append(wide[following[leaves]] & (_LEAF - 1))
        here = np.unique(following[~met[following]])
    return np.concatenate(found)


def _offset(
    units: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (units >> 10) << ((units & (1 << 9)) >> 6)
