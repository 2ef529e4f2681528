"""What is run with few labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from fala_sim.engine.task import Task
from fala_sim.experiments.few.jobs import SIZES, draws, few, few_search
from fala_sim.experiments.people import (
    Experiment,
    Study,
    chosen_settings,
    divisions,
    first_labelled,
    long_first,
    tuned,
)
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import FIXED
from fala_sim.records import Key


def _searches(study: Study) -> Iterator[Task]:
    """Every method with settings on every validation user, at each number of labels."""
    data = [division.data for division in first_labelled(study.tested)]
    validation, _ = divisions(study, dict.fromkeys(data), "validation", 1)
    for name in long_first(tuned(study.methods)):
        for division in validation:
            for user, examples in division.users.items():
                for size, labels in SIZES.items():
                    if (labels or 0) < examples:
                        key = Key("few-search", division.data, name, user, division.seed, size)
                        yield study.task(few_search, division, [key])


def _few(study: Study) -> Iterator[Task]:
    """Every method on every test user, with the settings of each number of labels."""
    tested = list(first_labelled(study.tested))
    chosen = {division.data: _chosen(study, division.data) for division in tested}
    for name in long_first(study.methods):
        for division in tested:
            settings = _settings(chosen[division.data], name)
            if not settings:
                continue
            job = partial(few, settings=settings)
            for user, examples in division.users.items():
                key = Key("few", division.data, name, user, division.seed)
                yield study.task(job, division, [key.of(draw) for draw in draws(examples)])


def _chosen(study: Study, data: str) -> dict[str, dict[str, Settings]]:
    """What validation users chose, by number of labels and method."""
    results = study.plan.results
    return {size: chosen_settings(results, data, "few-search", size) for size in SIZES}


def _settings(chosen: Mapping[str, Mapping[str, Settings]], method: str) -> dict[str, Settings]:
    """By number of labels; where validation users have fewer, those at all of theirs.

    Empty where no search ended.
    """
    if method in FIXED:
        return {size: {} for size in SIZES}
    if method not in chosen["all"]:
        return {}
    return {size: chosen[size].get(method, chosen["all"][method]) for size in SIZES}


EXPERIMENTS = (Experiment("few", _few, before=_searches),)
