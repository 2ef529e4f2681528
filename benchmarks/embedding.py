"""Seconds per million texts of the exporter's table of embeddings, and of an index by SQLite.

    python benchmarks/embedding.py
    python benchmarks/embedding.py --texts 100000 --texts 1000000 --texts 10000000 --json
    python benchmarks/embedding.py --bundle release.fala --texts 10000

Texts of random words are streamed: ``encoding`` is the backbone's part, ``adding`` the table's
(keys, look-ups, checksums and writing). Then each step has a process of its own, whose memory is
reported (the peak, which counts mapped pages, and anonymous memory at the end): a stream of the
same texts (``again``), all texts in blocks, opening (with the index), and ten texts by a mapping.
``sqlite`` adds as many keys to an index of its own, in transactions of a block, and finds them.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from support.documents import BUNDLE, bundle_of
from support.measuring import benchmark, figures_apart, memory_fields, peak_megabytes, timed

import fala
from fala_export import Embedder, Embeddings
from fala_sim.playground.sample import sample_rows

_BLOCK = 1 << 16
_TEN = 10
Figures = dict[str, float]
Step = Callable[[Path, fala.Bundle, int, int], Figures]


class TimedBackbone:
    """A backbone, with the seconds that it has encoded."""

    is_transformer = False

    def __init__(self, bundle: fala.Bundle) -> None:
        self._backbone = bundle.backbone()
        self.dimension, self.seconds, self.texts = bundle.manifest.dimension, 0.0, 0

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts."""
        call = timed(self._backbone.encode, texts)
        self.seconds += call.clock
        self.texts += len(texts)
        return np.asarray(call.result)


def texts_of(count: int, seed: int) -> Iterator[str]:
    """Texts of some ten words of the built-in sample, which no two texts have alike."""
    rows = sample_rows(seed=seed).public
    words = sorted({word for row in rows for word in str(row.example).split()})
    random = np.random.default_rng(seed)
    for start in range(0, count, _BLOCK):
        for number, row in enumerate(random.integers(len(words), size=(_BLOCK, 10)), start):
            if number < count:
                yield f"{' '.join(words[word] for word in row)} {number}"


def memory() -> Figures:
    """The memory of this process."""
    anonymous = memory_fields()["RssAnon"] / 1e6
    return {"peak_megabytes": peak_megabytes(), "anonymous_megabytes": anonymous}


def streamed(
    folder: Path, bundle: fala.Bundle, count: int, seed: int
) -> tuple[TimedBackbone, Any, float]:
    """Stream texts into the table: the backbone, the table, and seconds but those of drawing."""
    backbone = TimedBackbone(bundle)
    drawing = timed(lambda: sum(1 for _ in texts_of(count, seed))).clock
    stream, seconds, _ = timed(
        lambda: Embedder(folder).stream(backbone, "table", texts_of(count, seed), "texts")
    )
    return backbone, stream, seconds - drawing


def add(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Embed and add a stream of texts."""
    backbone, _, seconds = streamed(folder, bundle, count, seed)
    return {
        "encoding": backbone.seconds / count * 1e6,
        "adding": (seconds - backbone.seconds) / count * 1e6,
    }


def again(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Stream the same texts again, and read their embeddings."""
    backbone, stream, seconds = streamed(folder, bundle, count, seed)
    reading = sum(timed(stream.__getitem__, block).clock for block in blocks(count))
    return {
        "again": seconds / count * 1e6, "reading_all": reading / count * 1e6,
        "wrong": backbone.texts,
    }  # fmt: skip


def open_and_read_ten(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Open the table, and read ten texts."""
    ten = list(islice(texts_of(count, seed), 0, None, max(1, count // _TEN)))
    mapping = Embeddings.open(folder / "table", bundle.manifest.dimension, ten)
    return {
        "open_milliseconds": 1e3 * timed(lambda: len(mapping.table)).clock,
        "ten_milliseconds": 1e3 * timed(mapping.take, ten).clock,
    }


def sqlite(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Add random keys to an index by SQLite, and find them."""
    random = np.random.default_rng(seed)
    connection = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, row INTEGER) WITHOUT ROWID")

    def insert(rows: list[tuple[bytes, int]]) -> None:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO entry VALUES (?, ?)", rows)
        connection.execute("COMMIT")

    def find(rows: list[tuple[bytes, int]]) -> None:
        for key, _ in rows:
            connection.execute("SELECT row FROM entry WHERE key = ?", (key,)).fetchone()

    adding = finding = 0.0
    for block in blocks(count):
        rows = [(random.bytes(16), row) for row in range(block.start, block.stop)]
        adding += timed(insert, rows).clock
        finding += timed(find, rows).clock
    connection.close()
    return {"sqlite_adding": adding / count * 1e6, "sqlite_finding": finding / count * 1e6}


def blocks(count: int) -> Iterator[slice]:
    """All positions, a block at a time."""
    for start in range(0, count, _BLOCK):
        yield slice(start, min(start + _BLOCK, count))


def in_a_process(step: Step, folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """A step's figures, with its memory."""

    def figures() -> Figures:
        found = step(folder, bundle, count, seed)
        return {**found, **{f"{step.__name__}_{name}": size for name, size in memory().items()}}

    return figures_apart(f"{count:,} texts: {step.__name__}", figures)


@benchmark
@BUNDLE
@click.option(
    "--texts", "counts", type=click.IntRange(_TEN), multiple=True, default=(100_000, 1_000_000),
    show_default=True,
)  # fmt: skip
def main(name: str, counts: Sequence[int], seed: int) -> dict[str, Any]:
    """See the module."""
    bundle, by_count = bundle_of(name), dict[str, Figures]()
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            figures = by_count.setdefault(str(count), {})
            for step in (add, again, open_and_read_ten, sqlite):
                figures |= in_a_process(step, Path(folder), bundle, count, seed)
    return {
        "bundle": name, **by_count, "texts": sum(counts),
        "wrong": sum(figures["wrong"] for figures in by_count.values()),
    }  # fmt: skip


if __name__ == "__main__":
    main()
