"""Jobs for one app user whose encoder is replaced, at every number of labels and in every way."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fala.model.heads import Head
from fala_sim.data.users import UserLabel
from fala_sim.engine.shelf import local_path
from fala_sim.experiments.own.encoders import KnownTexts
from fala_sim.experiments.own.ways import WAYS, Person
from fala_sim.experiments.runner import Made, Records, timed
from fala_sim.methods.quality import flips, label_figures, positions
from fala_sim.records.store import RecordKey

#: Numbers of labels.
SIZES = (10, 20, 50, 100, 200)
#: Number of texts that a device has, with and without labels.
TEXTS = 300


@dataclass(frozen=True)
class OwnRows:
    """A user's distinct texts, with their labels.

    Attributes:
        train: Texts on the device.
        train_labels: Labels of the texts on the device.
        test: Texts on which the model is tested.
        test_labels: Labels of the tested texts.
    """

    train: Sequence[str]
    train_labels: Sequence[UserLabel]
    test: Sequence[str]
    test_labels: Sequence[UserLabel]


@dataclass(frozen=True)
class PreparedEncoders:
    """A data set with two encoders, shared by its jobs.

    Attributes:
        labels: Names of the labels.
        users: Texts of the users.
        old: The encoder that is replaced.
        new: The new encoder.
        others: A head on the new encoder that was fitted to the public.
        digests: Digests of the data and of both encoders.
    """

    labels: tuple[int | str, ...]
    users: Mapping[str, OwnRows]
    old: KnownTexts
    new: KnownTexts
    others: Head
    digests: Mapping[str, str]

    def person(self, user: str, labelled: int, seed: int) -> Person:
        """Return a user with this many labelled texts, whose device knows others without labels."""
        rows = self.users[user]
        order = np.random.default_rng(seed).permutation(len(rows.train))[: max(TEXTS, labelled)]
        texts = [rows.train[row] for row in order]
        truth = [rows.train_labels[row] for row in order[:labelled]]
        return Person(
            self.labels, texts[:labelled], truth, texts[labelled:], rows.test,
            self.old, self.new, self.others,
        )  # fmt: skip


@timed
def own(key: RecordKey, names: tuple[str, str], path: Path, done: frozenset[RecordKey]) -> Records:
    """Run all users of a data set in every way, at every number of labels that leaves a text over.

    Args:
        key: Key of the records, without their method, user and variant.
        names: Names of the old and of the new encoder.
        path: File of a ``PreparedEncoders``.
        done: Keys that are recorded already.
    """
    prepared: PreparedEncoders = pickle.loads(local_path(path).read_bytes())
    for user, rows in prepared.users.items():
        truth = positions(rows.test_labels, prepared.labels)
        for labelled in own_sizes(len(rows.train)):
            keys = own_keys(key, user, names, labelled)
            if done.issuperset(keys.values()):
                continue
            person = prepared.person(user, labelled, key.seed)
            outcomes = {name: way.run(person) for name, way in WAYS.items()}
            before = next(iter(outcomes.values())).logits
            for name, outcome in outcomes.items():
                content = {
                    "task": "classification",
                    "old": names[0],
                    "new": names[1],
                    "labels": labelled,
                    "texts": len(person.texts) + len(person.history),
                    "test": len(person.test),
                    "title": WAYS[name].title,
                    "scores": label_figures(outcome.logits, truth),
                    "flips": {"old": flips(outcome.logits, before, truth)},
                    "passes": outcome.passes,
                    "digests": dict(prepared.digests),
                }
                if keys[name] not in done:
                    yield Made(keys[name], content)


def own_keys(
    key: RecordKey, user: str, names: tuple[str, str], labelled: int
) -> dict[str, RecordKey]:
    """Return the keys of a user's records at a number of labels, by way."""
    variant = f"{names[0]}-{names[1]}.{labelled}"
    return {name: RecordKey(key.kind, key.data, name, user, key.seed, variant) for name in WAYS}


def own_sizes(texts: int) -> list[int]:
    """Return the numbers of labels that leave a user with this many texts an unlabelled one."""
    return [size for size in SIZES if size < texts]
