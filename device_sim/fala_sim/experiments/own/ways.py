"""The ways to a user's model on the new encoder: FaLA's, and what an app would do instead.

Each way is a function of an ``App`` and a ``Person``. It returns logits of the person's test texts,
shape (m, C), and the number of texts that the new encoder has embedded for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from fala import Budget, Device
from fala.model.heads import Head
from fala_export import write_external
from fala_sim.data.users import UserLabel
from fala_sim.experiments.own.encoders import KnownTexts
from fala_sim.methods.quality import positions
from fala_sim.prepare.measured import LogitArray

_PROBES = 4
_MOST_STEPS = 1000


@dataclass(frozen=True)
class App:
    """An app that replaces its encoder.

    Attributes:
        labels: Names of the labels.
        old: The app's encoder.
        new: The encoder that replaces it.
        others: A head that was fitted to other people's labels, on the new encoder.
    """

    labels: tuple[int | str, ...]
    old: KnownTexts
    new: KnownTexts
    others: Head


@dataclass(frozen=True)
class Person:
    """A user of the app at the moment when its encoder is replaced.

    Attributes:
        texts: The labelled texts.
        truth: Labels of the labelled texts.
        history: Texts without a label, which the device also has.
        test: Texts on which the model is tested.
    """

    texts: Sequence[str]
    truth: Sequence[UserLabel]
    history: Sequence[str]
    test: Sequence[str]


#: A way's logits, and its number of forward passes.
WayOutcome: TypeAlias = tuple[LogitArray, int]


def old(app: App, person: Person) -> WayOutcome:
    """Keep the personal model on the old encoder."""
    with _learned(app, person) as device:
        return _logits(device, person.test), 0


def replaced_way(app: App, person: Person, passes: int = sys.maxsize) -> WayOutcome:
    """Replace the encoder of a device, within a number of forward passes.

    Without a limit, also refine until every text is embedded anew.
    """
    budget = Budget(forward_passes=passes)
    with _learned(app, person) as device:
        report = device.replace(budget=budget, encoder={app.new.name: app.new})
        spent = report.forward_passes
        while passes == sys.maxsize and (more := device.refine(budget).forward_passes):
            spent += more
        return _logits(device, person.test), spent


def begun(app: App, person: Person, *, words: bool = True) -> WayOutcome:
    """Begin again: a device of the new encoder learns the same labels, with n-grams or without."""
    with _device(app, app.new, words=words) as device:
        device.learn(person.texts, person.truth)
        return _logits(device, person.test), len(person.texts)


def with_others(app: App, person: Person) -> WayOutcome:
    """Begin again with a release whose head the server fitted to other people's labels."""
    inputs = sorted(person.texts, key=len)[:_PROBES]  # a probe has a thousand characters at most
    probes = dict(zip(inputs, app.new(inputs), strict=True))
    with TemporaryDirectory(prefix="fala-") as folder:
        release = Path(folder) / "others.fala"
        write_external(release, app.new.name, "1", app.others, probes)
        with Device.create(Path(folder) / "device", release, encoder=app.new) as device:
            device.learn(person.texts, person.truth)
            return _logits(device, person.test), len(person.texts)


def others(app: App, person: Person) -> WayOutcome:
    """Use the head of other people's labels as it is."""
    model, words = app.others.vendor_model(), app.others.ngrams(person.test)
    return model.logits(app.new(person.test), words).astype(np.float64), 0


def logistic_way(app: App, person: Person, *, tuned: bool = False) -> WayOutcome:
    """Fit scikit-learn's LogisticRegression with its defaults, or with C cross-validated.

    If all labels are equal, that label is always decided.
    """
    # imported late, because it is slow to load
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    classes, known = positions(person.truth, app.labels), len(app.labels)
    counts = np.bincount(classes, minlength=known)
    # A label without examples gets the share of one vote beside all others.
    shares = np.full((len(person.test), known), 1 / (len(classes) + known))
    present = np.flatnonzero(counts)
    if len(present) > 1:
        least = int(counts[present].min())
        model: Any = LogisticRegression(max_iter=_MOST_STEPS)
        if tuned and least > 1:
            model = LogisticRegressionCV(
                Cs=np.logspace(-2, 3, 6), cv=min(5, least), max_iter=_MOST_STEPS,
                scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False,
            )  # fmt: skip
        model.fit(app.new(person.texts), classes)
        shares[:, present] = model.predict_proba(app.new(person.test))
    else:
        shares[:, present] = (len(classes) + 1) / (len(classes) + known)
    return _of_probabilities(shares), len(person.texts)


#: The ways by name, in the order of the tables, each with its title.
WAYS: dict[str, tuple[str, Callable[[App, Person], WayOutcome]]] = {
    "own-old": ("old personal model kept", old),
    "own-logistic": ("LogisticRegression", logistic_way),
    "own-logistic-cv": (
        "LogisticRegression, C by cross-validation", partial(logistic_way, tuned=True)
    ),
    "own-plain": ("FaLA begun again, no lexical features", partial(begun, words=False)),
    "own-begun": ("FaLA begun again", begun),
    "own-instant": ("FaLA replaced, no forward pass", partial(replaced_way, passes=0)),
    "own-20": ("FaLA replaced, 20 forward passes", partial(replaced_way, passes=20)),
    "own-all": ("FaLA replaced, all texts", replaced_way),
    "own-others": ("other people's head", others),
    "own-with-others": ("FaLA from other people's head", with_others),
}  # fmt: skip


@contextmanager
def _device(app: App, encoder: KnownTexts, *, words: bool = True) -> Iterator[Device]:
    """Yield a device of an app without a vendor; if it is told the dimension, it has no n-grams."""
    with (
        TemporaryDirectory(prefix="fala-") as folder,
        Device.create(
            Path(folder) / "device",
            labels=app.labels,
            encoder={encoder.name: encoder},
            dimension=None if words else encoder.dimension,
        ) as device,
    ):
        yield device


@contextmanager
def _learned(app: App, person: Person) -> Iterator[Device]:
    """Yield a device on the old encoder that has learned the labels and knows the other texts."""
    with _device(app, app.old) as device:
        device.learn(person.texts, person.truth)
        device.learn(person.history)
        yield device


def _logits(device: Device, texts: Sequence[str]) -> LogitArray:
    """Return logits (n, C) of a device's probabilities."""
    return _of_probabilities(device.predict_proba(texts))


def _of_probabilities(shares: Any) -> LogitArray:  # noqa: ANN401
    logs = np.log(np.maximum(np.asarray(shares, dtype=np.float64), np.finfo(np.float64).tiny))
    return logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs
