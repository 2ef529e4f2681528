"""Replace for all: many users of a machine are carried to a new release, while some are served.

    python benchmarks/replace_all.py --users 200
    python benchmarks/replace_all.py --users 10000 --passes 0 --folder users --old glove.fala
        --new minilm.fala --rows rows.jsonl
    python benchmarks/replace_all.py --users 200 --ray

Every user has --labels labels of texts that are drawn from the same --pool texts: those of --rows,
or words at random. The users are made once in --folder, and copied for each number of passes; a run
that was interrupted or killed goes on where it was, the replacement too. Without --folder all is in
a temporary folder.

Reported are the disk beside the releases, a user; the memory with 100 devices open; the seconds of
the replacement on --jobs processes, or on a Ray cluster of so many workers on this machine (--ray),
with what it did; and the predictions of 50 users by another process, which also learns: before the
replacement and during it. ``wrong`` counts the users that do not have the new release, or lack a
label that was learned before or meanwhile.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from support.many_users import (
    Make,
    Serve,
    copy,
    disk_kilobytes,
    labelled,
    memory,
    pool_of,
    quantiles,
)
from support.measuring import benchmark

import fala
import fala_sim
from fala.cli import device_progress, progress
from fala_sim.engine import open_engine, spread

Result = TypeVar("Result")

_OPEN, _ACTIVE = 100, 50
_SETTLES = 3.0  # seconds of predictions before the replacement


def in_processes(count: int) -> ProcessPoolExecutor:
    """Other processes, of the priority of this one."""
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def done_for(
    what: str, function: Callable[[Any], Result], items: list[Any], jobs: int
) -> list[Result]:
    """The results of a function for items in other processes, with progress."""
    results = []
    with progress(what, len(items)) as bar, in_processes(jobs) as pool:
        for result in pool.map(function, items, chunksize=10):
            results.append(result)
            bar.update(1)
    return results


@contextmanager
def serving(folders: list[Path], texts: list[str], scratch: Path) -> Iterator[dict[str, Any]]:
    """Let another process predict for users inside; what it measured is there afterwards."""
    marks = [scratch / name for name in ("ready", "began", "ended")]
    for mark in marks:
        mark.unlink(missing_ok=True)
    ready, began, ended = marks
    measured: dict[str, Any] = {}
    with in_processes(1) as pool:
        result = pool.submit(Serve(tuple(folders), tuple(texts), *marks))
        try:
            while not ready.exists() and not result.done():
                time.sleep(0.1)
            time.sleep(_SETTLES)
            began.touch()
            yield measured
        finally:
            ended.touch()
        measured |= result.result()


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
@click.option("--folder", type=click.Path(path_type=Path), help="Where the users are kept.")
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
    folder: Path | None,
    seed: int,
) -> dict[str, Any]:
    """Replace for all, and measure."""
    old, new = old or fala_sim.sample_release("glove"), new or fala_sim.sample_release("bert")
    with tempfile.TemporaryDirectory() as temporary:
        root = folder or Path(temporary)
        learned, run = root / "learned", root / f"passes-{passes}"
        for made in (learned, run):
            made.mkdir(parents=True, exist_ok=True)
        releases = fala.Releases(root / "releases")
        texts = pool_of(rows, pool, seed)
        make = Make(learned, releases.path, old, texts, labels)
        releases.add(old)
        began = time.perf_counter()
        done_for("users made", make, list(range(users)), jobs)
        making = time.perf_counter() - began
        names = [f"user-{number:06}" for number in range(users)]
        done_for("users copied", copy, [(learned / name, run / name) for name in names], jobs)
        folders = [run / name for name in names]
        record: dict[str, Any] = {
            "users": users, "passes": passes, "making_seconds": making,
            "disk_kilobytes_a_user": disk_kilobytes([learned / name for name in names]),
            **done_for("memory", memory, [[learned / name for name in names[:_OPEN]]], 1)[0],
        }  # fmt: skip
        workers = spread(open_engine("ray", jobs=jobs, address=None)) if ray else jobs
        active = folders[:: max(users // _ACTIVE, 1)][:_ACTIVE]
        with (
            serving(active, [text for text, _ in texts], root) as measured,
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
