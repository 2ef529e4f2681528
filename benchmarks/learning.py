"""Processor time of one more label on a device that knows many, beside a fit of all of them.

    python benchmarks/learning.py
    python benchmarks/learning.py --labels 20 --json

The device is a real one in a temporary folder, on word vectors that this command draws at random;
its user's labels follow a direction of their own. Every further label is one ``Device.learn``: kept
on the disk, encoded, fitted, and in the next ``predict``. The figures are medians, of all threads;
``move`` is how far the mean probability moves in the fit of all at the end.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from support.measuring import report

import fala
from fala.release import VECTORS, VOCABULARY, WORD_VECTORS, array_bytes

_WORDS = 2_000
_LENGTH = 12


def write_release(path: Path, dimension: int, labels: int, seed: int) -> fala.Bundle:
    """A release of random word vectors with a random head."""
    random = np.random.default_rng(seed)
    words = ["<unk>", *(f"w{number}" for number in range(_WORDS))]
    vectors = random.standard_normal((len(words), dimension)).astype(np.float16)
    files = {VOCABULARY: ("\n".join(words) + "\n").encode(), VECTORS: array_bytes(vectors)}
    manifest = fala.Manifest("random", WORD_VECTORS, dimension, "float16")
    logits = 1 if labels == 2 else labels
    names = [str(number) for number in range(labels)]
    weight = 0.1 * random.standard_normal((logits, dimension))
    head = fala.Head(
        "classification", names, weight.astype(np.float32), np.zeros(logits, np.float32)
    )
    fala.write_bundle(path, manifest, files, head)
    return fala.Bundle.open(path)


def learn(examples: int, further: int, dimension: int, labels: int, seed: int) -> dict[str, float]:
    """Learn many labels at once, and further ones one by one."""
    random = np.random.default_rng(seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_release(Path(folder) / "release.fala", dimension, labels, seed)
        words = random.integers(_WORDS, size=(examples + further, _LENGTH))
        texts = [" ".join(f"w{word}" for word in row) for row in words]
        z = bundle.backbone().encode(texts) @ random.standard_normal((dimension, max(labels, 2)))
        given = [str(int(place)) for place in z[:, :labels].argmax(axis=1)]
        with fala.Device.create(Path(folder) / "device", bundle.path) as device:
            device.learn(texts[:examples], given[:examples])
            one: list[float] = []
            for text, label in zip(texts[examples:], given[examples:], strict=True):
                start = time.process_time()
                device.learn([text], [label])
                one.append(time.process_time() - start)
            before = device.predict(texts)
            start = time.process_time()
            report = device.fit()
            whole = time.process_time() - start
            move = float(np.abs(device.predict(texts) - before).mean())
    median = statistics.median(one)
    return {
        "examples": examples, "dimension": dimension, "labels": labels,
        "one_more_ms": 1e3 * median, "all_ms": 1e3 * whole, "ratio": median / whole,
        "move": move, "loss": report.loss or 0.0,
    }  # fmt: skip


@click.command()
@click.option("--examples", default=1_000, show_default=True, help="Labels that it knows.")
@click.option("--further", default=30, show_default=True, help="Labels after those, one by one.")
@click.option("--dimension", default=384, show_default=True, help="Of the embeddings.")
@click.option("--labels", default=2, show_default=True, help="How many labels there are.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    examples: int, further: int, dimension: int, labels: int, seed: int, as_json: bool
) -> None:
    """Measure what one more label costs."""
    report(learn(examples, further, dimension, labels, seed), as_json=as_json)


if __name__ == "__main__":
    main()
