"""Which histories of releases are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fala_sim.engine.task import Task
from fala_sim.experiments.history import jobs
from fala_sim.experiments.people import Experiment, Study, first_labelled
from fala_sim.records import Key

#: The releases that come one after the other; the last is the plan's new backbone.
RELEASES = ("minilm-l3", "minilm", "mpnet")


def _histories(study: Study) -> Iterator[Task]:
    """Every test user on the first division."""
    if study.plan.new != RELEASES[-1]:
        return  # its backbones are brought by `fala-sim models get`, which not everybody has done
    for division in first_labelled(study.tested):

        def through(data: str = division.data, seed: int = division.seed) -> dict[str, Any]:
            places = [
                study.prepared(data, seed, "test", name, earlier=RELEASES[:number])
                for number, name in enumerate(RELEASES)
            ]
            return {"through": places}

        for user in division.users:
            key = Key("history", division.data, "fala", user, division.seed)
            yield study.task(
                jobs.history, division, [key.of(name) for name in jobs.PASSES], through
            )


EXPERIMENTS = (Experiment("history", _histories),)
