"""A user is a folder, or rows of one database: what many users cost on one machine.

    python benchmarks/users.py --users 1000
    python benchmarks/users.py --users 10000 --release minilm.fala --rows rows.jsonl
    TMPDIR=/dev/shm python benchmarks/users.py --users 1000 --only folder

A few users learn --labels texts by the device's own code. The others are copies of them: in a
folder each, with a link to the one release, and in one database, whose tables are the device's own
with a user in each key. Then both layouts run the device's statements: open a user, learn five
labels in two transactions. ``device_...`` is the device itself on a folder, with its encoder and
fit. ``at_once`` counts the learns in a second of several processes, of users at random: a folder is
opened and closed for each, the database stays open.

To delete without a trace, a folder is erased (``Device.erase``); a text is forgotten
(``Device.forget``). In the database SQLite overwrites deleted rows (``secure_delete``), and
``VACUUM`` writes all anew. ``traces`` are texts of the deleted user in the bytes of all files
afterwards. Written bytes are the kernel's count. The command fails if a folder leaves a trace.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import multiprocessing
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from support.many_users import disk_kilobytes
from support.measuring import benchmark, resident_megabytes, seconds_of
from support.user_rows import STORE, Database, Folders

import fala
import fala.testing
import fala_sim

#: Users that learn by the device's own code; measured calls of each kind; open users in memory;
#: users of the device itself, and those of them that are open before the others are measured.
TEMPLATES, CALLS, OPEN, DEVICES, WARM = 8, 100, 100, 60, 5
#: Labels that a user learns at once.
FEW = 5
MARK = "written by the deleted user"

Layout = Folders | Database
LAYOUTS: dict[str, Callable[[Path], Layout]] = {"folder": Folders, "database": Database}


def figures(call: Callable[[int], AbstractContextManager[Callable[[], object]]],
            users: Sequence[int]) -> dict[str, float]:  # fmt: skip
    """Milliseconds of a call for each of some users, on the clock and of processor time."""
    clock, processor = [], []
    for user in users:
        with call(user) as timed:
            seconds = seconds_of(timed)
        clock.append(1000 * seconds[0])
        processor.append(1000 * seconds[1])
    p50, p99 = np.quantile(clock, [0.5, 0.99]).tolist()
    return {"ms": p50, "p99_ms": p99, "processor_ms": float(np.mean(processor))}


def written(call: Callable[[], object]) -> dict[str, float]:
    """Seconds of a call, and megabytes that it writes."""

    def count() -> int:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["write_bytes"])

    before = count()
    seconds, _ = seconds_of(call)
    return {"seconds": seconds, "written_mb": (count() - before) / 1e6}


def few(number: int, mark: str = "") -> list[str]:
    """Texts that no user has."""
    return [f"another text {number} {each} {mark}" for each in range(FEW)]


def work(name: str, root: Path, users: int, seconds: float, seed: int, results: Any) -> None:  # noqa: ANN401
    """Learn without a pause, as one of several processes."""
    layout, draw, clock = LAYOUTS[name](root), random.Random(seed), list[float]()
    until = time.monotonic() + seconds

    def learn() -> None:
        with layout.user(draw.randrange(users)) as user:
            user.learn(few(len(clock), f"of process {seed}"))

    while time.monotonic() < until:
        clock.append(seconds_of(learn)[0])
    results.put(clock)


def at_once(name: str, root: Path, users: int, seconds: float, count: int) -> dict[str, float]:
    """The learns in a second of several processes, and the slowest of 100 of them."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=work, args=(name, root, users, seconds, 100 * count + at, results))
        for at in range(count)
    ]
    for process in processes:
        process.start()
    clock = [seconds for _ in processes for seconds in results.get()]
    for process in processes:
        process.join()
    return {"a_second": len(clock) / seconds, "p99_ms": 1000 * float(np.quantile(clock, 0.99))}


def traces(root: Path) -> int:
    """How often the files contain the deleted user's mark."""
    count = 0
    for file in root.rglob(f"{STORE}*"):
        if file.stat().st_size:
            with (
                file.open("rb") as stream,
                mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
            ):
                count += len(re.findall(MARK.encode(), content))
    return count


def disk(root: Path, users: int) -> dict[str, float]:
    """Kilobytes and files of a user on the disk, but of the release."""
    files = sum(file.suffix != ".fala" for file in root.rglob("*"))
    return {"kilobytes": disk_kilobytes([root]) / users, "files": files / users}


def memory(layout: Layout, users: int) -> dict[str, float]:
    """Kilobytes of memory and file descriptors of each open user."""

    def state() -> tuple[float, int]:
        return resident_megabytes(), len(list(Path("/proc/self/fd").iterdir()))

    with contextlib.ExitStack() as opened:
        before, count = state(), min(OPEN, users)
        for number in range(count):
            opened.enter_context(layout.user(number)).open()
        after = state()
    return {
        "kilobytes": 1000 * (after[0] - before[0]) / count,
        "descriptors": (after[1] - before[1]) / count,
    }


def device(folders: Folders, users: Sequence[int]) -> dict[str, Any]:
    """The same with the device itself, while another one has the release open."""

    @contextmanager
    def opening(user: int) -> Iterator[Callable[[], object]]:
        opened = list[fala.Device]()
        yield lambda: opened.append(fala.Device.open(folders.folder(user)))
        opened[0].close()

    @contextmanager
    def learning(user: int) -> Iterator[Callable[[], object]]:
        with fala.Device.open(folders.folder(user)) as each:
            each.predict(few(0))
            mark = MARK if user == users[-1] else ""
            yield lambda: each.learn(few(user, mark), [0, 1, 0, 1, 1])

    @contextmanager
    def forgetting(user: int) -> Iterator[Callable[[], object]]:
        with fala.Device.open(folders.folder(user)) as each:
            yield lambda: each.forget([1])

    with contextlib.ExitStack() as opened:
        opened.enter_context(fala.Device.open(folders.folder(users[0]))).predict(few(0))
        users = users[1:]
        record: dict[str, Any] = {
            "device_open": figures(opening, users),
            "device_learn": figures(learning, users),
            "device_forget": figures(forgetting, users),
        }
    context = multiprocessing.get_context("spawn")  # whose memory nothing has used before
    with ProcessPoolExecutor(1, mp_context=context) as process:
        record["device_kilobytes"] = process.submit(device_memory, folders.root, users).result()
    return record


def device_memory(root: Path, users: Sequence[int]) -> dict[str, float]:
    """Kilobytes of an open device beside others, after its first prediction, and its next fit."""
    folders, record = Folders(root), dict[str, float]()
    with contextlib.ExitStack() as opened:

        def opening(users: Sequence[int]) -> list[fala.Device]:
            return [opened.enter_context(fala.Device.open(folders.folder(each))) for each in users]

        for each in opening(users[:WARM]):
            each.predict(few(0))
            each.learn(few(0, "and once more"), [0, 1, 0, 1, 1])
        before, devices = resident_megabytes(), opening(users[WARM:])
        for each in devices:
            each.predict(few(0))
        record["predicted"] = 1000 * (resident_megabytes() - before) / len(devices)
        for each in devices:
            each.learn(few(0, "and once more"), [0, 1, 0, 1, 1])
        record["learned"] = 1000 * (resident_megabytes() - before) / len(devices)
    return record


class Record(dict[str, Any]):
    """Figures, which are shown when they come: with many users the next takes minutes."""

    def __setitem__(self, name: str, figure: object) -> None:
        click.echo(f"{name}: {figure}", err=True)
        super().__setitem__(name, figure)


def measure(layout: Layout, name: str, users: int, seconds: float, seed: int) -> dict[str, Any]:
    """All figures of a layout."""
    draw, deleted = random.Random(seed), users - 1
    # The device needs models that its own fits have made.
    of_device = range(max(users // 2, users - DEVICES), users)
    others = range(of_device.start)
    some = draw.sample(others, min(CALLS, len(others)))

    @contextmanager
    def opening(user: int) -> Iterator[Callable[[], object]]:
        with contextlib.ExitStack() as opened:
            yield lambda: opened.enter_context(layout.user(user)).open()

    @contextmanager
    def learning(user: int) -> Iterator[Callable[[], object]]:
        with layout.user(user) as each:
            each.open()
            yield lambda: each.learn(few(user))

    record = Record()
    record["disk"] = disk(layout.root, users)
    record["memory"] = memory(layout, users)
    record["open"] = figures(opening, some)
    record["learn"] = figures(learning, some)
    for count in (1, 2, 8):
        record[f"at_once_{count}"] = at_once(name, layout.root, len(others), seconds, count)
    if isinstance(layout, Folders):
        for figure, value in device(layout, of_device).items():
            record[figure] = value
    else:
        for number in range(DEVICES):  # beside other users, whose rows come between
            for user, mark in ((deleted, MARK), (draw.choice(others), "")):
                with layout.user(user) as each:
                    each.learn(few(number + 1_000_000, mark))
    copy = layout.root.with_name("copy")
    record["back_up_one"] = written(lambda: layout.back_up(deleted, copy))
    record["back_up_one"]["megabytes"] = copy.stat().st_size / 1e6
    copy.unlink()
    record["back_up_all"] = written(lambda: layout.back_up_all(copy))
    shutil.rmtree(copy)
    record["traces_before"] = traces(layout.root)
    if isinstance(layout, Folders):
        with fala.Device.open(layout.folder(deleted)) as each:
            record["delete"] = written(each.erase)
    else:
        with layout.user(deleted) as each:
            record["delete_rows"] = written(each.delete)
        layout.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        record["traces_of_rows"] = traces(layout.root)
        record["delete"] = written(layout.rewrite)
    record["traces"] = traces(layout.root)
    return record


def make_templates(folder: Path, release: Path, texts: Sequence[str], labels: int) -> list[Path]:
    """Users that learn by the device's own code."""
    paths, releases = [], fala.Releases(folder.parent / "releases")
    for number in range(TEMPLATES):
        paths.append(folder / str(number))
        with fala.Device.create(paths[-1], release, releases=releases) as each:
            chosen = random.Random(number).sample(texts, labels)
            each.learn(chosen, [each.labels[at % 2] for at in range(labels)])
            each.predict(chosen[:1])
    return paths


@benchmark
@click.option("--users", default=1_000, show_default=True)
@click.option("--labels", default=100, show_default=True, help="Of each user.")
@click.option("--release", type=click.Path(path_type=Path), help="By default the built-in bert.")
@click.option("--rows", type=click.Path(path_type=Path), help="JSON lines with texts.")
@click.option("--seconds", default=10.0, show_default=True, help="Of learning at once.")
@click.option("--only", type=click.Choice(list(LAYOUTS)), help="Measure one layout.")
def main(
    users: int,
    labels: int,
    release: Path | None,
    rows: Path | None,
    seconds: float,
    only: str | None,
    seed: int,
) -> dict[str, Any]:
    """Measure both layouts."""
    texts = fala.testing.texts()
    if rows is not None:
        lines = rows.read_text(encoding="utf-8").splitlines()
        texts = list(dict.fromkeys(json.loads(line)["text"] for line in lines))
    record: dict[str, Any] = {"users": users}
    with tempfile.TemporaryDirectory(prefix="fala-") as temporary:
        folder = Path(temporary)
        release = release or fala_sim.sample_release("bert")
        templates = make_templates(folder / "templates", release, texts, labels)
        for name, layout_of in LAYOUTS.items():
            if only in (None, name):
                layout = layout_of(folder / name)
                filling, _ = seconds_of(lambda: layout.fill(templates, users))  # noqa: B023
                click.echo(f"{name}: filled in {filling:.0f} s", err=True)
                record[name] = measure(layout, name, users, seconds, seed)
                shutil.rmtree(folder / name)
    record["wrong"] = record.get("folder", {}).get("traces", 0)
    return record


if __name__ == "__main__":
    main()
