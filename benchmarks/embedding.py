"""Seconds per million keys of the exporter's table of embeddings, and of an index by SQLite.

    python benchmarks/embedding.py
    python benchmarks/embedding.py --keys 10000000 --dimension 384 --json

Both get random keys a block at a time: the table with random vectors, which it also writes, and
SQLite the keys alone, in a transaction for each block. Then the keys are found, a block at a time
in the table and one by one in SQLite. ``opening`` makes the table's index of all keys anew.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark, timed

from fala_export.embedding.table import TextKeys, VectorFile, text_keys

_BLOCK = 1 << 16


def blocks_of(count: int) -> list[range]:
    """All positions, a block at a time."""
    return [range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


def seconds_per_million(count: int, call: Callable[[TextKeys, range], object]) -> float:
    """The seconds of a call for all keys."""
    seconds = 0.0
    for block in blocks_of(count):
        keys = text_keys(str(number) for number in block)
        seconds += timed(call, keys, block).clock
    return seconds / count * 1e6


def table(folder: Path, count: int, dimension: int, seed: int) -> dict[str, float]:
    """Add vectors to the table, open it, and find all keys."""
    vectors = np.random.default_rng(seed).standard_normal((_BLOCK, dimension), dtype=np.float32)
    file = VectorFile(folder / "table", dimension)
    adding = seconds_per_million(count, lambda keys, _: file.add(keys, vectors[: len(keys)]))
    file = VectorFile(folder / "table", dimension)
    opening = timed(lambda: len(file)).clock
    finding = seconds_per_million(count, lambda keys, _: file.find(keys))
    return {"adding": adding, "finding": finding, "opening": opening / count * 1e6}


def sqlite(folder: Path, count: int) -> dict[str, float]:
    """Add keys to an index by SQLite, and find them."""
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, row INTEGER) WITHOUT ROWID")

        def insert(keys: TextKeys, rows: range) -> None:
            connection.execute("BEGIN")
            pairs = zip((key.tobytes() for key in keys), rows, strict=True)
            connection.executemany("INSERT INTO entry VALUES (?, ?)", pairs)
            connection.execute("COMMIT")

        def find(keys: TextKeys, _: range) -> None:
            for key in keys:
                found = connection.execute("SELECT row FROM entry WHERE key = ?", (key.tobytes(),))
                found.fetchone()

        adding = seconds_per_million(count, insert)
        finding = seconds_per_million(count, find)
    return {"adding": adding, "finding": finding}


@benchmark
@click.option("--keys", "count", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--dimension", type=click.IntRange(1), default=100, show_default=True)
def main(count: int, dimension: int, seed: int) -> dict[str, Any]:
    """See the module."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ours, peer = table(folder, count, dimension, seed), sqlite(folder, count)
    ratios = {f"{name}_ratio": peer[name] / ours[name] for name in peer}
    return {"keys": count, "table": ours, "sqlite": peer, **ratios}


if __name__ == "__main__":
    main()
