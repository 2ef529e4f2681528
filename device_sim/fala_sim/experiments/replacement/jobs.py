"""Jobs for replacements of one user's backbone: by every method, and by FaLA at every budget."""

from __future__ import annotations

from pathlib import Path

from fala import Budget
from fala_sim.experiments.people import Experiment, all_divisions
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.scoring import outcome, rounded_logits, truth
from fala_sim.experiments.search import SEARCH
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import replaced
from fala_sim.methods.method import MethodSettings
from fala_sim.methods.registry import SHIPPED, find_method
from fala_sim.records.store import RecordKey

#: Budgets of forward passes, for the frontier.
BUDGETS = (0, 10, 25, 50, 100, 200)


@timed
def replacement(key: RecordKey, path: Path, settings: MethodSettings) -> Records:
    """Replace one user's backbone by one method, and measure what it costs."""
    subject = Subject.of(key, path)
    method = find_method(key.method)
    situation = subject.situation(cached=False)
    scores = method.fit(situation, settings)
    # The cost is measured before scoring loads anything else.
    cost = situation.meter.fields()
    content = subject.about() | {"title": method.title, "settings": settings}
    logits = scores(subject.user.test)
    content |= outcome(situation, scores, logits, words=method.with_words)
    content |= {"logits": rounded_logits(logits), **truth(situation), "cost": cost}
    yield Made(key, content)


@timed
def frontier(key: RecordKey, path: Path, done: frozenset[RecordKey]) -> Records:
    """Replace one user's backbone by FaLA at every budget of forward passes."""
    subject = Subject.of(key, path)
    for passes in BUDGETS:
        if (of_budget := key.of(passes)) in done:
            continue
        situation = subject.situation(cached=False)
        scores = replaced(situation, Budget(forward_passes=passes))
        content = subject.about() | {"title": find_method(key.method).title}
        content["cost"] = situation.meter.fields()
        logits = scores(subject.user.test)
        yield Made(of_budget, content | outcome(situation, scores, logits, words=True))


EXPERIMENTS = (
    SEARCH,
    Experiment("replacement", replacement, divisions=all_divisions, search=SEARCH),
    Experiment(
        "frontier",
        frontier,
        methods=lambda _: [SHIPPED],
        divisions=all_divisions,
        variants=lambda _: BUDGETS,
    ),
)
