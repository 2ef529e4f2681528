"""One user at the moment when the vendor's new backbone arrives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala import Bundle, Device, Match
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.labels import HeadLabel, OwnLabel
from fala_export.fit.device_fit import SparseRows
from fala_sim.meter import Meter

#: The tasks, by the kind of their labels.
LabelTask: TypeAlias = Literal["classification", "matching", "rating", "tags"]
#: The tasks whose labels exclude one another.
CLASSES: tuple[LabelTask, ...] = ("classification", "matching")
UserExample: TypeAlias = "str | Match"
#: A label, a rating's number, or an example's tags.
UserLabel: TypeAlias = OwnLabel
LogitArray: TypeAlias = NDArray[np.float64]
#: Embeddings (d,) by text.
EmbeddingByText: TypeAlias = Mapping[str, Vectors]


class DeviceEncoding(Protocol):
    """The new backbone on a user's device; every text costs a forward pass."""

    def __call__(self, texts: Sequence[str], meter: Meter) -> dict[str, Vectors]:
        """Embeddings (d,) by text, counted in the stage ``"forward"``."""


@dataclass(frozen=True)
class MeasuredRelease:
    """A vendor's release, with the laboratory's data about it.

    Attributes:
        name: The backbone's name.
        path: The bundle, with its head.
        head: The vendor's global head.
        embeddings: Cached embeddings (d,) of all the data set's texts, for scoring, for searches
            and where cost is not measured. ``Situation.encode`` has those that a device pays for.
        flops: FLOPs of one forward pass by length in tokens, from the graph's shapes; empty for
            word vectors.
        tokens: Length of every text in tokens, truncated as the backbone does.
    """

    name: str
    path: Path
    head: Head
    embeddings: EmbeddingByText
    flops: Mapping[int, float]
    tokens: Mapping[str, int] = field(default_factory=dict)

    def forward_flops(self, texts: Iterable[str]) -> float:
        """FLOPs of encoding some texts one by one, without padding."""
        if len(self.flops) < 3:
            return 0.0
        # Exact: a transformer's cost is a quadratic of the length.
        lengths = np.array([self.tokens[text] for text in texts], dtype=np.float64)
        curve = np.polyfit(list(self.flops), list(self.flops.values()), 2)
        return float(np.polyval(curve, lengths).sum())

    def learned(self, user: User) -> PersonalModel:
        """The model of a device with this release that has learned a user's train labels."""
        with (
            TemporaryDirectory(prefix="fala-") as folder,
            Device.create(Path(folder) / "device", self.path) as device,
        ):
            if user.train:
                device.learn(user.train, user.train_labels)
            return device.model

    def inputs(self, examples: Sequence[UserExample]) -> Vectors:
        """The head's inputs of n examples, shape (n, D)."""
        return self.head.inputs(examples, self.embeddings)

    def words(self, examples: Sequence[UserExample]) -> SparseRows | None:
        """The n-grams of n examples; None if the head has no words."""
        return self.head.words(examples)

    def logits(self, model: PersonalModel, examples: Sequence[UserExample]) -> LogitArray:
        """The logits (n, C) of a model on this release's head for n examples."""
        return model.logits(self.inputs(examples), self.words(examples)).astype(np.float64)


@dataclass(frozen=True)
class User:
    """One user's examples.

    Attributes:
        name: As in the data set.
        train: The examples on the device.
        train_labels: Their labels.
        test: Held out, in nobody's training data.
        test_labels: Their labels.
    """

    name: str
    train: Sequence[UserExample]
    train_labels: Sequence[UserLabel]
    test: Sequence[UserExample]
    test_labels: Sequence[UserLabel]


@dataclass(frozen=True)
class Situation:
    """The input of a method.

    Attributes:
        user: The user whose model is replaced.
        old: The old backbone with the vendor's plain head, as papers have it.
        installed: The old backbone as FaLA's devices have it: with a head on embeddings and words.
        new: The new backbone with the vendor's plain head, from which every peer starts.
        shipped: The new backbone as FaLA's devices get it: with the vendor's head on embeddings and
            words, a bridge, and scales chosen on public annotators.
        personal: The old personal model without words, fitted by a device's ``learn`` on all train
            examples.
        transformer: Hugging Face folder of the new backbone, for training; None if there is only
            a bundle.
        encode: The new backbone on the device.
        seed: Of every random choice.
        meter: Counts the cost of this replacement.
        words: The vendor's head on words alone; its one dense input is 0. None if not needed.
    """

    user: User
    old: MeasuredRelease
    installed: MeasuredRelease
    new: MeasuredRelease
    shipped: MeasuredRelease
    personal: PersonalModel
    transformer: Path | None
    encode: DeviceEncoding
    seed: int
    meter: Meter = field(default_factory=Meter)
    words: Head | None = None

    @property
    def labels(self) -> tuple[HeadLabel, ...]:
        """The labels, in the order of the logits."""
        return self.new.head.labels

    @property
    def exclusive(self) -> bool:
        """Whether an example has one of several labels, and no rating or tags."""
        return self.new.head.link.kind == "labels"

    def label_shares(self) -> NDArray[np.float64]:
        """The train labels as class shares, shape (n, C); C is 1 for two classes."""
        return self.new.head.label_shares(self.user.train_labels)

    def old_logits(self, examples: Sequence[UserExample] | None = None) -> LogitArray:
        """The old personal model's logits (n, C); of the train examples by default."""
        return self.old.logits(self.personal, self.user.train if examples is None else examples)


def distinct_texts(examples: Iterable[UserExample]) -> list[str]:
    """The distinct texts of some examples, in order of first appearance."""
    return list(dict.fromkeys(text for example in examples for text in example_texts(example)))


def example_texts(example: UserExample) -> tuple[str, ...]:
    """The texts of one example: itself, or its history and its candidate."""
    return (*example.history, example.candidate) if isinstance(example, Match) else (example,)


def forward_flops_of(bundle: Bundle) -> dict[int, float]:
    """FLOPs of one forward pass by length in tokens, from a bundle's manifest."""
    cost = bundle.manifest.details.get("cost")
    flops = cost.get("flops", {}) if isinstance(cost, dict) else {}
    return {int(length): float(value) for length, value in flops.items()}
