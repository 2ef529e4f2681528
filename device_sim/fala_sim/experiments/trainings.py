"""What the experiments share that train by the vendor: adapters' and writers' prompts'."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fala import Bundle, DataError, Head
from fala.release import Row, read_rows
from fala_sim.convert.output import save
from fala_sim.engine.task import Call, Needs, Task
from fala_sim.experiments.runner import OtherPlanError, Records
from fala_sim.records import Key, Kind, Store
from fala_sim.vendor import exporter
from fala_sim.vendor.sources import TUNED, Source, find_source

#: A training with its batches; more threads would gain it little.
_TRAINING = Needs(cpus=2, memory=6 * 2**30)


@dataclass(frozen=True)
class Trial:
    """One training.

    Attributes:
        kind: Of its record.
        method: Of the exporter's.
        variant: What sets it apart from others of the method.
        options: Of the exporter's command.
    """

    kind: Kind
    method: str
    variant: str = ""
    options: tuple[str, ...] = ()

    def key(self, data: str, seed: int) -> Key:
        """Of its record."""
        return Key(self.kind, data, self.method, "all", seed, self.variant)


@dataclass(frozen=True)
class Model:
    """A backbone that is trained.

    Attributes:
        name: In records.
        digest: Of its content.
        folder: As Hugging Face has it.
    """

    name: str
    digest: str
    folder: Path


def find_model(name: str, work: Path) -> Model:
    """The backbone that is trained.

    Args:
        name: Of ``--new``.
        work: The run's work folder.

    Raises:
        DataError: There is no such backbone, or it cannot be trained.
    """
    source: Source = find_source(name, work)
    if source.transformer is None or source.tuned:
        raise DataError(
            f"--new {name}: what is trained here is minilm, mpnet, or a Hugging Face folder; "
            f"{'without ' + TUNED if source.tuned else 'this is a graph alone'}"
        )
    return Model(source.name, source.digest, source.transformer)


def check_records(
    store: Store, kinds: Sequence[Kind], data: str, digests: Mapping[str, str]
) -> None:
    """See that records are of this plan's data and backbone, and not of others.

    Raises:
        OtherPlanError: One is of another plan.
    """
    for record in store.read(*kinds):
        if record["data"] == data and record["digests"] != digests:
            raise OtherPlanError(
                f"there are records of {data} with other data or other rows of it, or with another "
                "backbone of this name; name another folder with --results"
            )


def training_task(
    store: Store,
    key: Key,
    job: partial[Records],
    folders: tuple[Path, Path],
    keys: Sequence[Key] = (),
    last: Key | None = None,
) -> Task:
    """A training, or what is asked of one.

    Args:
        store: The run's records.
        key: What the job is called after.
        job: What is run; where there are ``keys``, told with ``done`` which are recorded.
        folders: The model's, and that in which the job works.
        keys: Of its records, where they are several.
        last: Of the record that it gives after these, which says that it is done; None where all
            of them say so, or that of its name where it gives no other.
    """
    model, folder = folders
    needed = [last] if last is not None else list(keys) or [key]

    def make() -> Call:
        folder.mkdir(parents=True, exist_ok=True)
        asked = partial(job, done=store.keys.intersection(keys)) if keys else job
        return Call(asked, lambda: [model], folder)

    return Task(str(key), make, partial(store.keys.issuperset, needed), _TRAINING)


def folder_name(key: Key) -> str:
    """Of what a key's training leaves, in the folder of its data set."""
    return "-".join(filter(None, (key.kind, key.method, key.variant, str(key.seed))))


def train_once(
    folder: Path,
    needed: Iterable[Path],
    words: Sequence[object],
    label: str,
    stale: Iterable[Path] = (),
) -> dict[str, Any]:
    """What a training by the exporter reported, from its folder where an earlier run has done it.

    Args:
        folder: Of the training; made where it is not there.
        needed: Files that it leaves.
        words: The exporter's command.
        label: Before each line of its progress.
        stale: Files that are of an earlier training, and go before another.

    Returns:
        What the command says of what it made, and its ``seconds``.
    """
    path = folder / "said.json"
    if not (path.is_file() and all(each.is_file() for each in needed)):
        folder.mkdir(parents=True, exist_ok=True)
        for each in stale:
            each.unlink(missing_ok=True)
        start = time.perf_counter()
        only = ("loss", "accuracy", "continuing")
        summary = exporter.run(*map(str, words), label=label, only=only)
        summary["seconds"] = time.perf_counter() - start
        save([json.dumps(summary).encode()], path)
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


def head_of(bundle: Bundle) -> Head:
    """The head of a bundle that was trained.

    Raises:
        DataError: It has none.
    """
    head = bundle.head()
    if head is None:
        raise DataError(f"{bundle.path}: has no head; remove it, and it is trained again")
    return head


def rows_of(path: Path) -> list[Row]:
    """The rows of a file that was prepared."""
    with path.open("rb") as lines:
        return read_rows(lines)
