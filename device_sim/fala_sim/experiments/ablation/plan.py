"""Which ablations are run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fala_sim.engine.task import Task
from fala_sim.experiments.ablation.jobs import ablation
from fala_sim.experiments.ablation.variants import variants
from fala_sim.experiments.people import Experiment, Study, first_labelled
from fala_sim.methods.fala_paper import FalaPaper
from fala_sim.records import Key


def _ablations(study: Study) -> Iterator[Task]:
    """The paper's own, of the paper's own method, on the first division."""
    for division in first_labelled(study.tested):
        if not study.can_run(division, FalaPaper.name):
            continue
        job = partial(ablation, settings=study.settings[division.data][FalaPaper.name])
        for user in division.users:
            key = Key("ablation", division.data, FalaPaper.name, user, division.seed)
            yield study.task(job, division, [key.of(variant) for variant in variants()])


#: All of one method, whichever others are asked for.
EXPERIMENTS = (Experiment("ablation", _ablations, searched=lambda methods: [FalaPaper.name]),)
