"""The one rule that decides which label a value of an app or a vendor is.

A head's labels are integers or strings. ``finder`` turns any equal value of an app into one of
them, ``number_of`` reads ratings, and ``is_missing`` tells that there is no label.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError, UsageError, shown, type_of
from fala.base.examples import listed

#: A head's own label: an integer or a string; all labels of a head are of the same type.
HeadLabel: TypeAlias = int | str
#: One label of an app: a head's label, or any value that equals it; see ``finder``.
OneLabel: TypeAlias = str | int | float | np.generic
#: A label of an app: one label, a rating's number, or a set of tags; None and NaN are no label.
Label: TypeAlias = OneLabel | Collection[OneLabel] | None
#: A label as a device returns it: a head's label, a rating's number, or a set of tags.
OwnLabel: TypeAlias = HeadLabel | float | frozenset[HeadLabel]

#: The range of an integer that is a label.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**63 - 1

# Pairs of labels whose second one is the positive label, whatever order they are given in.
_POSITIVE = {
    "0": "1", "-1": "1", "no": "yes", "n": "y", "false": "true", "f": "t", "off": "on",
    "negative": "positive", "neg": "pos",
}  # fmt: skip


def natural_positive(labels: Sequence[HeadLabel]) -> HeadLabel | None:
    """Return the positive label of a pair such as no and yes, 0 and 1, or false and true, or None.

    Args:
        labels: All labels, in any order.
    """
    if len(labels) == 2:
        for negative, positive in (labels, labels[::-1]):
            if _POSITIVE.get(str(negative).casefold()) == str(positive).casefold():
                return positive
    return None


def is_missing(label: object) -> bool:
    """Return whether a label is None, NaN, or pandas' NA, which stand for a missing label."""
    if isinstance(label, str):  # which most are
        return False
    if isinstance(label, float | np.floating):
        return bool(np.isnan(label))
    return label is None or type(label).__name__ == "NAType"


def checked_labels(labels: Iterable[object]) -> tuple[HeadLabel, ...]:
    """Return a head's labels as Python's integers or strings; booleans are integers.

    Raises:
        UsageError: The labels are of both types or of other types, or an integer is not within 64
            bits.
    """
    given = listed(labels, "labels")
    if all(isinstance(label, str) for label in given):
        return tuple(map(label_name, given))
    kinds = (int, np.integer, np.bool_)
    numbers = [int(label) for label in given if isinstance(label, kinds)]
    if len(numbers) < len(given):
        raise UsageError(
            "labels must be all integers or all strings; convert those of another type"
        )
    if not all(LEAST_INTEGER <= number <= LARGEST_INTEGER for number in numbers):
        raise UsageError("a label is outside the range of 64-bit integers; use strings instead")
    return tuple(numbers)


def in_one_type(labels: Iterable[object]) -> list[HeadLabel]:
    """Return labels as integers if each equals an integer and none is a text, else as names."""
    given = list(labels)
    numbers = [number for label in given if (number := integer_of(label)) is not None]
    return [*numbers] if len(numbers) == len(given) else [*map(label_name, given)]


def label_name(label: object) -> str:
    """Return the name of a label: a text itself, or the digits of the integer that it equals.

    1, 1.0, ``np.float32(1)`` and True have the name ``"1"``.
    """
    if isinstance(label, str):
        # This is exact for an enumeration's member as well.
        return label if type(label) is str else str.__str__(label)
    try:
        integer = integer_of(label)
        return str(label) if integer is None else str(integer)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    except Exception:  # an object without a string form is no label
        return shown(label)


def finder(labels: Sequence[HeadLabel]) -> Callable[[object], HeadLabel | None]:
    """Return a function that finds the head's label of any value of an app or a vendor.

    A value is the label of the same name: 1, 1.0, ``np.float32(1)``, True and ``"1"`` are the
    integer 1 or the string ``"1"``, whichever the head has. If no label has that name, a number is
    the only label that spells it in another way: ``"1.0"``, or ``"True"`` in upper or lower case
    for True. The function returns None for other values.

    Args:
        labels: All of the head's labels.
    """
    by_name = {str(label): label for label in labels}

    def find(value: object) -> HeadLabel | None:
        name = label_name(value)
        if name in by_name or isinstance(value, str):
            return by_name.get(name)
        word = str(bool(value)).lower() if isinstance(value, bool | np.bool_) else None
        others = [each for each in by_name if each == f"{name}.0" or each.lower() == word]
        return by_name[others[0]] if len(others) == 1 else None

    return find


def typed(name: str, labels: Sequence[HeadLabel]) -> HeadLabel:
    """Return the label of a name in the type of a head's labels, if the name spells that type."""
    number = spelled_integer(name) if labels and isinstance(labels[0], int) else None
    return name if number is None else number


def spelled_integer(text: str) -> int | None:
    """Return the 64-bit integer of which a text, such as "-1", is the only spelling, or None."""
    plain = text.removeprefix("-")
    if not (plain.isascii() and plain.isdigit() and len(plain) < 20):
        return None
    number = int(text)
    within = LEAST_INTEGER <= number <= LARGEST_INTEGER
    return number if within and str(number) == text else None


def named(labels: Iterable[HeadLabel]) -> str:
    """Return labels in words."""
    return ", ".join(map(str, labels))


def names_of(labels: Iterable[HeadLabel]) -> set[str]:
    """Return the names of labels; equal labels of both types have the same name."""
    return set(map(str, labels))


def equal_labels(ours: Iterable[HeadLabel], theirs: Iterable[HeadLabel]) -> bool:
    """Return whether labels are equal, in either type, in the same order."""
    return [*map(str, ours)] == [*map(str, theirs)]


def as_array(labels: Sequence[HeadLabel]) -> NDArray[Any]:
    """Return labels as an array: int64, or strings."""
    return np.array(labels, dtype=np.int64 if isinstance(labels[0], int) else np.str_)


def integer_of(label: object) -> int | None:
    """Return the integer that a number or a boolean equals; None for other values and texts."""
    if isinstance(label, int | np.integer | np.bool_):
        return int(label)
    value = math.nan if isinstance(label, str) else number_of(label)
    return int(value) if value.is_integer() else None


def stored_tags(label: str) -> frozenset[str] | None:
    """Return the set of tags of a stored label, or None if the label is not a set of tags."""
    try:
        tags = json.loads(label)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return None
    return frozenset(tags)


def tags_of(label: object, where: str = "") -> list[object]:
    """Return the tags of a set, each of any value that equals a tag.

    Args:
        label: The set, or another collection.
        where: Names the example, for the error.

    Raises:
        DataError: The label is not a set; a text's characters and a mapping's keys are none either.
    """
    if isinstance(label, Collection) and not isinstance(label, str | bytes | Mapping):
        with contextlib.suppress(TypeError):  # an array without dimensions is not iterable
            return list(label)
    raise DataError(
        f"a label is a set of tags, as {{'a', 'b'}}, or None; that{where} is {type_of(label)}"
    )


def number_of(label: object) -> float:
    """Return the number of a rating, or of a text that spells a number; NaN for anything else.

    True is 1, as everywhere in Python. An array is not a number, even if it contains only one.
    """
    if isinstance(label, bytes | np.ndarray) or not isinstance(label, str | SupportsFloat):
        return math.nan
    try:
        return float(label)
    except Exception:  # an object may raise anything
        return math.nan
