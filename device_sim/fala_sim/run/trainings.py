"""What experiments share that train by the vendor's command: adapters' and writers' prompts'."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from fala import DataError, FalaError
from fala.release import Row, read_rows, write_atomically
from fala_sim.engine.task import Call, Needs, Say, Task
from fala_sim.records import Key, Kind, read_records, recorded
from fala_sim.run.plan import OtherPlanError, Plan
from fala_sim.run.sources import TUNED, Source, find_source

Found = TypeVar("Found")

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
    variant: str
    options: tuple[str, ...]


def trainable(plan: Plan, what: str) -> Source:
    """The plan's new backbone, of which ``folder_of`` is what is trained.

    Args:
        plan: What is asked.
        what: Is trained on it, for the message.

    Raises:
        DataError: There is no such backbone, or it cannot be trained.
    """
    source = find_source(plan.new, plan.work)
    if source.transformer is None or source.tuned:
        raise DataError(
            f"--new {plan.new}: {what} are trained on minilm, or on a Hugging Face folder; "
            f"{'without ' + TUNED if source.tuned else 'a bundle has its graph alone'}"
        )
    return source


def folder_of(source: Source) -> Path:
    """The Hugging Face folder of a source that is trained."""
    if source.transformer is None:
        raise TypeError("a source that is trained has a folder")
    return source.transformer


def prepare_all(
    names: Iterable[str], prepare: Callable[[str], Found], say: Say
) -> tuple[list[Found], list[str]]:
    """What is prepared of some data sets, and one line for each that cannot be.

    Raises:
        OtherPlanError: The folder holds the records of another plan.
    """
    found: list[Found] = []
    failures: list[str] = []
    for name in names:
        one = _prepared(name, prepare)
        if isinstance(one, FalaError):
            say(f"{name}: left out: {one}")
            failures.append(f"{name}: {one}")
        else:
            found.append(one)
    return found, failures


def check_records(
    results: Path, kinds: Sequence[Kind], name: str, new: str, digests: Mapping[str, str]
) -> None:
    """See that records are of this plan's data and backbone, and not of others.

    Raises:
        OtherPlanError: One is of another plan.
    """
    for kind in kinds:
        for record in read_records(results, kind):
            if record["data"] == name and record["digests"] != digests:
                raise OtherPlanError(
                    f"{results}: has records of {name} with other data or other rows of it, or "
                    f"with another backbone than this {new}; name another folder with --results"
                )


class Prepared(Protocol):
    """What a data set's trainings work with."""

    @property
    def folder(self) -> Path:
        """Of what is trained, in the run's work."""

    @property
    def transformer(self) -> Path:
        """The Hugging Face folder of what is trained."""


def task_of(
    results: Path,
    prepared: Prepared,
    named: Key,
    job: partial[Any],
    keys: Sequence[Key] = (),
    last: Key | None = None,
) -> Task:
    """A training, or what is asked of one.

    Args:
        results: The run's folder.
        prepared: What the job is given.
        named: What it is called after.
        job: What is run; where there are ``keys``, told with ``done`` which are recorded.
        keys: Of its records, where they are several.
        last: Of the record that it gives after these, which says that it is done; None where all
            of them say so, or that of its name where it gives no other.
    """
    label = (named.kind, named.data, named.method, named.variant, f"seed {named.seed}")
    needed = [last] if last is not None else list(keys) or [named]

    def make() -> Call:
        prepared.folder.mkdir(parents=True, exist_ok=True)
        there = frozenset(one for one in keys if recorded(results, one))
        asked = partial(job, done=there) if keys else job
        return Call(asked, lambda: [prepared.transformer], prepared.folder)

    def done() -> bool:
        return all(recorded(results, one) for one in needed)

    return Task(" ".join(filter(None, label)), make, done, _TRAINING)


def folder_name(key: Key) -> str:
    """Of what a key's training leaves, in the folder of its data set."""
    return "-".join(filter(None, (key.kind, key.method, key.variant, str(key.seed))))


def showing(name: str, *words: str) -> Say:
    """Shows those lines of a command's progress that have one of some words, behind a name."""

    def say(line: str) -> None:
        if any(word in line for word in words):
            click.echo(f"{name}: {line}", err=True)

    return say


def said_once(
    folder: Path, needed: Iterable[Path], train: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What a training said, from its folder where an earlier run has done it.

    Args:
        folder: Of the training; made where it is not there.
        needed: Files that it leaves.
        train: Runs it.

    Returns:
        What ``train`` gave, and its ``seconds``.
    """
    told = folder / "said.json"
    if not (told.is_file() and all(path.is_file() for path in needed)):
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        said = train()
        said["seconds"] = time.perf_counter() - start
        text = json.dumps(said)
        write_atomically(told, lambda part: _write(part, text))
    found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    return found


def rows_of(path: Path) -> list[Row]:
    """The rows of a file that was prepared."""
    with path.open("rb") as lines:
        return read_rows(lines)


def _prepared(name: str, prepare: Callable[[str], Found]) -> Found | FalaError:
    try:
        return prepare(name)
    except OtherPlanError:
        raise
    except FalaError as error:
        return error


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
