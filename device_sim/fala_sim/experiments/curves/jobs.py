"""One user's learning curve by one method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fala_sim.experiments.replacement.jobs import Subject, with_examples
from fala_sim.experiments.replacement.scoring import outcome
from fala_sim.experiments.runner import Giving, Made, timed
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import find_method
from fala_sim.records import Key

#: Train examples that a device has when the new backbone arrives, by the record's variant.
SIZES = {"0": 0, "5": 5, "10": 10, "20": 20, "50": 50, "200": 200, "all": None}


@timed
def curve(key: Key, place: Path, settings: Settings, done: frozenset[Key]) -> Giving:
    """A method with the first few of the train examples only."""
    subject = Subject.of(key, place)
    method = find_method(key.method)
    user = subject.user
    for variant, size in SIZES.items():
        if key.of(variant) in done or (size or 0) > len(user.train):
            continue
        part = replace(subject, user=with_examples(user, size, key.seed))
        situation = part.situation(cached=True)
        scores = method.fit(situation, settings)
        content = part.about() | {"title": method.title, "settings": settings}
        logits = scores(user.test)
        content |= outcome(situation, scores, logits, words=method.with_words)
        yield Made(key.of(variant), content)
