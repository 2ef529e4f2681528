"""Which learning curves are run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fala_sim.engine.task import Task
from fala_sim.experiments.curves.jobs import SIZES, curve
from fala_sim.experiments.people import Experiment, Study, first_labelled, tuned
from fala_sim.methods.registry import TRAINED
from fala_sim.records import Key


def _curves(study: Study) -> Iterator[Task]:
    """Every method that trains no transformer with few examples, on the first division."""
    for division in first_labelled(study.tested):
        for name in study.methods:
            if name in TRAINED or not study.can_run(division, name):
                continue
            job = partial(curve, settings=study.settings[division.data].get(name, {}))
            for user, examples in division.users.items():
                key = Key("curve", division.data, name, user, division.seed)
                keys = [
                    key.of(variant) for variant, size in SIZES.items() if (size or 0) <= examples
                ]
                yield study.task(job, division, keys)


EXPERIMENTS = (Experiment("curve", _curves, searched=tuned),)
