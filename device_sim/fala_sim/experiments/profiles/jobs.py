"""One user's replacement, or the training of a baseline, within a device's limits."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from fala_sim.experiments.people import Experiment, PeopleStudy
from fala_sim.experiments.profiles.profile import PROFILES, ProfileWork
from fala_sim.experiments.profiles.run import REPLACE, run_profile
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.subject import Subject
from fala_sim.methods.full import Full
from fala_sim.methods.registry import SHIPPED, find_method
from fala_sim.records.store import RecordKey


@timed
def profile(key: RecordKey, path: Path, done: frozenset[RecordKey]) -> Records:
    """Replace the backbone by the key's method, within each device's limits."""
    subject = Subject.of(key, path)
    prepared, user = subject.prepared, subject.user
    new = prepared.shipped if key.method == SHIPPED else prepared.new
    name = REPLACE if key.method == SHIPPED else key.method
    old, transformer = prepared.installed.path, prepared.transformer
    work = ProfileWork(name, old, new.path, user.train, user.train_labels, transformer, key.seed)
    for device in PROFILES:
        if key.of(device.name) in done:
            continue
        with TemporaryDirectory(prefix="fala-") as folder:
            result = run_profile(device, work, Path(folder))
        about = {"profile": device.name, "title": find_method(key.method).title}
        yield Made(key.of(device.name), subject.about() | about | result)


def _methods(study: PeopleStudy) -> list[str]:
    return [SHIPPED, Full.name] if study.trainable else [SHIPPED]


#: Only the busiest user of the first data set is run, and alone, because the jobs measure this
#: machine's speed and use their share of its cores.
EXPERIMENTS = (
    Experiment(
        "profile",
        profile,
        methods=_methods,
        divisions=lambda study: study.tested[:1],
        variants=lambda _: [device.name for device in PROFILES],
        users=1,
        alone=True,
    ),
)
