"""Jobs for one app user whose encoder is replaced, at every number of labels and in every way."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fala_sim.data.users import User
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.own.ways import WAYS, App, Person
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.methods.quality import flips, label_figures, positions
from fala_sim.records.store import RecordKey

#: Numbers of labels.
SIZES = (10, 20, 50, 100, 200)
#: Number of texts that a device has, with and without labels.
TEXTS = 300


@dataclass(frozen=True)
class PreparedApp:
    """An app and its users, shared by the jobs of a data set.

    Attributes:
        app: The app.
        users: Its users, with distinct texts.
        about: Fields of every record about the data and the encoders.
    """

    app: App
    users: Sequence[User]
    about: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> PreparedApp:
        """Read a prepared file."""
        prepared: PreparedApp = pickle.loads(local_path(path).read_bytes())
        return prepared

    def keys(self, key: RecordKey) -> Iterator[tuple[User, int, dict[str, RecordKey]]]:
        """Yield the keys of each user's records by way, at every number of labels.

        Args:
            key: Key of the records, without their method and user, and with both encoders' names as
                its variant.

        Yields:
            The user, a number of labels that leaves a text without one, and the keys.
        """
        for user in self.users:
            for labelled in (size for size in SIZES if size < len(user.train)):
                each = replace(key, user=user.name, variant=f"{key.variant}.{labelled}")
                yield user, labelled, {name: replace(each, method=name) for name in WAYS}


@timed
def own(key: RecordKey, path: Path, done: frozenset[RecordKey]) -> Records:
    """Run all users of a data set in every way, at every number of labels that leaves a text over.

    Args:
        key: Key of the records; see ``PreparedApp.keys``.
        path: File of a ``PreparedApp``.
        done: Keys that are recorded already.
    """
    prepared = PreparedApp.read(path)
    for user, labelled, keys in prepared.keys(key):
        if done.issuperset(keys.values()):
            continue
        person = person_of(user, labelled, key.seed)
        truth = positions(user.test_labels, prepared.app.labels)
        outcomes = {name: way(prepared.app, person) for name, (_, way) in WAYS.items()}
        before, _ = next(iter(outcomes.values()))
        for name, (logits, passes) in outcomes.items():
            content = {
                **prepared.about,
                "labels": labelled,
                "texts": len(person.texts) + len(person.history),
                "test": len(person.test),
                "title": WAYS[name][0],
                "scores": label_figures(logits, truth),
                "flips": {"old": flips(logits, before, truth)},
                "passes": passes,
            }
            if keys[name] not in done:
                yield Made(keys[name], content)


def person_of(user: User, labelled: int, seed: int) -> Person:
    """Return a user with this many labelled texts, whose device knows others without labels."""
    order = np.random.default_rng(seed).permutation(len(user.train))[: max(TEXTS, labelled)]
    texts = [str(user.train[row]) for row in order]
    truth = [user.train_labels[row] for row in order[:labelled]]
    return Person(texts[:labelled], truth, texts[labelled:], list(map(str, user.test)))
