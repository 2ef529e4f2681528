"""Wrong decisions of the models of ``fala demo`` for each invented reader: docs/built-in.md.

    python recipes/readers.py

runs all readers and orders of the posts, keeps their counts in ``recipes/readers.json``, and prints
the table. A test compares it, and the words about the page's picture, with the documentation.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click
import numpy as np

import fala
import fala_sim
from fala_sim.playground.page.posts import PASSES, TASTES, Posts, posts_of
from fala_sim.playground.page.view import column_of
from fala_sim.playground.page.visit import BATCH

RECORD = Path(__file__).with_suffix(".json")
SEEDS = 6  # orders of the posts


def wrong_decisions(posts: Posts) -> list[int]:
    """Wrong decisions on the unseen posts.

    Returns:
        The counts of the new model alone, of the old personal model, and of FaLA: with no forward
        pass, after ``PASSES`` texts in the page's batches, and after all texts.
    """
    truth = dict(enumerate(posts.truth))
    with tempfile.TemporaryDirectory() as folder:
        with fala.Device.create(Path(folder, "vendor"), fala_sim.sample_release("bert")) as vendor:
            wrong = [column_of(vendor, posts.unseen).wrong(truth)]
        with fala.Device.create(Path(folder, "mine"), fala_sim.sample_release("glove")) as device:
            device.learn(list(posts.documents), list(posts.labels))
            wrong.append(column_of(device, posts.unseen).wrong(truth))
            device.replace(fala_sim.sample_release("bert"), fala.Budget(0))
            wrong.append(column_of(device, posts.unseen).wrong(truth))
            for batches, size in ((PASSES // BATCH, BATCH), (1, len(posts.documents))):
                for _ in range(batches):
                    device.refine(fala.Budget(size))
                wrong.append(column_of(device, posts.unseen).wrong(truth))
    return wrong


def table() -> list[str]:
    """A row for each reader: means over the orders."""
    record = json.loads(RECORD.read_text("utf-8"))
    return [
        f"| {' | '.join([taste, *(f'{wrong:.0f}' for wrong in np.mean(runs, axis=0))])} |"
        for taste, runs in zip(TASTES, record, strict=True)
    ]


@click.command()
def main() -> None:
    """Run all readers."""
    runs = [
        [wrong_decisions(posts_of(seed, reader)) for seed in range(SEEDS)]
        for reader in range(1, 1 + len(TASTES))
    ]
    RECORD.write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n", "utf-8")
    click.echo("\n".join(table()))


if __name__ == "__main__":
    main()
