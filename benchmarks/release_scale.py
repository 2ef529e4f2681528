"""A release of very many rows: seconds per million rows and memory of each step.

    python benchmarks/release_scale.py
    python benchmarks/release_scale.py --rows 100000 --rows 10000000 --json

The rows are generated: N rows of N / 10 people on N / 4 documents of twelve words; few people have
many rows, and most have few. Word vectors are the backbone. A label follows the words, the
person's taste and chance. ``fala-export release`` makes a release of them in a process of its own,
with a head with words, a bridge from an earlier release, scales, and a check.

For each number of rows the table has the file's size and the seconds for generating it; then for
each step the seconds per million rows, and the peak over its time of the anonymous memory of all
the command's processes (``RssAnon`` of Linux): mapped files are not in it. The step ``rows`` starts
the command, which takes seconds whatever the number of rows, and reads them.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.documents import write_release, write_word_vectors
from support.measuring import benchmark, timed

_WORDS, _LENGTH = 20_000, 12
_DIMENSION, _EARLIER = 50, 32
_TASTES = 8
# Rows that are generated together.
_CHUNK = 100_000
# One of so many people among the busiest twentieth plays a device.
_DEVICES = 20
_INTERVAL = 0.1  # seconds between two looks at the memory
_RECIPE = """
name = "scale"
data = "rows.csv"

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
        self.words = [f"w{number}" for number in range(_WORDS)]
        # The first words are the most frequent.
        drawn = random.random((self._documents, _LENGTH), dtype=np.float32)
        self._texts = (_WORDS * drawn**2).astype(np.int16)
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
            words = self._texts[documents]
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


def write_rows(path: Path, world: World) -> None:
    """Write the rows, a chunk at a time."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("user", "split", "text", "label"))
        for rows in world.chunks():
            writer.writerows(rows)


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


def memory_fields(process: int) -> dict[str, int]:
    """The memory of a process by Linux's names, such as ``RssAnon``, in bytes, and ``PPid``."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    sizes = {name: 1024 * int(value.split()[0]) for name, value in fields.items() if " kB" in value}
    return sizes | {"PPid": int(fields["PPid"])}


def memory_of(process: int) -> int:
    """The anonymous memory of a process and its children, in bytes."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has just ended
            fields = dict(re.findall(r"^(PPid|RssAnon):\s+(\d+)", status.read_text(), re.MULTILINE))
            number = int(status.parent.name)
            parents[number], sizes[number] = int(fields["PPid"]), int(fields.get("RssAnon", 0))
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return 1024 * sum(sizes.get(member, 0) for member in family)


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


def figures_of(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """Generate the rows, and make the release."""
    folder.mkdir()
    path, world = folder / "rows.csv", World(rows, seed)
    click.echo(f"{rows:,} rows: generating", err=True)
    generating = timed(write_rows, path, world).clock
    write_vectors(folder, world, seed)
    (folder / "recipe.toml").write_text(_RECIPE)
    click.echo(f"{rows:,} rows: release", err=True)
    return {
        "file_megabytes": path.stat().st_size / 1e6, "generating_seconds": generating,
        **release(folder, rows),
    }  # fmt: skip


@benchmark
@click.option(
    "--rows", "numbers", multiple=True, type=click.IntRange(1_000), default=(100_000,),
    show_default=True, help="Numbers of rows; again for more.",
)  # fmt: skip
def main(numbers: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Measure the release of each number of rows."""
    record: dict[str, Any] = {"rows": max(numbers)}
    for count in numbers:
        with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
            record[f"{count:,}"] = figures_of(Path(temporary, "release"), count, seed)
    return record


if __name__ == "__main__":
    main()
