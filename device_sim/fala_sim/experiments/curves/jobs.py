"""One user's learning curve by one method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fala_sim.experiments.people import Experiment
from fala_sim.experiments.runner import Giving, Made, timed
from fala_sim.experiments.scoring import outcome
from fala_sim.experiments.search import SEARCH
from fala_sim.experiments.subject import Subject, with_examples
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import TRAINED, find_method
from fala_sim.records import Key

#: Train examples that a device has when the new backbone arrives, by the record's variant.
SIZES = {"0": 0, "5": 5, "10": 10, "20": 20, "50": 50, "200": 200, "all": None}


def sizes(examples: int) -> list[str]:
    """The steps of a user with so many train examples."""
    return [variant for variant, size in SIZES.items() if (size or 0) <= examples]


@timed
def curve(key: Key, place: Path, settings: Settings, done: frozenset[Key]) -> Giving:
    """A method with the first few of the train examples only."""
    subject = Subject.of(key, place)
    method = find_method(key.method)
    for variant in sizes(len(subject.user.train)):
        if key.of(variant) in done:
            continue
        part = replace(subject, user=with_examples(subject.user, SIZES[variant], key.seed))
        situation = part.situation(cached=True)
        scores = method.fit(situation, settings)
        content = part.about() | {"title": method.title, "settings": settings}
        logits = scores(part.user.test)
        content |= outcome(situation, scores, logits, words=method.with_words)
        yield Made(key.of(variant), content)


#: Every method that trains no transformer.
EXPERIMENTS = (
    Experiment(
        "curve",
        curve,
        methods=lambda study: [name for name in study.methods if name not in TRAINED],
        variants=sizes,
        search=SEARCH,
    ),
)
