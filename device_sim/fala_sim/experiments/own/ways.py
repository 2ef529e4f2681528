"""The ways to a user's model on the new encoder: FaLA's, and what an app would do instead.

Each way is a function of a ``Person``. It returns logits of the person's test texts, and the number
of texts that the new encoder has embedded for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fala import Budget, Device
from fala.model.heads import Head
from fala_export import write_external
from fala_sim.data.users import UserLabel
from fala_sim.experiments.own.encoders import KnownTexts
from fala_sim.methods.quality import LabelPositions, positions
from fala_sim.prepare.measured import LogitArray

_PROBES = 4
_MOST_STEPS = 1000


@dataclass(frozen=True)
class Person:
    """A user of an app at the moment when its encoder is replaced.

    Attributes:
        labels: Names of the labels.
        texts: The labelled texts.
        truth: Labels of the labelled texts.
        history: Texts without a label, which the device also has.
        test: Texts on which the model is tested.
        old: The app's encoder.
        new: The encoder that replaces it.
        others: A head that was fitted to other people's labels, on the new encoder.
    """

    labels: tuple[int | str, ...]
    texts: Sequence[str]
    truth: Sequence[UserLabel]
    history: Sequence[str]
    test: Sequence[str]
    old: KnownTexts
    new: KnownTexts
    others: Head

    def classes(self) -> LabelPositions:
        """Return the positions of the labels among all labels, shape (n,)."""
        return positions(self.truth, self.labels)


class WayOutcome(NamedTuple):
    """The outcome of a way.

    Attributes:
        logits: Logits of the test texts, shape (m, C).
        passes: Number of texts that the new encoder has embedded.
    """

    logits: LogitArray
    passes: int


def old(person: Person) -> WayOutcome:
    """Keep the personal model on the old encoder."""
    with _learned(person) as device:
        return WayOutcome(_logits(device, person.test), 0)


def replaced_way(person: Person, passes: int) -> WayOutcome:
    """Replace the encoder of a device, within a number of forward passes.

    With ``sys.maxsize``, also refine until every text is embedded anew.
    """
    budget = Budget(forward_passes=passes)
    with _learned(person) as device:
        report = device.replace(budget=budget, encoder={person.new.name: person.new})
        spent = report.forward_passes
        while passes == sys.maxsize:
            refined = device.refine(budget)
            if not refined.forward_passes:
                break
            spent += refined.forward_passes
        return WayOutcome(_logits(device, person.test), spent)


def begun(person: Person, *, words: bool = True) -> WayOutcome:
    """Begin again: a device of the new encoder learns the same labels, with n-grams or without."""
    with _device(person, person.new, words=words) as device:
        device.learn(person.texts, person.truth)
        return WayOutcome(_logits(device, person.test), len(person.texts))


def with_others(person: Person) -> WayOutcome:
    """Begin again with a release whose head the server fitted to other people's labels."""
    inputs = sorted(person.texts, key=len)[:_PROBES]  # a probe has a thousand characters at most
    probes = dict(zip(inputs, person.new(inputs), strict=True))
    with TemporaryDirectory(prefix="fala-") as folder:
        release = Path(folder) / "others.fala"
        write_external(release, person.new.name, "1", person.others, probes)
        with Device.create(Path(folder) / "device", release, encoder=person.new) as device:
            device.learn(person.texts, person.truth)
            return WayOutcome(_logits(device, person.test), len(person.texts))


def others(person: Person) -> WayOutcome:
    """Use the head of other people's labels as it is."""
    model, words = person.others.vendor_model(), person.others.ngrams(person.test)
    return WayOutcome(model.logits(person.new(person.test), words).astype(np.float64), 0)


def logistic_way(person: Person) -> WayOutcome:
    """Fit scikit-learn's LogisticRegression with its defaults."""
    from sklearn.linear_model import LogisticRegression  # imported late, because it is slow to load

    return _sklearn(person, lambda _: LogisticRegression(max_iter=_MOST_STEPS))


def logistic_tuned(person: Person) -> WayOutcome:
    """Fit scikit-learn's LogisticRegression, with C cross-validated on the user's labels."""
    # imported late, because it is slow to load
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    def make(least: int) -> Any:  # noqa: ANN401
        if least < 2:
            return LogisticRegression(max_iter=_MOST_STEPS)
        return LogisticRegressionCV(
            Cs=np.logspace(-2, 3, 6), cv=min(5, least), max_iter=_MOST_STEPS,
            scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False,
        )  # fmt: skip

    return _sklearn(person, make)


class Way(NamedTuple):
    """A way, as tables show it.

    Attributes:
        title: Title in tables.
        run: Function that takes a person and returns the outcome.
    """

    title: str
    run: Callable[[Person], WayOutcome]


#: The ways by name, in the order of the tables.
WAYS = {
    "own-old": Way("old personal model kept", old),
    "own-logistic": Way("LogisticRegression", logistic_way),
    "own-logistic-cv": Way("LogisticRegression, C by cross-validation", logistic_tuned),
    "own-plain": Way(
        "FaLA begun again, no lexical features", lambda person: begun(person, words=False)
    ),
    "own-begun": Way("FaLA begun again", begun),
    "own-instant": Way("FaLA replaced, no forward pass", lambda person: replaced_way(person, 0)),
    "own-20": Way("FaLA replaced, 20 forward passes", lambda person: replaced_way(person, 20)),
    "own-all": Way("FaLA replaced, all texts", lambda person: replaced_way(person, sys.maxsize)),
    "own-others": Way("other people's head", others),
    "own-with-others": Way("FaLA from other people's head", with_others),
}


@contextmanager
def _device(person: Person, encoder: KnownTexts, *, words: bool = True) -> Iterator[Device]:
    """Yield a device of an app without a vendor; if it is told the dimension, it has no n-grams."""
    with (
        TemporaryDirectory(prefix="fala-") as folder,
        Device.create(
            Path(folder) / "device",
            labels=person.labels,
            encoder={encoder.name: encoder},
            dimension=None if words else encoder.dimension,
        ) as device,
    ):
        yield device


@contextmanager
def _learned(person: Person) -> Iterator[Device]:
    """Yield a device on the old encoder that has learned the labels and knows the other texts."""
    with _device(person, person.old) as device:
        device.learn(person.texts, person.truth)
        device.learn(person.history)
        yield device


def _logits(device: Device, texts: Sequence[str]) -> LogitArray:
    """Return logits (n, C) of a device's probabilities."""
    return _of_probabilities(device.predict_proba(texts))


def _of_probabilities(shares: Any) -> LogitArray:  # noqa: ANN401
    logs = np.log(np.maximum(np.asarray(shares, dtype=np.float64), np.finfo(np.float64).tiny))
    return logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs


def _sklearn(person: Person, make: Callable[[int], Any]) -> WayOutcome:
    """Fit a classifier of scikit-learn; if all labels are equal, always decide that label.

    Args:
        person: The user.
        make: Function that makes the classifier, for the number of labels of the rarest kind.
    """
    classes, known = person.classes(), len(person.labels)
    counts = np.bincount(classes, minlength=known)
    # A label without examples gets the share of one vote beside all others.
    shares = np.full((len(person.test), known), 1 / (len(classes) + known))
    present = np.flatnonzero(counts)
    if len(present) > 1:
        model = make(int(counts[present].min())).fit(person.new(person.texts), classes)
        shares[:, present] = model.predict_proba(person.new(person.test))
    else:
        shares[:, present] = (len(classes) + 1) / (len(classes) + known)
    return WayOutcome(_of_probabilities(shares), len(person.texts))
