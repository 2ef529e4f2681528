"""Values of a vendor's JSON: each is what it should be, within bounds, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fala.audit.graph import UnsoundError


def as_object(value: object, title: str) -> Mapping[str, Any]:
    """An object of JSON.

    Raises:
        UnsoundError: It is none.
    """
    if not isinstance(value, dict):
        raise UnsoundError(f"the {title} is not an object")
    return value


def as_list(value: object, fault: str, most: int) -> list[Any]:
    """A list of JSON, with limited length.

    Raises:
        UnsoundError: It is none; ``fault`` is the message.
    """
    if not isinstance(value, list) or len(value) > most:
        raise UnsoundError(fault)
    return value


def as_string(value: object, title: str, low: int, high: int) -> str:
    """A text of so many characters.

    Raises:
        UnsoundError: It is none.
    """
    if not isinstance(value, str) or not low <= len(value) <= high:
        raise UnsoundError(f"{title} is not a text of {low} to {high} characters")
    return value


def as_whole(value: object, title: str, low: int, end: int) -> int:
    """A whole number from ``low`` on, below ``end``.

    Raises:
        UnsoundError: It is none.
    """
    if type(value) is not int or not low <= value < end:
        raise UnsoundError(f"{title} is not a whole number from {low} to {end - 1}")
    return value
