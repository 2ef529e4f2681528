"""Whether a regular expression of a tokenizer can be trusted with any text.

A group that is repeated and can itself match in several ways takes exponential time on some texts.
"""

from __future__ import annotations

import re

from fala.audit.graph import UnsoundError
from fala.audit.limits import TOKENIZER

# A repetition behind a group or a character, with what makes it lazy or possessive.
_REPEAT = re.compile(r"(?:[*+?]|\{(\d*)(,?)(\d*)\})[?+]?")
# References to groups and to patterns inside the pattern, which may call themselves.
_CALLS = re.compile(r"\\(?:[1-9]|[kg][<'])|\(\?(?:[~(&RP]|\d)")


def check_pattern(pattern: object) -> None:
    """Refuse a pattern that may take long.

    Raises:
        UnsoundError: It may, or it is no text.
    """
    if not isinstance(pattern, str) or not pattern or len(pattern) > TOKENIZER.pattern:
        raise UnsoundError(f"a pattern is a text of 1 to {TOKENIZER.pattern} characters")
    if _CALLS.search(pattern):
        raise UnsoundError("a pattern that refers to its own parts")
    # Of every open group: whether something in it can match in several ways.
    groups, position = [False], 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position = _behind_escape(pattern, position)
        elif character == "[":
            position = _behind_class(pattern, position)
        elif character == "(":
            groups.append(False)
            position += 3 if pattern.startswith("(?", position) else 1
            continue
        elif character == "|":
            groups[-1] = True
            position += 1
            continue
        else:
            position += 1
        many = False
        if character == ")":
            if len(groups) < 2:
                raise UnsoundError("a pattern with groups that do not open")
            many = groups.pop()
            groups[-1] = groups[-1] or many
        if repeat := _REPEAT.match(pattern, position):
            position = repeat.end()
            if _often(repeat):
                if many:
                    raise UnsoundError("a pattern that repeats what can match in several ways")
                groups[-1] = True
    if len(groups) != 1:
        raise UnsoundError("a pattern with groups that do not close")


def _often(repeat: re.Match[str]) -> bool:
    """Whether something may stand more than once, and more than one number of times."""
    low, comma, high = repeat.groups()
    if repeat.group().startswith("{"):
        numbers = [int(number[:9]) for number in (low, high) if number]
        if any(number > TOKENIZER.repeats for number in numbers):
            raise UnsoundError("a pattern with too many repeats")
        return bool(comma) or max(numbers, default=0) > 1
    return not repeat.group().startswith("?")


def _behind_escape(pattern: str, position: int) -> int:
    named = re.compile(r"\\(?:[pP]\{[^{}]{1,40}\}|x\{[0-9A-Fa-f]{1,8}\}|.)", re.DOTALL)
    found = named.match(pattern, position)
    if found is None:
        raise UnsoundError("a pattern that ends in a backslash")
    return found.end()


def _behind_class(pattern: str, position: int) -> int:
    depth, start = 0, position
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            position = _behind_escape(pattern, position)
            continue
        position += 1
        if character == "[":
            depth += 1
            if pattern.startswith("^", position):
                position += 1
            if pattern.startswith("]", position):  # a bracket that stands first is itself
                position += 1
        elif character == "]":
            depth -= 1
            if not depth:
                return position
    raise UnsoundError(f"a pattern whose class at {start} does not close")
