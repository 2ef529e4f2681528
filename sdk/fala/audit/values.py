"""Checks of the values in a vendor's JSON, which must have their type and be within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fala.audit.graph import UnsoundError


def as_object(value: object, title: str) -> Mapping[str, Any]:
    """Check that a value is a JSON object, and return it.

    Raises:
        UnsoundError: The value is not an object.
    """
    if not isinstance(value, dict):
        raise UnsoundError(f"the {title} is not an object")
    return value


def as_list(value: object, fault: str, most: int) -> list[Any]:
    """Check that a value is a JSON list of limited length, and return it.

    Raises:
        UnsoundError: The value is not such a list; ``fault`` is the message.
    """
    if not isinstance(value, list) or len(value) > most:
        raise UnsoundError(fault)
    return value


def as_string(value: object, title: str, low: int, high: int) -> str:
    """Check that a value is a text of limited length, and return it.

    Raises:
        UnsoundError: The value is not such a text.
    """
    if not isinstance(value, str) or not low <= len(value) <= high:
        raise UnsoundError(f"{title} is not a text of {low} to {high} characters")
    return value


def as_whole(value: object, title: str, low: int, end: int) -> int:
    """Check that a value is a whole number of at least ``low`` and below ``end``, and return it.

    Raises:
        UnsoundError: The value is not such a number.
    """
    if type(value) is not int or not low <= value < end:
        raise UnsoundError(f"{title} is not a whole number from {low} to {end - 1}")
    return value
