"""The meaning of a head's logits: probabilities of labels or of tags, or values of a rating.

All differences between the kinds of head are in their links: the mean of a logit, the loss of a
label and its curvature, and the labels and predictions of an app.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import BundleFormatError, DataError, UnknownLabelError, shown
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
    Floats,
    binary_cross_entropy,
    cross_entropy,
    label_probabilities,
    logistic,
    probabilities,
)

#: The kinds of labels.
LinkKind: TypeAlias = Literal["labels", "tags", "rating"]
#: A number for a head, or, of tags, one each.
PerTag: TypeAlias = float | tuple[float, ...]

#: The largest end of a rating's range: beyond it, float32 loses precision.
LARGEST_RATING = 1e6
#: The least and the largest noise of a rating, as shares of its range.
LEAST_NOISE, LARGEST_NOISE = 1e-2, 10.0


class Link(Protocol):
    """The meaning of a head's logits: ``Labels``, ``Tags`` or a ``Rating``.

    Its methods take logits z (n, C), and labels as numbers y (n, C).
    """

    @property
    def kind(self) -> LinkKind:
        """The kind of labels: ``"labels"`` exclude one another, ``"tags"`` do not."""

    @property
    def low(self) -> float:
        """The least mean of a label."""

    @property
    def high(self) -> float:
        """The largest."""

    @property
    def spread(self) -> float:
        """Standard deviation of people's logits from the vendor's, before any evidence."""

    @property
    def measure(self) -> str:
        """The kind of loss, in words."""

    def count(self, labels: Sequence[HeadLabel]) -> int:
        """C, for a head with these labels.

        Raises:
            BundleFormatError: No head has such labels.
        """

    def described(self, labels: Sequence[HeadLabel]) -> str:
        """The labels in words."""

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        """Whether all labels of an earlier link are labels of this one.

        Args:
            other: The link of the head before.
            labels: This head's labels.
            before: The labels of the head before.
        """

    # A fit's losses

    def centred(self, z: Floats) -> Floats:
        """Logits (n, C) without the part that no mean depends on."""

    def mean(self, z: NDArray[np.floating]) -> Floats:
        """The mean of a label by logits, (n, C)."""

    def losses(self, y: Floats, z: Floats) -> Floats:
        """Minus the log-likelihood of labels by logits, in nats, (n,)."""

    def residual(self, mean: Floats, y: Floats) -> Floats:
        """The losses' derivative by the logits, (n, C)."""

    def curved(self, mean: Floats, change: Floats) -> Floats:
        """Their second derivative, times a change of the logits (n, C)."""

    def curvature(self, mean: Floats) -> Floats:
        """One curvature an example for all of its logits, (n,); see ``Evidence.curvature``."""

    def varied(self, y: Floats, least: int) -> bool:
        """Whether labels differ enough to judge by: two have ``least`` examples or more."""

    def certainty(self, z: Floats) -> Floats:
        """How far an example's logits are from another decision, (n,)."""

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        """Class numbers, equal where logits (n, C) mean the same, (n,)."""

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """Further scores of logits against labels, by name."""

    # Predictions

    def values(self, z: NDArray[np.floating]) -> Floats:
        """Probabilities of labels or tags, or values of a rating, (n, number of labels)."""

    def order(self, z: NDArray[np.floating]) -> Floats:
        """The keys that candidates are ranked by, (n, number of labels)."""

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        """Return the most probable label of every example, or its set of tags or value, (n,)."""

    # An app's labels

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        """Labels as numbers (n, C), NaN where there is none.

        Raises:
            DataError: One is not the head's; names its position.
        """

    def as_stored(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> list[str | None]:
        """The texts of an app's labels in a store; None for no label."""

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        """A stored label in the type of the head's labels; None if it is damaged."""

    def usable(
        self, stored: Sequence[str | None], labels: Sequence[HeadLabel]
    ) -> Sequence[OwnLabel | None]:
        """Stored labels in the head's type, with None for those that it lacks."""


@dataclass(frozen=True)
class Labels:
    """Labels that exclude one another: the logistic function for two, else the softmax."""

    kind: ClassVar[LinkKind] = "labels"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    spread: ClassVar[float] = 1.0
    measure: ClassVar[str] = "cross-entropy"

    def count(self, labels: Sequence[HeadLabel]) -> int:
        """See ``Link``."""
        if len(labels) < 2 or len(set(labels)) != len(labels):
            raise BundleFormatError(f"a head has two or more distinct labels{_distinct(labels)}")
        return 1 if len(labels) == 2 else len(labels)

    def centred(self, z: Floats) -> Floats:
        """See ``Link``."""
        return z - z.mean(axis=1, keepdims=True) if z.shape[1] > 1 else z

    def described(self, labels: Sequence[HeadLabel]) -> str:
        """See ``Link``."""
        return f"labels {named(labels)}"

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        """See ``Link``."""
        return isinstance(other, Labels) and names_of(before) <= names_of(labels)

    def mean(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return probabilities(z)

    def losses(self, y: Floats, z: Floats) -> Floats:
        """See ``Link``."""
        return cross_entropy(y, z)

    def residual(self, mean: Floats, y: Floats) -> Floats:
        """See ``Link``."""
        return mean - y

    def curved(self, mean: Floats, change: Floats) -> Floats:
        """See ``Link``."""
        centre = mean * change
        if mean.shape[1] > 1:
            centre = np.einsum("nc,nc->n", mean, change)[:, None]
        return np.asarray(mean * (change - centre))

    def curvature(self, mean: Floats) -> Floats:
        """See ``Link``."""
        return np.asarray((mean * (1 - mean)).sum(axis=1) / max(1, mean.shape[1] - 1))

    def varied(self, y: Floats, least: int) -> bool:
        """See ``Link``."""
        ones = y.sum(axis=0)
        counts = np.append(ones, len(y) - ones) if y.shape[1] == 1 else ones
        return int((counts >= least).sum()) >= 2

    def certainty(self, z: Floats) -> Floats:
        """See ``Link``: the difference of its two largest logits."""
        # One logit is compared with a second one of 0.
        ordered = np.sort(z if z.shape[1] > 1 else np.hstack([z, np.zeros_like(z)]), axis=1)
        return np.asarray(ordered[:, -1] - ordered[:, -2])

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        """See ``Link``."""
        return (z[:, 0] > 0).astype(np.int64) if z.shape[1] == 1 else z.argmax(axis=1)

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """See ``Link``."""
        return {}

    def values(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return label_probabilities(z)

    def order(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return label_probabilities(z)

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        """See ``Link``: of two equally probable labels the first."""
        return as_array(labels)[self.classes(z)]

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        """See ``Link``."""
        index = {label: position for position, label in enumerate(labels)}
        shares, find = np.zeros((len(given), len(labels))), finder(labels)
        for position, label in enumerate(given):
            if is_missing(label):
                shares[position] = np.nan
            elif (own := find(label)) is None:
                wrong = _wrong_label(label, position, f"one of {named(labels)}")
                raise UnknownLabelError(str(wrong))
            else:
                shares[position, index[own]] = 1.0
        return shares[:, 1:] if len(labels) == 2 else shares

    def as_stored(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> list[str | None]:
        """See ``Link``: the labels' names."""
        find = finder(labels)
        return [None if is_missing(label) else _name_in(label, find) for label in given]

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        """See ``Link``."""
        return typed(stored, labels)

    def usable(
        self, stored: Sequence[str | None], labels: Sequence[HeadLabel]
    ) -> Sequence[OwnLabel | None]:
        """See ``Link``."""
        own = {str(label): label for label in labels}
        return [None if label is None else own.get(label) for label in stored]


LABELS = Labels()


@dataclass(frozen=True)
class Tags:
    """Labels that do not exclude one another: each has a logit, and a fit of its own.

    A label is the set of an example's tags. The losses are sums over the tags.
    """

    kind: ClassVar[LinkKind] = "tags"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    spread: ClassVar[float] = 1.0
    measure: ClassVar[str] = "cross-entropy, summed over the tags,"

    def count(self, labels: Sequence[HeadLabel]) -> int:
        """See ``Link``."""
        if not labels or len(set(labels)) != len(labels):
            raise BundleFormatError(f"a head has one or more distinct tags{_distinct(labels)}")
        return len(labels)

    def centred(self, z: Floats) -> Floats:
        """See ``Link``."""
        return z

    def described(self, labels: Sequence[HeadLabel]) -> str:
        """See ``Link``."""
        return f"tags {named(labels)}"

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        """See ``Link``: a set of tags has no label for a further tag."""
        return isinstance(other, Tags) and names_of(before) == names_of(labels)

    def mean(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return logistic(z)

    def losses(self, y: Floats, z: Floats) -> Floats:
        """See ``Link``."""
        return np.asarray(binary_cross_entropy(y, z).sum(axis=1))

    def residual(self, mean: Floats, y: Floats) -> Floats:
        """See ``Link``."""
        return mean - y

    def curved(self, mean: Floats, change: Floats) -> Floats:
        """See ``Link``."""
        return mean * (1 - mean) * change

    def curvature(self, mean: Floats) -> Floats:
        """See ``Link``: the tags' mean, exact for one tag."""
        return np.asarray((mean * (1 - mean)).mean(axis=1))

    def varied(self, y: Floats, least: int) -> bool:
        """See ``Link``: whether the labels of one tag differ enough."""
        ones = y.sum(axis=0)
        return bool((np.minimum(ones, len(y) - ones) >= least).any())

    def certainty(self, z: Floats) -> Floats:
        """See ``Link``: that of the least certain tag."""
        return np.asarray(np.abs(z).min(axis=1))

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        """See ``Link``: a hash of the set of tags."""
        bits = np.random.default_rng(0).integers(2**62, size=z.shape[1])
        return np.asarray((z > 0) @ bits, dtype=np.int64)

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """See ``Link``."""
        return {}

    def values(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``: they do not sum to 1."""
        return logistic(z.astype(np.float64))

    def order(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return self.values(z)

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        """See ``Link``: frozensets of the tags whose probability is above 1/2."""
        names = np.array(labels, dtype=object)
        sets = np.empty(len(z), dtype=object)
        sets[:] = [frozenset(names[row]) for row in z > 0]
        return sets

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        """See ``Link``: 1 where an example has a tag, else 0."""
        index = {label: position for position, label in enumerate(labels)}
        shares, find = np.zeros((len(given), len(labels))), finder(labels)
        for position, label in enumerate(given):
            if is_missing(label):
                shares[position] = np.nan
                continue
            for tag in tags_of(label, f" of example {position}"):
                if (own := find(tag)) is None:
                    raise UnknownLabelError(
                        f"a tag of example {position} is none of {named(labels)}"
                    )
                shares[position, index[own]] = 1.0
        return shares

    def as_stored(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> list[str | None]:
        """See ``Link``: a JSON list of the tags' names, in order."""
        find = finder(labels)
        names = (
            None if is_missing(label) else sorted({_name_in(tag, find) for tag in tags_of(label)})
            for label in given
        )
        return [None if each is None else json.dumps(each, ensure_ascii=False) for each in names]

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        """See ``Link``: a frozenset."""
        tags = stored_tags(stored)
        return None if tags is None else frozenset(typed(tag, labels) for tag in tags)

    def usable(
        self, stored: Sequence[str | None], labels: Sequence[HeadLabel]
    ) -> Sequence[OwnLabel | None]:
        """See ``Link``."""
        own = {str(label): label for label in labels}
        sets = (None if label is None else stored_tags(label) for label in stored)
        return [
            frozenset(own[tag] for tag in tags) if tags is not None and tags <= own.keys() else None
            for tags in sets
        ]


TAGS = Tags()


@dataclass(frozen=True)
class Rating:
    """Numbers: stars, or seconds watched. A label is normal about the logit.

    Its noise, which the vendor measures, scales the loss. A rating has the curvature of a label at
    a probability of 1/2 if people differ by half of the noise.

    Attributes:
        low: The least number.
        high: The largest.
        noise: Standard deviation of people's numbers about the vendor's own model.

    Raises:
        BundleFormatError: They are no such numbers.
    """

    low: float
    high: float
    noise: float
    kind: ClassVar[LinkKind] = "rating"
    measure: ClassVar[str] = "squared error in nats"

    def __post_init__(self) -> None:
        numbers = (self.low, self.high, self.noise)
        if any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
            raise BundleFormatError("a rating's range and noise are numbers")
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
        """See ``Link``."""
        return self.noise / 2

    def count(self, labels: Sequence[HeadLabel]) -> int:
        """See ``Link``."""
        if len(labels) != 1 or not isinstance(labels[0], str):
            raise BundleFormatError(f"a rating has one name, a string, not {named(labels)}")
        return 1

    def centred(self, z: Floats) -> Floats:
        """See ``Link``."""
        return z

    def described(self, labels: Sequence[HeadLabel]) -> str:
        """See ``Link``."""
        return f"the rating {labels[0]!r} from {self.low:g} to {self.high:g}"

    def continues(
        self, other: Link, labels: Sequence[HeadLabel], before: Sequence[HeadLabel]
    ) -> bool:
        """See ``Link``."""
        within = isinstance(other, Rating) and self.low <= other.low and other.high <= self.high
        return within and names_of(before) == names_of(labels)

    def mean(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``."""
        return np.asarray(z, dtype=np.float64)

    def losses(self, y: Floats, z: Floats) -> Floats:
        """See ``Link``: half the squared error, by the noise's square."""
        return np.asarray((((y - z) / self.noise) ** 2).sum(axis=1) / 2)

    def residual(self, mean: Floats, y: Floats) -> Floats:
        """See ``Link``."""
        return (mean - y) / self.noise**2

    def curved(self, mean: Floats, change: Floats) -> Floats:
        """See ``Link``."""
        return change / self.noise**2

    def curvature(self, mean: Floats) -> Floats:
        """See ``Link``."""
        return np.full(len(mean), 1 / self.noise**2)

    def varied(self, y: Floats, least: int) -> bool:
        """See ``Link``."""
        return len(y) > 0 and bool(np.ptp(y) > 0)

    def certainty(self, z: Floats) -> Floats:
        """See ``Link``: all are equally uncertain, and the newest come first."""
        return -np.arange(len(z), dtype=np.float64)

    def classes(self, z: NDArray[np.floating]) -> NDArray[np.int64]:
        """See ``Link``: steps of the noise within the range."""
        return np.rint((self.values(z)[:, 0] - self.low) / self.noise).astype(np.int64)

    def scores(self, y: Floats, z: Floats) -> Mapping[str, float]:
        """See ``Link``: the root of the mean squared error, and Spearman's rank correlation."""
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
        """See ``Link``."""
        return np.clip(z.astype(np.float64), self.low, self.high)

    def order(self, z: NDArray[np.floating]) -> Floats:
        """See ``Link``: values beyond the range differ, too."""
        return z.astype(np.float64)

    def predict(self, z: NDArray[np.floating], labels: Sequence[HeadLabel]) -> NDArray[Any]:
        """See ``Link``."""
        return self.values(z)[:, 0]

    def numbers(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> Floats:
        """See ``Link``."""
        values = np.full((len(given), 1), np.nan)
        for position, label in enumerate(given):
            if is_missing(label):
                continue
            value = number_of(label)
            if not self.low <= value <= self.high:
                raise _wrong_label(label, position, f"a number from {self.low:g} to {self.high:g}")
            values[position] = value
        return values

    def as_stored(self, given: Sequence[Label], labels: Sequence[HeadLabel]) -> list[str | None]:
        """See ``Link``: the shortest text of the number."""
        return [
            None if is_missing(label) else repr(number_of(label)).removesuffix(".0")
            for label in given
        ]

    def given_back(self, stored: str, labels: Sequence[HeadLabel]) -> OwnLabel | None:
        """See ``Link``: a number."""
        number = number_of(stored)
        return None if math.isnan(number) else number

    def usable(
        self, stored: Sequence[str | None], labels: Sequence[HeadLabel]
    ) -> Sequence[OwnLabel | None]:
        """See ``Link``."""
        numbers = [math.nan if label is None else number_of(label) for label in stored]
        return [number if self.low <= number <= self.high else None for number in numbers]


def _name_in(label: object, find: Callable[[object], HeadLabel | None]) -> str:
    """The name of the head's label that a value equals, or the value's own."""
    return label_name(label if (own := find(label)) is None else own)


def _distinct(labels: Sequence[HeadLabel]) -> str:
    return f"; of these {len(labels)}, {len(set(labels))} are distinct"


def _wrong_label(label: object, position: int, expected: str) -> DataError:
    return DataError(f"the label of example {position} is {shown(label)}, not {expected}")


def ranks(values: Floats) -> Floats:
    """Ranks (n,), the mean rank where values are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])
