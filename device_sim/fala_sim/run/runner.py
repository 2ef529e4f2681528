"""Has jobs run by an engine, and alone writes what they give; goes on where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fala import FalaError
from fala_sim.engine.task import Call, Ended, Engine, Say, Task
from fala_sim.records import recorded, write_record
from fala_sim.run.made import Made, Spent


def run_tasks(tasks: Iterable[Task], results: Path, *, engine: Engine, say: Say) -> list[str]:
    """Run what is not done yet.

    Ctrl-C ends the processes that run; what they were about is run again next time, and no
    record is left half written.

    Args:
        tasks: What there is to do; its jobs give ``fala_sim.run.made``.
        results: The run's folder.
        engine: Runs it.
        say: Told of each task that ends.

    Returns:
        One line for each task that failed, whether it could not be prepared or not be done.
    """
    tasks = list(tasks)
    waiting = [task for task in tasks if not task.recorded()]
    if len(waiting) < len(tasks):
        say(f"{len(tasks) - len(waiting)} of {len(tasks)} are recorded already")
    ready, failures = _make(waiting, say)
    refused: dict[int, str] = {}
    count = 0
    for event in engine.run(ready):
        label = event.task.label
        if not isinstance(event, Ended):
            if id(event.task) not in refused and (why := _keep(results, event.item, event.origin)):
                refused[id(event.task)] = why
            continue
        count += 1
        place = f"[{count}/{len(ready)}]"
        if error := event.error or refused.get(id(event.task), ""):
            failures.append(f"{label}: {error}")
            say(f"{place} {label}: failed: {error}")
        else:
            say(f"{place} {label}: {event.seconds:.1f} s")
    return failures


def _keep(results: Path, item: Made | Spent, origin: Mapping[str, Any] | None) -> str:
    """Write a record, or remove what it was made of; why not, or ""."""
    if isinstance(item, Spent):
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)
        return ""
    if origin is not None and recorded(results, item.key):
        return ""  # of a job that was run again elsewhere, after the machine it ran on was lost
    try:
        write_record(results, item.key, item.content, origin)
    except FalaError as error:
        return str(error)
    except (TypeError, ValueError) as error:  # no JSON: the job's own mistake, not the run's
        return f"{type(error).__name__}: {error}"
    return ""


def _make(tasks: Sequence[Task], say: Say) -> tuple[list[tuple[Task, Call]], list[str]]:
    """The calls of those tasks that can be prepared, and a line for each that cannot."""
    calls: list[tuple[Task, Call]] = []
    failures: list[str] = []
    said: set[str] = set()
    for task in tasks:
        call = _made(task)
        if isinstance(call, str):
            failures.append(f"{task.label}: {call}")
            if call not in said:
                said.add(call)
                say(f"{task.label}, and what needs the same: cannot be prepared: {call}")
        else:
            calls.append((task, call))
    return calls, failures


def _made(task: Task) -> Call | str:
    """A task's call, or why there is none."""
    try:
        return task.make()
    except FalaError as error:
        return str(error)
