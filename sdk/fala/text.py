"""Texts: which are texts at all, and their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fala.errors import DataError

# "<user>" and "<url>" are words of their own in GloVe's Twitter vectors.
_TOKEN = re.compile(r"<\w+>|[^\W_]+(?:['-][^\W_]+)*|[^\w\s]|_+")
_CONTRACTION = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))$")


def fault(text: object) -> str | None:
    """Tell why something is not a text, or None if it is one.

    A lone surrogate (half of an emoji that was cut in two) is in no encoding: a tokenizer or a
    database would fail on it later, so it is refused everywhere alike.
    """
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, not a text (str)"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"has a lone surrogate at character {error.start}; "
            "replace it, as text.encode(errors='replace').decode() does"
        )
    return None


def check_texts(texts: Sequence[str]) -> list[str]:
    """Check that a backbone was given texts.

    Returns:
        The texts as a list.

    Raises:
        DataError: One text was passed for a sequence of them, or an item is not a text; names its
            position.
    """
    if isinstance(texts, str | bytes):
        raise DataError("expected a sequence of texts, got one; wrap it in a list")
    for position, text in enumerate(texts):
        if why := fault(text):
            raise DataError(f"text {position} {why}")
    return list(texts)


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
