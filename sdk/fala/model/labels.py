"""The labels of an app and a vendor: the one rule by which values are labels.

``label_name`` is for names of labels and tags, ``number_of`` for ratings, ``is_missing`` for none.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import SupportsFloat, TypeAlias

import numpy as np

from fala.errors import DataError, shown, type_of

#: One label of an app: its name, or a number or boolean that equals it; see ``label_name``.
OneLabel: TypeAlias = str | int | float | np.generic
#: A label of an app: one label, a rating's number, or a set of tags; None and NaN are no label.
Label: TypeAlias = OneLabel | Collection[OneLabel] | None


# Pairs of labels of which the second is the positive one, whatever their order.
_POSITIVE = {
    "0": "1", "-1": "1", "no": "yes", "n": "y", "false": "true", "f": "t", "off": "on",
    "negative": "positive", "neg": "pos",
}  # fmt: skip


def natural_positive(labels: Sequence[str]) -> str | None:
    """The positive label of a pair as no and yes, 0 and 1, or false and true; None of others.

    Args:
        labels: All labels, in any order.
    """
    if len(labels) == 2:
        for negative, positive in (labels, labels[::-1]):
            if _POSITIVE.get(negative.casefold()) == positive.casefold():
                return positive
    return None


def is_missing(label: object) -> bool:
    """Whether a label is None, NaN, or pandas' NA: an example without one."""
    if isinstance(label, str):  # the most of all
        return False
    if isinstance(label, float | np.floating):
        return bool(np.isnan(label))
    return label is None or type(label).__name__ == "NAType"


def label_name(label: object, labels: Collection[str] = ()) -> str:
    """The name of a label, by the one rule for the values of an app or a vendor.

    A text is the label of exactly that name. A boolean is 1 or 0, and a whole number, of any type,
    is the label of its digits: 1, 1.0, ``np.float32(1)`` and True are ``"1"``. If there is none of
    that name, it is the only label that spells the value otherwise: ``"1.0"``, or ``"True"`` in
    upper or lower case for True.

    Args:
        label: The label.
        labels: All labels, to choose from; none if they are not known yet.
    """
    if isinstance(label, str):
        # Exactly, of an enumeration's member, too.
        return label if type(label) is str else str.__str__(label)
    try:
        integer = integer_of(label)
        if integer is None:
            return str(label)
        name = str(integer)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    except Exception:  # an object without a string form is no label
        return shown(label)
    if name not in labels:
        word = str(bool(label)).lower() if isinstance(label, bool | np.bool_) else None
        others = [each for each in labels if each == f"{name}.0" or each.lower() == word]
        return others[0] if len(others) == 1 else name
    return name


def integer_of(label: object) -> int | None:
    """The integer that a number or a boolean equals; None if it equals none, or is a text."""
    if isinstance(label, int | np.integer | np.bool_):
        return int(label)
    value = math.nan if isinstance(label, str) else number_of(label)
    return int(value) if value.is_integer() else None


def stored_tags(label: str) -> frozenset[str] | None:
    """The set of tags of a stored label; None if it is not one."""
    try:
        tags = json.loads(label)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    return frozenset(tags)


def tags_of(label: object, tags: Collection[str] = (), where: str = "") -> frozenset[str]:
    """The names of a set of tags.

    Args:
        label: The set, or another collection.
        tags: All tags, to choose from; see ``label_name``.
        where: Names the example, for the error.

    Raises:
        DataError: It is no set; nor are a text's characters, or a mapping's keys.
    """
    if isinstance(label, Collection) and not isinstance(label, str | bytes | Mapping):
        with contextlib.suppress(TypeError):  # an array without dimensions is not iterable
            return frozenset(label_name(tag, tags) for tag in label)
    raise DataError(
        f"a label is a set of tags, as {{'a', 'b'}}, or None; that{where} is {type_of(label)}"
    )


def number_of(label: object) -> float:
    """The number of a rating, or of a text that spells one; NaN if it is none.

    True is 1, as everywhere in Python. An array is no number, even if it has only one.
    """
    if isinstance(label, bytes | np.ndarray) or not isinstance(label, str | SupportsFloat):
        return math.nan
    try:
        return float(label)
    except Exception:  # an object may raise anything
        return math.nan
