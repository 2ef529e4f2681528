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
_PLACE = " - at `$"
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above", "<": "below"}


def refusal(message: str, choices: Collection[str] = ()) -> str:
    """Return the reason of a message of msgspec in a recipe's words.

    Args:
        message: The message of a ``msgspec.ValidationError``.
        choices: The allowed texts, if they are known.

    Examples:
        >>> refusal("Expected `int | null`, got `str` - at `$[0]`")
        'expected a whole number, not text'
    """
    reason, _, _ = message.partition(_PLACE)
    if wrong := re.fullmatch(r"Expected `([\w |]+)`, got `(\w+)`", reason):
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
