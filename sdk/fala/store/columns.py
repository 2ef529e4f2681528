"""Check the values of a store's columns, which can be anything in a damaged file.

Every function takes a value from SQLite, and raises ``ValueError`` if it is invalid. No message
contains a text of the user.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import type_of
from fala.bundle.manifest import PRODUCT
from fala.model.links import PerTag

#: The errors that reading a damaged value raises.
DAMAGE = (TypeError, ValueError, LookupError, OverflowError, RecursionError)

#: More changes than any device can have had.
_MOST_CHANGES = 2**53
#: SQLite's default limit on variables in a statement; versions before 3.32 have a lower one.
_VARIABLES = 32_000 if sqlite3.sqlite_version_info >= (3, 32) else 900


def text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError(f"a text expected, not {type_of(value)}")
    return value


def adapter_named(value: object) -> str:
    """Return the name of a task's adapter; empty for the device's own task."""
    if value != "" and not PRODUCT.fullmatch(text(value)):
        raise ValueError("an adapter has an invalid name")
    return text(value)


def whole(value: object) -> int:
    """Return a whole number."""
    if not isinstance(value, int):
        raise ValueError(f"a whole number expected, not {type_of(value)}")
    return value


def change_count(value: object) -> int:
    """Return a count of changes."""
    if not 0 <= whole(value) < _MOST_CHANGES:
        raise ValueError("a count of changes is out of range")
    return whole(value)


def number(value: object) -> float:
    """Return a finite number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number expected, not {type_of(value)}")
    return float(value)


def per_tag(value: object) -> PerTag:
    """Return a finite number, or one number per tag."""
    if isinstance(value, bytes):
        return tuple(number(cell) for cell in np.frombuffer(value, "<f8").tolist())
    return number(value)


def encode_cell(value: PerTag) -> float | bytes:
    """Return the cell that ``per_tag`` reads."""
    return np.array(value, "<f8").tobytes() if isinstance(value, tuple) else float(value)


def blob(value: object) -> bytes:
    """Return bytes."""
    if not isinstance(value, bytes):
        raise ValueError(f"bytes expected, not {type_of(value)}")
    return value


def floats(value: object) -> NDArray[np.float32]:
    """Return an array of one or more finite numbers in float32."""
    numbers = np.frombuffer(blob(value), "<f4")
    if not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError("an array is empty, or contains a number that is not finite")
    return numbers


def encode_floats(array: NDArray[np.float32]) -> bytes:
    """Return the cell that ``floats`` reads."""
    return array.astype("<f4").tobytes()


def optional_text(value: object) -> str | None:
    """Return a text, or None."""
    return None if value is None else text(value)


def optional_number(value: object) -> float | None:
    """Return a finite number, or None."""
    return None if value is None else number(value)


def rows_in(
    db: sqlite3.Connection, query: str, values: Sequence[object], *before: object
) -> list[tuple[Any, ...]]:
    """Run a statement on the rows whose column has one of some values, however many there are.

    Args:
        db: The connection.
        query: A query, or a deletion, that ends with the column.
        values: The values.
        before: The query's own variables.
    """
    rows: list[tuple[Any, ...]] = []
    for start in range(0, len(values), _VARIABLES):
        part = values[start : start + _VARIABLES]
        marks = ",".join("?" * len(part))
        rows += db.execute(f"{query} IN ({marks})", (*before, *part))
    return rows


def put_rows(db: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, or replace those of the same key. Call it in a transaction.

    Args:
        db: The connection.
        table: The table, with the columns in parentheses if the rows do not have all of them.
        rows: The rows, all of the same length; they take as few statements as possible.
    """
    size = _VARIABLES // len(rows[0]) if rows else 1
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        marks = f"({', '.join('?' * len(part[0]))})"
        cells = [cell for row in part for cell in row]
        db.execute(f"INSERT OR REPLACE INTO {table} VALUES {', '.join([marks] * len(part))}", cells)
