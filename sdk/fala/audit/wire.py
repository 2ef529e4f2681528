"""The fields of a protocol buffer's message."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


#: Fields of one file, in all its messages: some fifty for each of 20,000 operators.
MOST_FIELDS = 1_000_000


_LONGEST_LIST = 1 << 16  # bytes


class Wire:
    """Walks the messages of one file, with a bound on all of their fields."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def fields(self, data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
        """Walk a message.

        Args:
            data: The message.

        Yields:
            A field's number, its wire type, and its value: a whole number, or bytes where they
            lie.

        Raises:
            ValueError: It is no message, or there are too many fields.
        """
        for field in _fields(data):
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {MOST_FIELDS} fields")
            yield field


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        if key >> 32:
            # Other readers drop the upper bits and would see a field that this walk skipped.
            raise ValueError("a field's number is too large")
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = _varint(data, position)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if position + length > end:
            raise ValueError("a field runs past the end")
        yield number, wire, data[position : position + length]
        position += length


def varints(data: memoryview) -> list[int]:
    """The whole numbers, signed, of a packed field.

    Raises:
        ValueError: It is cut short, or longer than any that is read so.
    """
    if len(data) > _LONGEST_LIST:
        raise ValueError("a list of numbers is too long")
    found, position = [], 0
    while position < len(data):
        value, position = _varint(data, position)
        found.append(signed(value))
    return found


def signed(value: int) -> int:
    """A varint as the signed number of 64 bits that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number runs past the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
