"""Jobs for one user's model by one method, at every number of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fala_sim.data.users import User
from fala_sim.experiments.people import Experiment, PeopleStudy, validated
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.experiments.subject import Subject
from fala_sim.methods.fala_shipped import ShippedModel
from fala_sim.methods.method import MethodSettings
from fala_sim.methods.quality import figures_of
from fala_sim.methods.registry import TRAINED, find_method
from fala_sim.records.store import RecordKey

#: Numbers of labels when the new backbone arrives, by their name in records.
SIZES = {"5": 5, "10": 10, "20": 20, "50": 50, "100": 100, "200": 200, "all": None}
#: Number of draws for each number of labels.
DRAWS = 3


def draws(examples: int) -> list[str]:
    """Return the draws for a number of train examples, as ``SIZE.NUMBER``; one draw for "all"."""
    return [
        f"{name}.{draw}" for name in sizes(examples) for draw in range(DRAWS if SIZES[name] else 1)
    ]


def drawn_labels(user: User, draw: str) -> User:
    """Return a user with the train examples of a draw.

    The smaller draws with the same draw number are subsets of the larger ones.
    """
    name, _, number = draw.partition(".")
    order = np.random.default_rng(int(number)).permutation(len(user.train))
    # The examples keep their original order, because a matcher's examples are in order of time.
    chosen = np.sort(order[: SIZES[name]])
    return replace(
        user,
        train=[user.train[position] for position in chosen],
        train_labels=[user.train_labels[position] for position in chosen],
    )


def sizes(examples: int) -> list[str]:
    """Return the numbers of labels that fit a user with this many train examples."""
    return [name for name, size in SIZES.items() if (size or 0) < examples]


@timed
def labels_search(key: RecordKey, path: Path, done: frozenset[RecordKey]) -> Records:
    """Try a method's whole grid on one validation user, at each number of labels."""
    subject = Subject.of(key, path)
    method = find_method(key.method)
    for size in sizes(len(subject.user.train)):
        if key.of(size) in done:
            continue
        part = replace(subject, user=drawn_labels(subject.user, f"{size}.0"))
        situation = part.situation(cached=True)
        head, truth = situation.new.head, part.user.test_labels
        trials = [
            {"settings": settings, "scores": figures_of(head, scores(part.user.test), truth)}
            for settings, scores in method.search(situation)
        ]
        yield Made(key.of(size), part.about() | {"title": method.title, "tried": trials})


@timed
def labels(
    key: RecordKey, path: Path, settings: Mapping[str, MethodSettings], done: frozenset[RecordKey]
) -> Records:
    """Make one user's models by one method, at every number of labels and draw.

    Args:
        key: Key of the records, without a variant.
        path: The prepared division.
        settings: Settings of the method, by number of labels; for more labels than validation users
            have, the settings at all of their labels are used.
        done: Keys that are recorded already.
    """
    subject = Subject.of(key, path)
    method = find_method(key.method)
    for draw in draws(len(subject.user.train)):
        if key.of(draw) in done:
            continue
        chosen = settings.get(draw.partition(".")[0], settings.get("all", {}))
        part = replace(subject, user=drawn_labels(subject.user, draw))
        situation = part.situation(cached=True)
        scores = method.fit(situation, chosen)
        logits = scores(part.user.test)
        head, truth = situation.new.head, part.user.test_labels
        content = part.about() | {"title": method.title, "settings": chosen}
        content["scores"] = figures_of(head, logits, truth)
        if isinstance(scores, ShippedModel):
            content["decision"] = scores.report.decision
        yield Made(key.of(draw), content)


def _methods(study: PeopleStudy) -> list[str]:
    """Return the methods named in the options, or all methods that train no transformer.

    Training a transformer at every number of labels takes hours.
    """
    return [name for name in study.methods if study.plan.methods or name not in TRAINED]


LABELS_SEARCH = Experiment(
    "labels-search",
    labels_search,
    methods=_methods,
    divisions=validated,
    variants=sizes,
)
EXPERIMENTS = (
    LABELS_SEARCH,
    Experiment("labels", labels, methods=_methods, variants=draws, search=LABELS_SEARCH),
)
