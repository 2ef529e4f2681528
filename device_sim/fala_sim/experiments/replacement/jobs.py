"""Jobs for replacements of one user's backbone: by every method, and by FaLA at every budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fala import Budget
from fala_sim.engine.job import Call, Engine, Job, Log, Needs
from fala_sim.experiments.people import Experiment, all_divisions
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.runner import Made, Records, run_jobs, timed
from fala_sim.experiments.scoring import outcome, rounded_logits, truth
from fala_sim.experiments.search import SEARCH
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import replaced
from fala_sim.methods.method import MethodSettings
from fala_sim.methods.quality import figures_of
from fala_sim.methods.registry import SHIPPED, find_method
from fala_sim.records.store import RecordKey, RecordKind, RecordStore

#: Budgets of forward passes, for the frontier.
BUDGETS = (0, 10, 25, 50, 100, 200)

#: Number of users whose models are also tested on one another's texts: as many as a figure shows.
CROSSED = 10


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
    crossed = subject.prepared.division.users[:CROSSED]
    # A trained model must encode the other users' documents, so one such method is enough.
    if subject.user in crossed and (not method.trained or method.name == "full"):
        content["cross"] = {
            other.name: figures_of(situation.new.head, scores(other.test), other.test_labels)
            for other in crossed
            if other is not subject.user
        }
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


@timed
def flops(key: RecordKey) -> Records:
    """Count the paper's Table 1: one training batch of BERT-base and RoBERTa-base."""
    from fala_sim.experiments.replacement.table_1 import table1

    yield Made(key, {"rows": table1()})


def run(plan: Plan, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Count the FLOPs of the paper's Table 1 if they are not recorded yet.

    Returns:
        A line if it failed.
    """
    store = RecordStore(plan.results)
    key = RecordKey("flops", "none", "table1", "all", 0)
    call = Call(partial(flops, key))
    task = Job(str(key), lambda: call, lambda: key in store.keys, Needs(memory=4 * 2**30))
    return run_jobs([task], store, engine=engine, log=log)


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
