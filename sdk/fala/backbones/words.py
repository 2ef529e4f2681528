"""The words of a text, as word vectors know them."""

from __future__ import annotations

import re

# "<user>" and "<url>" are words of their own in GloVe's Twitter vectors.
_TOKEN = re.compile(r"<\w+>|[^\W_]+(?:['-][^\W_]+)*|[^\w\s]|_+")
_CONTRACTION = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))$")


def words(text: str) -> list[str]:
    """Split a text into lower-case words and punctuation marks.

    Contractions are split as in the Penn Treebank ("don't" is "do" and "n't"), because that is
    how the text under the published GloVe vectors was split (Pennington, Socher and Manning,
    EMNLP 2014).

    Args:
        text: Any text.

    Returns:
        The words in order; empty for a text of white space.
    """
    result: list[str] = []
    for token in _TOKEN.findall(text.lower().replace("\u2019", "'")):
        match = _CONTRACTION.match(token) if "'" in token else None
        if match:
            result.extend(match.groups())
        else:
            result.append(token)
    return result
