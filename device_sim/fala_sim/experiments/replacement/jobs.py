"""Replacements of one user's backbone; also what other experiments on people share of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fala import Budget, Device
from fala_sim.encoding import DeviceEncoder, KnownEncoder
from fala_sim.experiments.replacement.scoring import outcome, rounded, tried, truth
from fala_sim.experiments.runner import Giving, Made, timed
from fala_sim.methods.fala_shipped import replaced
from fala_sim.methods.method import Settings
from fala_sim.methods.registry import find_method
from fala_sim.methods.words import Words
from fala_sim.metric.quality import figures_of
from fala_sim.records import Key
from fala_sim.situation import Situation, User
from fala_sim.vendor.releases import Prepared, load

#: Forward passes that FaLA is given, for its frontier.
BUDGETS = (0, 10, 25, 50, 100, 200)


@dataclass(frozen=True)
class Subject:
    """One user of a division, whose backbone is replaced.

    Attributes:
        prepared: What the division's jobs share.
        user: The user.
        seed: Of every random choice.
    """

    prepared: Prepared
    user: User
    seed: int

    @classmethod
    def of(cls, key: Key, place: Path) -> Subject:
        """The user of a key, with what was prepared at a place."""
        prepared = load(place)
        user = next(user for user in prepared.division.users if user.name == key.user)
        return cls(prepared, user, key.seed)

    def situation(self, *, cached: bool) -> Situation:
        """The moment at which the new backbone arrives.

        Args:
            cached: Whether the new embeddings are those that the laboratory has: only quality is
                asked. Else the new backbone runs, as on a device.
        """
        prepared, new = self.prepared, self.prepared.new
        with (
            TemporaryDirectory(prefix="fala-") as folder,
            Device.create(Path(folder) / "device", prepared.old.path) as device,
        ):
            if self.user.train:
                device.learn(self.user.train, self.user.train_labels)
            personal = device.model
        return Situation(
            user=self.user,
            old=prepared.old,
            new=new,
            shipped=prepared.shipped,
            personal=personal,
            transformer=prepared.transformer,
            encode=KnownEncoder(new) if cached else DeviceEncoder(new),
            seed=self.seed,
            words=prepared.words,
        )

    def about(self) -> dict[str, Any]:
        """What every record says of the user and the data."""
        return {
            "task": self.prepared.division.task,
            "old": self.prepared.old.name,
            "new": self.prepared.new.name,
            "train": len(self.user.train),
            "test": len(self.user.test),
            "public": len(self.prepared.division.public),
            "digests": dict(self.prepared.digests),
        }


def with_examples(user: User, count: int | None, seed: int) -> User:
    """A user with so many train examples, or all; of one seed the fewer are among the more."""
    order = np.random.default_rng(seed).permutation(len(user.train))
    # In their own order: a matcher's examples are in order of time.
    chosen = np.sort(order[:count])
    return replace(
        user,
        train=[user.train[position] for position in chosen],
        train_labels=[user.train_labels[position] for position in chosen],
    )


@timed
def search(key: Key, place: Path) -> Giving:
    """Try a method's whole grid on one validation user."""
    subject = Subject.of(key, place)
    method = find_method(key.method)
    situation = subject.situation(cached=True)
    results: list[dict[str, Any]] = []
    for settings, scores in method.search(situation):
        logits = scores(subject.user.test)
        results.append(
            {"settings": settings, **tried(situation, logits), "logits": rounded(logits)}
        )
    # What a blend's weights are chosen by.
    words = Words().fit(situation, {})(subject.user.test)
    content = {"title": method.title, "tried": results, "words_logits": rounded(words)}
    yield Made(key, subject.about() | content | truth(situation))


@timed
def replacement(key: Key, place: Path, settings: Settings) -> Giving:
    """Replace one user's backbone by one method, and measure what it costs."""
    subject = Subject.of(key, place)
    method = find_method(key.method)
    situation = subject.situation(cached=False)
    scores = method.fit(situation, settings)
    # Before anything else is loaded to score it.
    cost = situation.meter.fields()
    content = subject.about() | {"title": method.title, "settings": settings}
    logits = scores(subject.user.test)
    content |= outcome(situation, scores, logits, words=method.with_words)
    content |= {"logits": rounded(logits), **truth(situation), "cost": cost}
    if not method.trained or method.name == "full":
        # A trained model reads the others' documents again; of those one is enough for figures.
        content["cross"] = {
            other.name: figures_of(situation.new.head, scores(other.test), other.test_labels)
            for other in subject.prepared.division.users
            if other.name != key.user
        }
    yield Made(key, content)


@timed
def frontier(key: Key, place: Path, done: frozenset[Key]) -> Giving:
    """Replace one user's backbone by FaLA at every budget of forward passes."""
    subject = Subject.of(key, place)
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
def chain(key: Key, place: Path, through: Sequence[Path]) -> Giving:
    """One user's device through several replacements in turn.

    Args:
        key: Of the record.
        place: Was prepared with the first release as ``old``.
        through: What was prepared with each next release as ``new``.
    """
    subject = Subject.of(key, place)
    user, release = subject.user, subject.prepared.old
    steps: list[dict[str, Any]] = []

    def step(device: Device, more: Mapping[str, Any]) -> None:
        models = {"scores": device.model, "vendor": release.head.vendor_model()}
        scores = {
            name: figures_of(release.head, release.logits(model, user.test), user.test_labels)
            for name, model in models.items()
        }
        steps.append({"backbone": release.name, **scores, **more})

    with (
        TemporaryDirectory(prefix="fala-") as folder,
        Device.create(Path(folder) / "device", release.path) as device,
    ):
        device.learn(user.train, user.train_labels)
        step(device, {})
        for each in through:
            release = load(each).shipped
            report = device.replace(release.path)
            step(device, {"decision": report.decision, "forward_passes": report.forward_passes})
    yield Made(key, subject.about() | {"steps": steps})


@timed
def flops(key: Key) -> Giving:
    """The paper's Table 1: one training batch of BERT-base and RoBERTa-base."""
    from fala_sim.experiments.replacement.table_1 import table1

    yield Made(key, {"rows": table1()})
