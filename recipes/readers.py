"""Errors of the models of ``fala demo`` for each invented reader, as a table.

    python recipes/readers.py

Means over seeds of the posts' order: wrong decisions on 100 unseen posts at a probability of 1/2,
and AUC in brackets.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

import fala
import fala_sim
from fala_sim.playground.page.posts import PASSES, TASTES, Posts, posts_of
from fala_sim.playground.page.view import column_of


def scores(posts: Posts, folder: Path) -> Iterator[tuple[float, float]]:
    """Wrong decisions and AUC of each column of the table, in its order."""
    truth = dict(enumerate(posts.truth))

    def score(device: fala.Device) -> tuple[float, float]:
        column = column_of(device, posts.unseen)
        return column.wrong(truth), column.auc(truth) or np.nan

    with fala.Device.create(folder / "vendor", fala_sim.sample_release("bert")) as vendor:
        yield score(vendor)
    with fala.Device.create(folder / "mine", fala_sim.sample_release("glove")) as device:
        device.learn(list(posts.documents), list(posts.labels))
        yield score(device)
        device.replace(fala_sim.sample_release("bert"), fala.Budget(0))
        yield score(device)
        for passes in (PASSES, len(posts.documents)):
            device.refine(fala.Budget(passes))
            yield score(device)


@click.command()
@click.option("--seeds", default=6, show_default=True)
def main(seeds: int) -> None:
    """Print a row for each reader."""
    for reader, taste in enumerate(TASTES, 1):
        runs = []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(list(scores(posts_of(seed, reader), Path(folder))))
        cells = [f"{wrong:.0f} ({auc:.2f})" for wrong, auc in np.mean(runs, axis=0)]
        click.echo(f"| {' | '.join([taste, *cells])} |")


if __name__ == "__main__":
    main()
