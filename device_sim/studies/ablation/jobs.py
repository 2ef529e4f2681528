"""Jobs for one user's rows of the paper's Tables 3 to 7."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fala_sim.engine.job import Engine, Log
from fala_sim.experiments import people
from fala_sim.experiments.people import Experiment
from fala_sim.experiments.plan import PeoplePlan
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.scoring import outcome
from fala_sim.experiments.search import SEARCH
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_paper import FalaPaper
from fala_sim.methods.method import MethodSettings
from fala_sim.records.store import RecordKey, RecordKind
from studies.ablation.variants import ablations, variants


@timed
def ablation(
    key: RecordKey, path: Path, settings: MethodSettings, done: frozenset[RecordKey]
) -> Records:
    """Fit every variant for one user."""
    subject = Subject.of(key, path)
    situation = subject.situation(cached=True)
    for variant, scores, extra in ablations(situation, settings):
        if key.of(variant) not in done:
            content = outcome(situation, scores, scores(subject.user.test))
            yield Made(key.of(variant), subject.about() | content | extra)


EXPERIMENTS = (
    Experiment(
        "ablation",
        ablation,
        methods=lambda _: [FalaPaper.name],
        variants=lambda _: variants(),
        search=SEARCH,
    ),
)


def run(plan: PeoplePlan, _kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the missing variants of a plan's people; see ``Family.run``."""
    return people.run(plan, EXPERIMENTS, engine, log)
