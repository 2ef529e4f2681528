"""A release of very many rows: seconds per million rows and memory of each step.

    python benchmarks/release_scale.py
    python benchmarks/release_scale.py --rows 1000000 --form parquet --json
    python benchmarks/release_scale.py --rows 100000 --rows 10000000 --folder scale

The rows are generated: N rows of N / 10 people on N / 4 documents of twelve words; few people have
many rows, and most have few. Word vectors are the backbone. A label follows the words, the
person's taste and chance. ``fala-export release`` makes a release of them in a process of its own,
with a head with words, a bridge from an earlier release, scales, and a check.

For each number of rows the table has the file's size and the seconds for generating it; then for
each step the seconds per million rows, and the peak over its time of the anonymous memory of all
the command's processes (``RssAnon`` of Linux): mapped files are not in it. The step ``rows`` starts
the command, which takes seconds whatever the number of rows, and reads them. With --folder, files
and finished figures are kept there, and an interrupted command resumes.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from support.documents import write_release, write_word_vectors
from support.measuring import benchmark, memory_fields

_WORDS, _LENGTH = 20_000, 12
_DIMENSION, _EARLIER = 50, 32
_TASTES = 8
# Rows that are generated together.
_CHUNK = 100_000
# One of so many people among the busiest twentieth plays a device.
_DEVICES = 20
_INTERVAL = 0.1  # seconds between two looks at the memory
_HEADER = ("user", "split", "text", "label")
_RECIPE = """
name = "scale"
data = "rows.{form}"

[word-vectors]
source = "vectors.txt"

[bridge]
from = ["earlier.fala"]

[scales]

[check]
from = "earlier.fala"
minimum_gain = -1.0
"""
_COMMAND = "import fala_command; fala_command.export()"
_STEP = re.compile(r"step \d+ of \d+: (.*)")


class World:
    """Words with vectors, people with tastes.

    Args:
        rows: The number of rows.
        seed: The seed of all draws.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._rows, self._seed = rows, seed
        self._people, self._documents = max(rows // 10, 400), max(rows // 4, 400)
        random = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        drawn = letters[random.integers(len(letters), size=(_WORDS, 5))]
        self.words = [f"{''.join(word)}{number % 10}" for number, word in enumerate(drawn)]
        self.words = [f"w{number}{word}" for number, word in enumerate(self.words)]
        self.vectors = random.standard_normal((_WORDS, _DIMENSION)).astype(np.float32)
        self._tastes = random.standard_normal((_TASTES + 1, _DIMENSION))

    def chunks(self) -> Iterator[list[tuple[str, str, str, int]]]:
        """The rows, many at once: user, split, text and label."""
        counts: dict[int, int] = {}
        for start in range(0, self._rows, _CHUNK):
            random = np.random.default_rng([self._seed, start])
            size = min(_CHUNK, self._rows - start)
            people = (self._people * random.random(size) ** 2).astype(np.int64)
            documents = random.integers(self._documents, size=size)
            words = self._words_of(documents)
            tastes = self._tastes[people % _TASTES] + self._tastes[_TASTES]
            logits = (self.vectors[words].mean(axis=1) * tastes).sum(axis=1)
            labels = random.random(size) < 1 / (1 + np.exp(-2 * logits))
            is_device = (people % _DEVICES == 7) & (people < self._people // 20)
            rows = []
            for person, device, row, label in zip(
                people.tolist(), is_device.tolist(), words.tolist(), labels.tolist(), strict=True
            ):
                split = "public"
                if device:
                    counts[person] = counts.get(person, 0) + 1
                    split = "train" if counts[person] % 3 else "test"
                text = " ".join([self.words[word] for word in row])
                rows.append((f"person{person}", split, text, int(label)))
            yield rows

    def _words_of(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """The words of each document, (n, 12); the first words are the most frequent."""
        numbers = documents[:, None].astype(np.uint64) * np.uint64(_LENGTH)
        numbers = numbers + np.arange(_LENGTH, dtype=np.uint64) + np.uint64(self._seed << 40)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
            numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
        share = (numbers >> np.uint64(11)).astype(np.float64) / 2**53
        return (_WORDS * share**2).astype(np.int64)


def write_rows(path: Path, world: World, form: str) -> None:
    """Write the rows, a chunk at a time, whole or not at all."""
    part = path.with_suffix(".part")
    with ExitStack() as stack:
        if form == "csv":
            stream = stack.enter_context(part.open("w", newline="", encoding="utf-8"))
            writer = csv.writer(stream)
            writer.writerow(_HEADER)
            for rows in world.chunks():
                writer.writerows(rows)
        else:
            import pyarrow
            from pyarrow import parquet

            types = [(name, pyarrow.string()) for name in _HEADER[:3]]
            schema = pyarrow.schema([*types, ("label", pyarrow.int64())])
            file = stack.enter_context(parquet.ParquetWriter(part, schema))
            for rows in world.chunks():
                columns = [list(column) for column in zip(*rows, strict=True)]
                file.write_table(pyarrow.table(columns, schema=schema))
    part.replace(path)


def write_vectors(folder: Path, world: World, seed: int) -> None:
    """The word vectors, and an earlier release: a projection of them, with a head."""
    with (folder / "vectors.txt").open("w", encoding="utf-8") as stream:
        for word, vector in zip(world.words, world.vectors, strict=True):
            stream.write(f"{word} {' '.join(f'{value:.4f}' for value in vector)}\n")
    random = np.random.default_rng(seed + 1)
    projected = world.vectors @ random.standard_normal((_DIMENSION, _EARLIER)) / _DIMENSION**0.5
    bundle = write_word_vectors(folder / "backbone.fala", "earlier", world.words, projected)
    rows = next(world.chunks())[:2_000]
    texts, labels = [row[2] for row in rows], [row[3] for row in rows]
    write_release(folder / "earlier.fala", bundle, texts, labels, words=False)


def memory_of(process: int) -> int:
    """The anonymous memory of a process and its children, in bytes."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        number = int(status.parent.name)
        with suppress(OSError):  # it has just ended
            fields = memory_fields(number)
            parents[number], sizes[number] = fields["PPid"], fields.get("RssAnon", 0)
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(sizes.get(member, 0) for member in family)


def release(folder: Path, rows: int) -> dict[str, Any]:
    """Make the release; the figures of each step."""
    command = [sys.executable, "-c", _COMMAND, "release", "recipe.toml", "--json"]
    marks = [("rows", time.perf_counter())]
    peaks: dict[str, int] = {}
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if process.stderr is None or process.stdout is None:
            raise TypeError("a process without pipes")

        def look() -> None:
            while process.poll() is None:
                name = marks[-1][0]
                peaks[name] = max(peaks.get(name, 0), memory_of(process.pid))
                time.sleep(_INTERVAL)

        watcher = threading.Thread(target=look)
        watcher.start()
        for line in process.stderr:
            if step := _STEP.match(line.strip()):
                marks.append((step[1], time.perf_counter()))
            click.echo(f"    {line.rstrip()}", err=True)
        summary = json.loads(process.stdout.read() or "{}")
        watcher.join()
    if process.returncode:
        raise click.ClickException(f"fala-export release ended with {process.returncode}")
    marks.append(("", time.perf_counter()))
    steps = {
        name: {
            "seconds_per_million": (end - start) * 1e6 / rows,
            "anonymous_megabytes": peaks.get(name, 0) / 1e6,
        }
        for (name, start), (_, end) in pairwise(marks)
    }
    seconds = marks[-1][1] - marks[0][1]
    return {
        "steps": steps, "seconds": seconds, "seconds_per_million": seconds * 1e6 / rows,
        "anonymous_megabytes": max(peaks.values()) / 1e6, "check": summary.get("check"),
    }  # fmt: skip


def figures_of(folder: Path, rows: int, form: str, seed: int) -> dict[str, Any]:
    """Generate the rows unless they are there, and make the release."""
    folder.mkdir(parents=True, exist_ok=True)
    done, path = folder / f"figures-{form}.json", folder / f"rows.{form}"
    if done.is_file():
        return dict(json.loads(done.read_text()))
    start, world = time.perf_counter(), World(rows, seed)
    if not path.is_file():
        click.echo(f"{rows:,} rows: generating", err=True)
        write_rows(path, world, form)
    generating = time.perf_counter() - start
    write_vectors(folder, world, seed)
    (folder / "recipe.toml").write_text(_RECIPE.format(form=form))
    click.echo(f"{rows:,} rows: release", err=True)
    shutil.rmtree(folder / "recipe.work", ignore_errors=True)  # a step that is done takes no time
    figures = {
        "file_megabytes": path.stat().st_size / 1e6,
        "generating_seconds": generating,
        **release(folder, rows),
    }
    done.write_text(json.dumps(figures))
    return figures


@benchmark
@click.option(
    "--rows", "numbers", multiple=True, type=click.IntRange(1_000), default=(100_000,),
    show_default=True, help="Numbers of rows; again for more.",
)  # fmt: skip
@click.option("--form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Kept, so that a run resumes.")
def main(numbers: tuple[int, ...], form: str, folder: Path | None, seed: int) -> dict[str, Any]:
    """Measure the release of each number of rows."""
    with ExitStack() as stack:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="fala-")
            folder = Path(stack.enter_context(temporary))
        record: dict[str, Any] = {"rows": max(numbers)}
        for count in numbers:
            record[f"{count:,}"] = figures_of(folder / str(count), count, form, seed)
        return record


if __name__ == "__main__":
    main()
