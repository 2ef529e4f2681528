"""Which replacements are run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fala_sim.engine.task import Call, Engine, Needs, Say, Task
from fala_sim.experiments.people import (
    Experiment,
    Study,
    first,
    first_labelled,
    long_first,
    tuned,
)
from fala_sim.experiments.replacement import jobs
from fala_sim.experiments.replacement.jobs import BUDGETS
from fala_sim.experiments.runner import run_tasks
from fala_sim.methods.registry import TRAINED
from fala_sim.records import Key, Store

#: The backbones of a chain of three replacements, beside the old and the new one.
CHAIN_THROUGH = "bert"


def _replacements(study: Study) -> Iterator[Task]:
    """Every method that has its settings on every test user."""
    once = list(first(study.tested))
    for name in long_first(study.methods):
        for division in once if name in TRAINED else study.tested:
            if not study.can_run(division, name):
                continue
            settings = study.settings[division.data].get(name, {})
            job = partial(jobs.replacement, settings=settings)
            for user in division.users:
                key = Key("replacement", division.data, name, user, division.seed)
                yield study.task(job, division, [key])


def _frontiers(study: Study) -> Iterator[Task]:
    """Our method at every budget, on every test user."""
    for division in study.tested:
        for user in division.users:
            key = Key("frontier", division.data, "fala", user, division.seed)
            yield study.task(jobs.frontier, division, [key.of(passes) for passes in BUDGETS])


def _chains(study: Study) -> Iterator[Task]:
    """Old -> another -> new -> back to the old one."""
    names = (CHAIN_THROUGH, study.plan.new, study.plan.old)
    if len(set(names)) < len(names):
        return
    for division in first_labelled(study.tested):

        def through(data: str = division.data, seed: int = division.seed) -> dict[str, Any]:
            return {"through": [study.prepared(data, seed, "test", name) for name in names]}

        for user in division.users:
            key = Key("chain", division.data, "fala", user, division.seed)
            yield study.task(jobs.chain, division, [key], through)


#: A search is of whoever asks for settings.
EXPERIMENTS = (
    Experiment("search", lambda study: iter(()), searched=tuned),
    Experiment("replacement", _replacements, searched=tuned),
    Experiment("frontier", _frontiers),
    Experiment("chain", _chains),
)


def run_flops(results: Path, engine: Engine, say: Say) -> list[str]:
    """Count the paper's Table 1, which is of no data, where it is not recorded yet.

    Returns:
        A line where that failed.
    """
    store = Store(results)
    key = Key("flops", "none", "table1", "all", 0)
    call = Call(partial(jobs.flops, key))
    task = Task(str(key), lambda: call, lambda: key in store.keys, Needs(memory=4 * 2**30))
    return run_tasks([task], store, engine=engine, say=say)
