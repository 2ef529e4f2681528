"""What is run within the limits of devices."""

from __future__ import annotations

from collections.abc import Iterator

from fala_sim.engine.task import Task
from fala_sim.experiments.people import Experiment, Study
from fala_sim.experiments.profiles.jobs import profile
from fala_sim.experiments.profiles.profile import PROFILES
from fala_sim.methods.full import Full
from fala_sim.methods.registry import SHIPPED
from fala_sim.records import Key


def _profiles(study: Study) -> Iterator[Task]:
    """The busiest user of the first data set, on every device: FaLA, and full fine-tuning."""
    for division in study.tested[:1]:
        user = next(iter(division.users))
        for method in (SHIPPED, Full.name) if study.trainable else (SHIPPED,):
            for each in PROFILES:
                key = Key("profile", division.data, method, user, division.seed, each.name)
                yield study.task(profile, division, [key])


#: They measure this machine's speed, and take their share of its cores.
EXPERIMENTS = (Experiment("profile", _profiles, alone=True),)
