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
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from support.documents import BUNDLE, bundle_of
from support.measuring import benchmark, peak_megabytes, seconds_of

import fala
from fala.testing import Say, run_apart
from fala_export import Embedder, Embeddings
from fala_export.embedding.embedder import Stream
from fala_sim.playground.sample import sample_rows

_BLOCK = 1 << 16
_TEN = 10
Figures = dict[str, float]
Step = Callable[[Path, fala.Bundle, int, int], Figures]


class Timed:
    """A backbone, with the seconds that it has encoded."""

    is_transformer = False

    def __init__(self, bundle: fala.Bundle) -> None:
        self._backbone = bundle.backbone()
        self.dimension, self.seconds, self.texts = bundle.manifest.dimension, 0.0, 0

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts."""
        start = time.perf_counter()
        vectors = self._backbone.encode(texts)
        self.seconds += time.perf_counter() - start
        self.texts += len(texts)
        return vectors


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
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    fields = dict(line.split(":", 1) for line in lines)
    anonymous = int(fields.get("RssAnon", "0 kB").split()[0]) / 1000
    return {"peak_megabytes": peak_megabytes(), "anonymous_megabytes": anonymous}


def add(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Embed and add a stream of texts."""
    backbone = Timed(bundle)
    drawing = clock(lambda: sum(1 for _ in texts_of(count, seed)))
    seconds = clock(
        lambda: Embedder(folder).stream(backbone, "table", texts_of(count, seed), "adding")
    )
    return {
        "encoding": backbone.seconds / count * 1e6,
        "adding": (seconds - backbone.seconds - drawing) / count * 1e6,
    }


def again(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Stream the same texts again, and read their embeddings."""
    backbone, streams = Timed(bundle), list[Stream]()
    drawing = clock(lambda: sum(1 for _ in texts_of(count, seed)))
    finding = clock(
        lambda: streams.append(
            Embedder(folder).stream(backbone, "table", texts_of(count, seed), "finding")
        )
    )
    (stream,) = streams
    reading = sum(clock(partial(stream.__getitem__, block)) for block in blocks(count))
    return {
        "again": (finding - drawing) / count * 1e6, "reading_all": reading / count * 1e6,
        "wrong": backbone.texts,
    }  # fmt: skip


def open_and_read_ten(folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """Open the table, and read ten texts."""
    ten = list(islice(texts_of(count, seed), 0, None, max(1, count // _TEN)))
    mapping = Embeddings.open(folder / "table", bundle.manifest.dimension, ten)
    return {
        "open_milliseconds": 1e3 * clock(lambda: len(mapping.table)),
        "ten_milliseconds": 1e3 * clock(lambda: mapping.take(ten)),
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
        adding += clock(partial(insert, rows))
        finding += clock(partial(find, rows))
    connection.close()
    return {"sqlite_adding": adding / count * 1e6, "sqlite_finding": finding / count * 1e6}


def clock(call: Callable[[], object]) -> float:
    """Seconds of a call on the clock."""
    return seconds_of(call)[0]


def blocks(count: int) -> Iterator[slice]:
    """All positions, a block at a time."""
    for start in range(0, count, _BLOCK):
        yield slice(start, min(start + _BLOCK, count))


def in_a_process(step: Step, folder: Path, bundle: fala.Bundle, count: int, seed: int) -> Figures:
    """A step's figures, with its memory."""

    def work(say: Say) -> None:
        figures = step(folder, bundle, count, seed)
        say({**figures, **{f"{step.__name__}_{name}": size for name, size in memory().items()}})

    click.echo(f"{count:,} texts: {step.__name__}", err=True)
    (figures,) = run_apart(work, limit=36_000).said
    return dict(figures)


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
