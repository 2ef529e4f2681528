"""The meaning of a head's logits: probabilities of labels or of tags, or values of a rating.

All differences between the kinds of head are in their links: the mean of a logit, the loss of a
label and its curvature, and the labels and predictions of an app.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError, DataError, UnknownLabelError, shown
from fala.base.products import Floats
from fala.model.labels import (
    HeadLabel,
    Label,
    OwnLabel,
    as_array,
    finder,
    is_missing,
    label_name,
    named,
    names_of,
    number_of,
    stored_tags,
    tags_of,
    typed,
)
from fala.model.losses import (
    binary_cross_entropy,
    cross_entropy,
    label_probabilities,
    logistic,
    probabilities,
)

#: The kinds of labels.
LinkKind: TypeAlias = Literal["labels", "tags", "rating"]
#: One number for a head, or one for each of its tags.
PerTag: TypeAlias = float | tuple[float, ...]

#: Finds the head's label that a value equals; see ``finder``.
Find: TypeAlias = Callable[[object], HeadLabel | None]

#: The largest end of a rating's range, beyond which float32 loses precision.
LARGEST_RATING = 1e6
#: The least and the largest noise of a rating, as shares of its range.
LEAST_NOISE, LARGEST_NOISE = 1e-2, 10.0


class Link(ABC):
    """The meaning of a head's logits: ``Labels``, ``Tags`` or a ``Rating``.

    Its methods take logits z (n, C), and labels as numbers y (n, C).

    Attributes:
        kind: The kind of labels: ``"labels"`` exclude one another, ``"tags"`` do not.
        low: The least mean that a label can have.
        high: The largest mean that a label can have.
        measure: The kind of loss, in words.
    """

    kind: LinkKind
    low: float
    high: float
    measure: str

    @property
    def spread(self) -> float:
        """Standard deviation of people's logits from the vendor's, before any evidence."""
        return 1.0

    @abstractmethod
    def count(self, labels: Sequence[HeadLabel]) -> int:
        """Return C, for a head with these labels.

        Raises:
            BundleFormatError: No head has such labels.
        """

    def described(self, labels: Sequence[HeadLabel]) -> str:
        """Return the labels in words."""
        return f"{self.kind} {named(labels)}"

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        """Return whether all labels of an earlier link are labels of this one.

        Args:
            other: The link of the head before.
            labels: This head's labels.
            before: The labels of the head before.
        """
        return type(other) is type(self) and names_of(before) == names_of(labels)

    # A fit's losses

    def centred(self, z: Floats) -> Floats:
        """Return logits (n, C) without the part that no mean depends on."""
        return z

    @abstractmethod
    def mean(self, z: NDArray[np.floating]) -> Floats:
        """Return the mean of a label by logits, (n, C)."""

    @abstractmethod
    def losses(self, y: Floats, z: Floats) -> Floats:
        """Return minus the log-likelihood of labels by logits, in nats, (n,)."""

    def residual(self, mean: Floats, y: Floats) -> Floats:
        """Return the losses' derivative by the logits, (n, C)."""
        return mean - y

    @abstractmethod
    def curved(self, mean: Floats, change: Floats) -> Floats:
        """Return their second derivative, times a change of the logits (n, C)."""

    @abstractmethod
    def curvature(self, mean: Floats) -> Floats:
        """Return one curvature per example for all of its logits, (n,)."""

    @abstractmethod
    def varied(self, y: Floats, least: int) -> bool:
        """Return whether at least two labels have ``least`` examples or more, to compare by."""

    @abstractmethod
    def certainty(self, z: Floats) -> Floats:
        """Return how far an example's logits are from another decision, (n,)."""

    @abstractmethod
    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return class numbers, equal where logits (n, C) mean the same, (n,)."""

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """Return further scores of logits against labels, by name."""
        return {}

    # Predictions

    @abstractmethod
    def values(self, z: NDArray[np.floating]) -> Floats:
        """Return probabilities of labels or tags, or values of a rating, (n, number of labels)."""

    def order(self, z: NDArray[np.floating]) -> Floats:
        """Return the keys that candidates are ranked by, (n, number of labels)."""
        return self.values(z)

    @abstractmethod
    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        """Return the most probable label of every example, or its set of tags or value, (n,)."""

    # An app's labels

    @abstractmethod
    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        """Return labels as numbers (n, C), NaN where there is none.

        Raises:
            DataError: A label is not one of the head's; the error names its position.
        """

    def as_stored(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> list[str | None]:
        """Return the texts of an app's labels in a store; None for no label."""
        find = finder(labels)
        return [None if is_missing(label) else self._text(label, find) for label in given]

    @abstractmethod
    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        """Return a stored label in the type of the head's labels, or None if it is damaged."""

    def usable(
        self, stored: Sequence[str | None], labels: Sequence[HeadLabel]
    ) -> Sequence[OwnLabel | None]:
        """Return stored labels in the head's type, with None for those that it lacks."""
        own = {str(label): label for label in labels}
        return [None if label is None else self._usable(label, own) for label in stored]

    @abstractmethod
    def _text(self, label: Label, find: Find) -> str: ...

    @abstractmethod
    def _usable(self, stored: str, own: Mapping[str, HeadLabel]) -> OwnLabel | None: ...


@dataclass(frozen=True)
class Labels(Link):
    """Labels that exclude one another: the logistic function for two, else the softmax.

    If two labels are equally probable, the first one is predicted. An example's certainty is the
    difference of its two largest logits. A label is stored by its name.
    """

    kind = "labels"
    low, high = 0.0, 1.0
    measure = "cross-entropy"

    def count(self, labels: Sequence[HeadLabel]) -> int:
        if len(labels) < 2 or len(set(labels)) != len(labels):
            raise BundleFormatError(
                f"a head must have two or more distinct labels{_distinct(labels)}"
            )
        return 1 if len(labels) == 2 else len(labels)

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        return isinstance(other, Labels) and names_of(before) <= names_of(labels)

    def centred(self, z: Floats) -> Floats:
        return z - z.mean(axis=1, keepdims=True) if z.shape[1] > 1 else z

    def mean(self, z: NDArray[np.floating]) -> Floats:
        return probabilities(z)

    def losses(self, y: Floats, z: Floats) -> Floats:
        return cross_entropy(y, z)

    def curved(self, mean: Floats, change: Floats) -> Floats:
        centre = mean * change
        if mean.shape[1] > 1:
            centre = np.einsum("nc,nc->n", mean, change)[:, None]
        return np.asarray(mean * (change - centre))

    def curvature(self, mean: Floats) -> Floats:
        return np.asarray((mean * (1 - mean)).sum(axis=1) / max(1, mean.shape[1] - 1))

    def varied(self, y: Floats, least: int) -> bool:
        ones = y.sum(axis=0)
        counts = np.append(ones, len(y) - ones) if y.shape[1] == 1 else ones
        return int((counts >= least).sum()) >= 2

    def certainty(self, z: Floats) -> Floats:
        # A single logit is compared with a second logit of 0.
        ordered = np.sort(z if z.shape[1] > 1 else np.hstack([z, np.zeros_like(z)]), axis=1)
        return np.asarray(ordered[:, -1] - ordered[:, -2])

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        return (z[:, 0] > 0).astype(np.int64) if z.shape[1] == 1 else z.argmax(axis=1)

    def values(self, z: NDArray[np.floating]) -> Floats:
        return label_probabilities(z)

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        return as_array(labels)[self.classes(z)]

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        wrong = "the label of example {} is {}, not one of {}"
        shares = _shares([None if is_missing(label) else [label] for label in given], labels, wrong)
        return shares[:, 1:] if len(labels) == 2 else shares

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        return typed(stored, labels)

    def _text(self, label: Label, find: Find) -> str:
        return _name_in(label, find)

    def _usable(self, stored: str, own: Mapping[str, HeadLabel]) -> OwnLabel | None:
        return own.get(stored)


@dataclass(frozen=True)
class Tags(Link):
    """Labels that do not exclude one another: each has a logit, and a fit of its own.

    A label is the set of an example's tags, and is predicted as a frozenset of those whose
    probability is above 1/2. The losses are sums over the tags, the curvature is their mean, and an
    example's certainty is that of its least certain tag. A further tag would change the meaning of
    all sets. A set is stored as a JSON list of the tags' names, in order.
    """

    kind = "tags"
    low, high = 0.0, 1.0
    measure = "cross-entropy, summed over the tags,"

    def count(self, labels: Sequence[HeadLabel]) -> int:
        if not labels or len(set(labels)) != len(labels):
            raise BundleFormatError(
                f"a head must have one or more distinct tags{_distinct(labels)}"
            )
        return len(labels)

    def mean(self, z: NDArray[np.floating]) -> Floats:
        return logistic(z)

    def losses(self, y: Floats, z: Floats) -> Floats:
        return np.asarray(binary_cross_entropy(y, z).sum(axis=1))

    def curved(self, mean: Floats, change: Floats) -> Floats:
        return mean * (1 - mean) * change

    def curvature(self, mean: Floats) -> Floats:
        return np.asarray((mean * (1 - mean)).mean(axis=1))

    def varied(self, y: Floats, least: int) -> bool:
        ones = y.sum(axis=0)
        return bool((np.minimum(ones, len(y) - ones) >= least).any())

    def certainty(self, z: Floats) -> Floats:
        return np.asarray(np.abs(z).min(axis=1))

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        bits = np.random.default_rng(0).integers(2**62, size=z.shape[1])  # their sum hashes the set
        return np.asarray((z > 0) @ bits, dtype=np.int64)

    def values(self, z: NDArray[np.floating]) -> Floats:
        return logistic(z.astype(np.float64))

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        names = np.array(labels, dtype=object)
        sets = np.empty(len(z), dtype=object)
        sets[:] = [frozenset(names[row]) for row in z > 0]
        return sets

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        sets = [
            None if is_missing(label) else tags_of(label, f" of example {position}")
            for position, label in enumerate(given)
        ]
        return _shares(sets, labels, "a tag of example {} is {}, not one of {}")

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        tags = stored_tags(stored)
        return None if tags is None else frozenset(typed(tag, labels) for tag in tags)

    def _text(self, label: Label, find: Find) -> str:
        names = {_name_in(tag, find) for tag in tags_of(label)}
        return json.dumps(sorted(names), ensure_ascii=False)

    def _usable(self, stored: str, own: Mapping[str, HeadLabel]) -> OwnLabel | None:
        tags = stored_tags(stored)
        known = tags is not None and tags <= own.keys()
        return frozenset(own[tag] for tag in tags) if tags is not None and known else None


LABELS, TAGS = Labels(), Tags()


@dataclass(frozen=True)
class Rating(Link):
    """Numbers: stars, or seconds watched. A label is normal about the logit.

    Its noise, which the vendor measures, scales the loss. A rating has the curvature of a label at
    a probability of 1/2 if people differ by half of the noise. Values are within the range, but the
    order of candidates also tells logits beyond the range apart. All ratings are equally uncertain,
    so the newest come first. Ratings within a step of the noise form one class.

    Attributes:
        low: The least number.
        high: The largest number.
        noise: The standard deviation of people's numbers about the vendor's own model.

    Raises:
        BundleFormatError: The numbers cannot be those of a rating.
    """

    low: float
    high: float
    noise: float
    kind = "rating"
    measure = "squared error in nats"

    def __post_init__(self) -> None:
        numbers = (self.low, self.high, self.noise)
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            raise BundleFormatError("a rating's range and noise must be numbers")
        if not -LARGEST_RATING <= self.low < self.high <= LARGEST_RATING:
            raise BundleFormatError(
                f"a rating's range is from a lower to a higher number, within "
                f"{LARGEST_RATING:g}, not from {self.low!r:.40} to {self.high!r:.40}"
            )
        if not LEAST_NOISE <= self.noise / (self.high - self.low) <= LARGEST_NOISE:
            raise BundleFormatError(
                f"a rating's noise is from {LEAST_NOISE:g} to {LARGEST_NOISE:g} times its range"
            )

    @property
    def spread(self) -> float:
        return self.noise / 2

    def count(self, labels: Sequence[HeadLabel]) -> int:
        if len(labels) != 1 or not isinstance(labels[0], str):
            raise BundleFormatError(f"a rating must have one name, a string, not {named(labels)}")
        return 1

    def described(self, labels: Sequence[HeadLabel]) -> str:
        return f"the rating {labels[0]!r} from {self.low:g} to {self.high:g}"

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        within = isinstance(other, Rating) and self.low <= other.low and other.high <= self.high
        return within and super().continues(other, labels, before)

    def mean(self, z: NDArray[np.floating]) -> Floats:
        return np.asarray(z, dtype=np.float64)

    def losses(self, y: Floats, z: Floats) -> Floats:
        return np.asarray((((y - z) / self.noise) ** 2).sum(axis=1) / 2)

    def residual(self, mean: Floats, y: Floats) -> Floats:
        return (mean - y) / self.noise**2

    def curved(self, mean: Floats, change: Floats) -> Floats:
        return change / self.noise**2

    def curvature(self, mean: Floats) -> Floats:
        return np.full(len(mean), 1 / self.noise**2)

    def varied(self, y: Floats, least: int) -> bool:
        return len(y) > 0 and bool(np.ptp(y) > 0)

    def certainty(self, z: Floats) -> Floats:
        return -np.arange(len(z), dtype=np.float64)

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        return np.rint((self.values(z)[:, 0] - self.low) / self.noise).astype(np.int64)

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """Return the root of the mean squared error, and Spearman's rank correlation."""
        if not len(y):
            return {}
        values, truth = self.values(z)[:, 0], y[:, 0]
        scores = {"rmse": float(np.sqrt(((values - truth) ** 2).mean()))}
        first, second = (rank - rank.mean() for rank in map(ranks, (values, truth)))
        if first.any() and second.any():
            norm = float(np.linalg.norm(first) * np.linalg.norm(second))
            scores["rank_correlation"] = float(first @ second) / norm
        return scores

    def values(self, z: NDArray[np.floating]) -> Floats:
        return np.clip(z.astype(np.float64), self.low, self.high)

    def order(self, z: NDArray[np.floating]) -> Floats:
        return z.astype(np.float64)

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        return self.values(z)[:, 0]

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        values = np.full((len(given), 1), np.nan)
        for position, label in enumerate(given):
            if is_missing(label):
                continue
            value = number_of(label)
            if not self.low <= value <= self.high:
                raise DataError(
                    f"the label of example {position} is {shown(label)}, not a number from "
                    f"{self.low:g} to {self.high:g}"
                )
            values[position] = value
        return values

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        number = number_of(stored)
        return None if math.isnan(number) else number

    def _text(self, label: Label, find: Find) -> str:
        return repr(number_of(label)).removesuffix(".0")  # the shortest

    def _usable(self, stored: str, own: Mapping[str, HeadLabel]) -> OwnLabel | None:
        number = number_of(stored)
        return number if self.low <= number <= self.high else None


def _shares(
    given: Sequence[Sequence[object] | None], labels: Sequence[HeadLabel], wrong: str
) -> Floats:
    """Return 1 where an example has a label, else 0, (n, number of labels); NaN for None."""
    index = {label: position for position, label in enumerate(labels)}
    shares, find = np.zeros((len(given), len(labels))), finder(labels)
    for position, values in enumerate(given):
        if values is None:
            shares[position] = np.nan
            continue
        for value in values:
            if (own := find(value)) is None:
                raise UnknownLabelError(wrong.format(position, shown(value), named(labels)))
            shares[position, index[own]] = 1.0
    return shares


def _name_in(label: object, find: Find) -> str:
    """Return the name of the head's label that a value equals, or the value's own."""
    return label_name(label if (own := find(label)) is None else own)


def _distinct(labels: Sequence[HeadLabel]) -> str:
    return f"; of these {len(labels)}, {len(set(labels))} are distinct"


def ranks(values: Floats) -> Floats:
    """Return ranks (n,); equal values have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])
