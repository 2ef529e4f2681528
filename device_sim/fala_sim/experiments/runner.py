"""Runs jobs with an engine, and writes their records; nothing else writes records."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

from fala import DataError, FalaError
from fala_sim.engine.job import Call, Engine, Job, JobEnd, Log
from fala_sim.methods.registry import FILES
from fala_sim.records.provenance import provenance
from fala_sim.records.store import RecordKey, RecordStore

Parameters = ParamSpec("Parameters")
Argument = TypeVar("Argument")
Ready = TypeVar("Ready")


@dataclass(frozen=True)
class Made:
    """A record, as a job yields it.

    Attributes:
        key: Key of the record.
        content: Plain values.
        spent: Files and folders of the work folder to delete once this is recorded.
    """

    key: RecordKey
    content: Mapping[str, Any]
    spent: tuple[Path, ...] = ()


#: The records of a job. Each is yielded as soon as it is complete, so that a later failure loses
#: none.
Records: TypeAlias = "Iterator[Made]"


class OtherPlanError(DataError):
    """A folder has the records of another plan."""


def prepare_all(
    names: Iterable[str], prepare: Callable[[str], Ready], log: Log
) -> tuple[list[Ready], list[str]]:
    """Prepare the subjects of some data sets, and return a line for each data set that fails.

    Raises:
        OtherPlanError: The folder holds the records of another plan.
    """
    prepared: list[Ready] = []
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
    """Return a job that adds to each of its records the ``seconds`` that the record took."""

    @wraps(job)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> Records:
        start = time.perf_counter()
        for record in job(*arguments, **options):
            seconds = time.perf_counter() - start
            yield replace(record, content={**record.content, "seconds": seconds})
            start = time.perf_counter()

    return run


def run_jobs(jobs: Iterable[Job], store: RecordStore, *, engine: Engine, log: Log) -> list[str]:
    """Run the jobs that are not recorded yet; see ``run_all``.

    Args:
        jobs: Jobs that yield ``Made``.
        store: Records of the run.
        engine: Engine that runs the jobs.
        log: Function that receives a line for each job that ends.
    """
    return run_all(jobs, partial(_append, store), engine=engine, log=log)


def run_all(
    jobs: Iterable[Job],
    keep: Callable[[Any, Mapping[str, Any] | None], None],
    *,
    engine: Engine,
    log: Log,
) -> list[str]:
    """Run the jobs that are not done yet.

    Ctrl-C ends the running processes; the next run repeats their jobs.

    Args:
        jobs: The jobs.
        keep: Function that stores one output of a job, with its origin; see ``engine.job.Output``.
        engine: Engine that runs the jobs.
        log: Function that receives a line for each job that ends.

    Returns:
        One line for each job that could not be prepared, or that failed.
    """
    jobs = list(jobs)
    waiting = [job for job in jobs if not job.done()]
    if len(waiting) < len(jobs):
        log(f"{len(jobs) - len(waiting)} of {len(jobs)} are recorded already")
    failures: list[str] = []
    ready: list[tuple[Job, Call]] = []
    reported: set[str] = set()
    for job in waiting:
        call = _attempt(lambda pending: pending.make(), job)
        if not isinstance(call, FalaError):
            ready.append((job, call))
            continue
        failures.append(f"{job.label}: {call}")
        if str(call) not in reported:
            log(f"{job.label}, and jobs like it: cannot be prepared: {call}")
        reported.add(str(call))
    if ready and provenance()["changed"]:
        log("the code has uncommitted changes: `fala-sim pack` will reject what is recorded now")
    rejected: dict[int, str] = {}
    count, start = 0, time.perf_counter()
    for event in engine.run(ready):
        if not isinstance(event, JobEnd):
            try:
                keep(event.item, event.origin)
            except FalaError as error:
                rejected.setdefault(id(event.job), str(error))
            continue
        count += 1
        label = event.job.label
        if why := event.error or rejected.get(id(event.job), ""):
            failures.append(f"{label}: {why}")
        log(f"[{count}/{len(ready)}] {label}: "
            f"{f'failed: {why}' if why else f'{event.seconds:.1f} s'}"
            f"{time_left(time.perf_counter() - start, count, len(ready))}")  # fmt: skip
    return failures


def time_left(elapsed: float, done: int, count: int) -> str:
    """Estimate in words how long the other jobs take, from the jobs that have ended.

    Args:
        elapsed: Seconds since the first job started.
        done: Number of jobs that have ended, at least one.
        count: Number of jobs in total.

    Returns:
        Words after a line of progress; none after the last job.
    """
    if done == count:
        return ""
    seconds = elapsed * (count - done) / done
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"; about {seconds / size:.{1 if seconds < 10 * size else 0}f} {unit} left"
    return f"; about {seconds:.0f} s left"


def _append(store: RecordStore, record: Made, origin: Mapping[str, Any] | None) -> None:
    """Append a record, then remove its spent files."""
    if record.key not in store.keys:  # otherwise an attempt recorded it before its machine was lost
        if record.key.method in FILES:
            file = FILES[record.key.method]
            origin = {**(provenance() if origin is None else origin), "method": file.origin}
        store.append(record.key, record.content, origin)
    for path in record.spent:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _attempt(prepare: Callable[[Argument], Ready], argument: Argument) -> Ready | FalaError:
    try:
        return prepare(argument)
    except OtherPlanError:
        raise
    except FalaError as error:
        return error
