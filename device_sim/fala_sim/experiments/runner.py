"""Has jobs run by an engine, and alone writes what they give."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

from fala import DataError, FalaError
from fala_sim.engine.task import Call, Ended, Engine, Log, Task
from fala_sim.records import Key, Store

Parameters = ParamSpec("Parameters")
Asked = TypeVar("Asked")
Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Made:
    """A record, as a job gives it.

    Attributes:
        key: Of the record.
        content: Plain values.
        spent: Files and folders of the run's work that nothing needs once this is recorded.
    """

    key: Key
    content: Mapping[str, Any]
    spent: tuple[Path, ...] = ()


#: What a job is: it gives each record as soon as there is one, so that none is lost with a later.
Records: TypeAlias = "Iterator[Made]"


class OtherPlanError(DataError):
    """A folder has the records of another plan than the one that is asked."""


def prepare_all(
    names: Iterable[str], prepare: Callable[[str], Subject], log: Log
) -> tuple[list[Subject], list[str]]:
    """What is prepared of some data sets, and one line for each that cannot be.

    Raises:
        OtherPlanError: The folder holds the records of another plan.
    """
    prepared: list[Subject] = []
    failures: list[str] = []
    for name in names:
        result = _attempt(prepare, name)
        if isinstance(result, FalaError):
            log(f"{name}: left out: {result}")
            failures.append(f"{name}: {result}")
        else:
            prepared.append(result)
    return prepared, failures


def timed(job: Callable[Parameters, Records]) -> Callable[Parameters, Records]:
    """A job whose records tell the ``seconds`` that each took."""

    @wraps(job)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> Records:
        start = time.perf_counter()
        for made in job(*arguments, **options):
            yield replace(made, content={**made.content, "seconds": time.perf_counter() - start})
            start = time.perf_counter()

    return run


def run_tasks(tasks: Iterable[Task], store: Store, *, engine: Engine, log: Log) -> list[str]:
    """Run what is not recorded yet; see ``run_all``.

    Args:
        tasks: What there is to do; its jobs give ``Made``.
        store: Takes the records.
        engine: Runs them.
        log: Told of each task that ends.
    """
    return run_all(tasks, partial(_record, store), engine=engine, log=log)


def run_all(
    tasks: Iterable[Task],
    keep: Callable[[Any, Mapping[str, Any] | None], None],
    *,
    engine: Engine,
    log: Log,
) -> list[str]:
    """Run what is not done yet.

    Ctrl-C ends the processes that run; what they were about is run again next time.

    Args:
        tasks: What there is to do.
        keep: Keeps one thing that a job gave, with the origin that the engine tells of it.
        engine: Runs them.
        log: Told of each task that ends.

    Returns:
        One line for each task that failed, whether it could not be prepared or not be done.
    """
    tasks = list(tasks)
    waiting = [task for task in tasks if not task.done()]
    if len(waiting) < len(tasks):
        log(f"{len(tasks) - len(waiting)} of {len(tasks)} are recorded already")
    failures: list[str] = []
    ready: list[tuple[Task, Call]] = []
    told: set[str] = set()
    for task in waiting:
        call = _attempt(lambda one: one.make(), task)
        if not isinstance(call, FalaError):
            ready.append((task, call))
            continue
        failures.append(f"{task.label}: {call}")
        if str(call) not in told:
            log(f"{task.label}, and what needs the same: cannot be prepared: {call}")
        told.add(str(call))
    refused: dict[int, str] = {}
    count = 0
    for event in engine.run(ready):
        if not isinstance(event, Ended):
            try:
                keep(event.item, event.origin)
            except FalaError as error:
                refused.setdefault(id(event.task), str(error))
            continue
        count += 1
        label = event.task.label
        if why := event.error or refused.get(id(event.task), ""):
            failures.append(f"{label}: {why}")
        log(f"[{count}/{len(ready)}] {label}: "
            f"{f'failed: {why}' if why else f'{event.seconds:.1f} s'}")  # fmt: skip
    return failures


def _record(store: Store, made: Made, origin: Mapping[str, Any] | None) -> None:
    """Append a record, and remove what is spent then."""
    if made.key not in store.keys:  # it is there after the machine of an earlier attempt was lost
        store.append(made.key, made.content, origin)
    for path in made.spent:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _attempt(prepare: Callable[[Asked], Subject], asked: Asked) -> Subject | FalaError:
    try:
        return prepare(asked)
    except OtherPlanError:
        raise
    except FalaError as error:
        return error
