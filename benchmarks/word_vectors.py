"""Memory and time of exporting a large text file of word vectors, beside plainly reading it.

    python benchmarks/word_vectors.py /tmp
    python benchmarks/word_vectors.py /tmp --words 100000 --precision float16 --json

The file is made in the folder given, about one gigabyte by default, and taken away again: random
numbers with five decimals, of which 2,000 rows repeat under ever new words. Each way reads it in a
fresh process: the whole command `fala-export word-vectors`; the peer, which parses the file number
by number with float() into a float32 matrix and writes nothing; and passing over its lines, the
least that anything can take. On a busy machine the clock tells what else ran, so processor time
stands beside it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.measuring import benchmark

_ROWS = 2_000
_MEGABYTE = 1_000_000
_KIBIBYTE = 1_024

_EXPORT = "import sys; from fala_export.cli import main; main(sys.argv[1:])"
_LINES = """
import sys
with open(sys.argv[1], "rb") as stream:
    assert sum(1 for _ in stream) == int(sys.argv[2])
"""
_PEER = """
import sys
import numpy as np
words = []
vectors = np.empty((int(sys.argv[2]), int(sys.argv[3])), dtype=np.float32)
with open(sys.argv[1], "rb") as stream:
    for row, line in enumerate(stream):
        word, *numbers = line.split()
        words.append(word.decode())
        vectors[row] = [float(number) for number in numbers]
"""


def write_vectors(path: Path, words: int, dimension: int, seed: int) -> None:
    """Write a file in GloVe's text format."""
    numbers = np.random.default_rng(seed).normal(0, 0.4, (_ROWS, dimension))
    rows = [" ".join(f"{number:.5f}" for number in row).encode() for row in numbers]
    with path.open("wb") as stream:
        for word in range(words):
            stream.write(b"word%d %s\n" % (word, rows[word % _ROWS]))


def measure(program: str, arguments: Sequence[str]) -> dict[str, float]:
    """Seconds and peak memory of a program in a fresh process.

    Raises:
        ClickException: It failed.
    """
    start = time.perf_counter()
    command = [sys.executable, "-c", program, *arguments]
    null = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, command, os.environ, file_actions=null)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise click.ClickException(f"ended with status {os.waitstatus_to_exitcode(status)}")
    return {
        "seconds": time.perf_counter() - start,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_megabytes": usage.ru_maxrss * _KIBIBYTE / _MEGABYTE,
    }


@benchmark
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--words", type=click.IntRange(1), default=400_000, show_default=True)
@click.option("--dimension", type=click.IntRange(1), default=300, show_default=True)
@click.option(
    "--precision", type=click.Choice(["int8", "float16"]), default="int8", show_default=True
)
def main(folder: Path, words: int, dimension: int, precision: str, seed: int) -> dict[str, Any]:
    """Measure the three ways."""
    with tempfile.TemporaryDirectory(prefix="fala-", dir=folder) as temporary:
        source, out = Path(temporary, "vectors.txt"), Path(temporary, "vectors.fala")
        write_vectors(source, words, dimension, seed)
        shape = [str(source), str(words), str(dimension)]
        lines = measure(_LINES, shape)  # first, so that the file is in the disk's cache for all
        export = measure(
            _EXPORT,
            ["word-vectors", str(source), "--out", str(out), "--precision", precision],
        )
        peer = measure(_PEER, shape)
        return {
            "megabytes": source.stat().st_size / _MEGABYTE,
            "bundle_megabytes": out.stat().st_size / _MEGABYTE,
            "export": export,
            "peer": peer,
            "lines": lines,
            "processor_ratio": export["processor_seconds"] / peer["processor_seconds"],
        }


if __name__ == "__main__":
    main()
