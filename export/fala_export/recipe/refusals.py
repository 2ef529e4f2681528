"""Say in the words of a recipe why msgspec refuses a value."""

from __future__ import annotations

import re
from collections.abc import Collection

_EXPECTED = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table",
}  # fmt: skip
_FOUND = {
    **_EXPECTED, "float": "a number with a decimal point", "bool": "a boolean", "date": "a date",
    "list": "a list", "dict": "a table",
}  # fmt: skip
_PLACE = " - at `$."
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def refused_key(message: str) -> str:
    """Return the last key that a message of msgspec names; empty for the whole file or table."""
    _, _, place = message.partition(_PLACE)
    return re.sub(r"\[.*|`", "", place.rpartition(".")[2])


def refusal(message: str, choices: Collection[str] = ()) -> str:
    """Return the reason of a message of msgspec in a recipe's words.

    Args:
        message: The message of a ``msgspec.ValidationError``.
        choices: The allowed texts, if they are known.

    Examples:
        >>> message = "Expected `int | null`, got `str` - at `$.training.epochs`"
        >>> refused_key(message), refusal(message)
        ('epochs', 'expected a whole number, not text')
    """
    reason, _, _ = message.partition(_PLACE)
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", reason):
        reason = f"needs {missing[1].rstrip('_')}"
    elif unknown := re.fullmatch(r"Object contains unknown field `(.+)`", reason, re.DOTALL):
        reason = f"has no key {unknown[1]:.60}; its keys are {', '.join(choices)}"
    elif wrong := re.fullmatch(r"Expected `([\w |]+)`, got `(\w+)`", reason):
        kinds = [_EXPECTED.get(kind, kind) for kind in wrong[1].split(" | ") if kind != "null"]
        reason = f"expected {' or '.join(kinds)}, not {_FOUND.get(wrong[2], wrong[2])}"
    elif bound := re.fullmatch(r"Expected `(\w+)` ([<>]=?) (\S+)", reason):
        reason = f"expected {_EXPECTED.get(bound[1], bound[1])} {_BOUNDS[bound[2]]} {bound[3]}"
    elif length := re.fullmatch(r"Expected `array` of length (\d+), got (\d+)", reason):
        reason = f"expected a list of {length[1]} values, not {length[2]}"
    elif other := re.fullmatch(r"Invalid enum value '?(.*?)'?", reason, re.DOTALL):
        listed = "another value" if not choices else f"one of {', '.join(choices)}"
        reason = f"expected {listed}, not {other[1]!r:.60}"
    return reason
