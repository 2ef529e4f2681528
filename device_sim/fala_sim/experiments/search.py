"""The search for a method's settings on validation users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fala_sim.experiments.people import Experiment, validated
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.scoring import rounded_logits, scores_of, truth
from fala_sim.experiments.subject import Subject
from fala_sim.methods.registry import find_method
from fala_sim.methods.words import Words
from fala_sim.records.store import RecordKey


@timed
def search(key: RecordKey, path: Path) -> Records:
    """Try a method's whole grid on one validation user."""
    subject = Subject.of(key, path)
    method = find_method(key.method)
    situation = subject.situation(cached=True)
    results: list[dict[str, Any]] = []
    for settings, scores in method.search(situation):
        logits = scores(subject.user.test)
        figures = scores_of(situation, logits)
        results.append({"settings": settings, "scores": figures, "logits": rounded_logits(logits)})
    # The logits are recorded for the choice of a blend's weights.
    words = Words().fit(situation, {})(subject.user.test)
    content = {"title": method.title, "tried": results, "words_logits": rounded_logits(words)}
    yield Made(key, subject.about() | content | truth(situation))


#: The search that chooses the settings of whole replacements.
SEARCH = Experiment("search", search, divisions=validated)
