"""Replace for all: many users of a machine are carried to a new release, while some are served.

    python benchmarks/replace_all.py --users 200
    python benchmarks/replace_all.py --users 10000 --passes 0 --old glove.fala --new minilm.fala
        --rows rows.jsonl
    python benchmarks/replace_all.py --users 200 --ray

Every user has --labels labels of texts that are drawn from the same --pool texts: those of --rows,
or words at random.

Reported are the disk beside the releases, a user; the seconds of the replacement on --jobs
processes, or with --ray on as many workers of a Ray cluster on this machine, with what it did; and
the predictions of 50 users by another process, which also learns: before the replacement and during
it. ``wrong`` counts the users that do not have the new release, or lack a label that was learned
before or meanwhile.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from support.many_users import (
    disk_kilobytes,
    labelled,
    make_user,
    pool_of,
    quantiles,
    serve,
)
from support.measuring import benchmark, timed

import fala
import fala_sim
from fala.cli import device_progress, progress
from fala_sim.engine import open_engine, spread

Result = TypeVar("Result")

#: Processes that start without this one's threads.
SPAWN = multiprocessing.get_context("spawn")
_ACTIVE = 50
_SETTLES = 3.0  # seconds of predictions before the replacement


def done_for(
    what: str, function: Callable[[Path], Result], folders: list[Path], jobs: int
) -> list[Result]:
    """The results of a function for folders in other processes, with progress."""
    results = []
    with progress(what, len(folders)) as bar, ProcessPoolExecutor(jobs, mp_context=SPAWN) as pool:
        for result in pool.map(function, folders, chunksize=10):
            results.append(result)
            bar.update(1)
    return results


@contextmanager
def serving(folders: list[Path], texts: list[str]) -> Iterator[dict[str, Any]]:
    """Let another process predict for users inside; what it measured is there afterwards."""
    ready, began, ended = (SPAWN.Event() for _ in range(3))
    results, measured = SPAWN.Queue(), dict[str, Any]()
    server = SPAWN.Process(target=serve, args=(folders, texts, ready, began, ended, results))
    server.start()
    try:
        while not ready.wait(0.1) and server.is_alive():
            pass
        time.sleep(_SETTLES)
        began.set()
        yield measured
    finally:
        ended.set()
    measured |= results.get(timeout=60)
    server.join()


@benchmark
@click.option("--old", type=click.Path(path_type=Path), help="The users' release.")
@click.option("--new", type=click.Path(path_type=Path), help="The new release.")
@click.option("--rows", type=click.Path(path_type=Path), help="Rows whose texts are drawn from.")
@click.option("--users", type=click.IntRange(1), default=100, show_default=True)
@click.option("--labels", type=click.IntRange(2), default=100, show_default=True)
@click.option("--pool", type=click.IntRange(2), default=5_000, show_default=True)
@click.option("--passes", type=click.IntRange(0), default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True)
@click.option("--ray", is_flag=True, help="Replace on a Ray cluster of this machine.")
def main(
    old: Path | None,
    new: Path | None,
    rows: Path | None,
    users: int,
    labels: int,
    pool: int,
    passes: int,
    jobs: int,
    ray: bool,
    seed: int,
) -> dict[str, Any]:
    """Replace for all, and measure."""
    old, new = old or fala_sim.sample_release("glove"), new or fala_sim.sample_release("bert")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        releases, texts = fala.Releases(root / "releases"), pool_of(rows, pool, seed)
        releases.add(old)
        folders = [root / "users" / f"{number:06}" for number in range(users)]
        make = partial(make_user, releases=releases.path, release=old, pool=texts, labels=labels)
        making = timed(done_for, "users made", make, folders, jobs).clock
        record: dict[str, Any] = {
            "users": users, "passes": passes, "making_seconds": making,
            "disk_kilobytes_a_user": disk_kilobytes(folders),
        }  # fmt: skip
        workers = spread(open_engine("ray", jobs=jobs, address=None)) if ray else jobs
        active = folders[:: max(users // _ACTIVE, 1)][:_ACTIVE]
        with (
            serving(active, [text for text, _ in texts]) as measured,
            device_progress("users replaced") as show,
        ):
            result = fala.replace_all(
                folders, new, releases=releases, budget=fala.Budget(passes), workers=workers,
                progress=show,
            )  # fmt: skip
        for name in ("before", "during"):
            record |= quantiles(measured[name], f"predict_{name}")
        expected = {str(each): labels + measured["learned"].get(str(each), 0) for each in folders}
        state = done_for("users checked", labelled, folders, jobs)
        wrong = len(folders) - len(state) + sum(
            backbone != result.new or count < expected[each] for each, backbone, count in state
        )  # fmt: skip
        figures = result.to_dict()
        figures.pop("failures")
        return {
            **record, "disk_after_kilobytes_a_user": disk_kilobytes(folders),
            "replacement": figures, "learned_meanwhile": sum(measured["learned"].values()),
            "wrong": wrong,
        }  # fmt: skip


if __name__ == "__main__":
    main()
