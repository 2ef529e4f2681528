"""One user at the moment when the vendor's new backbone arrives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala import Bundle, Head, Match, PersonalModel
from fala.release import Rating, Tags
from fala.release.device_fit import SparseRows
from fala_sim.meter import Meter

#: What labels are of.
Task: TypeAlias = Literal["classification", "matching", "rating", "tags"]
#: The tasks whose labels exclude one another.
CLASSES: tuple[Task, ...] = ("classification", "matching")
Example: TypeAlias = "str | Match"
#: A label's name, a rating's number as a text, or an example's tags.
UserLabel: TypeAlias = "str | frozenset[str]"
Vectors: TypeAlias = NDArray[np.float32]
Logits: TypeAlias = NDArray[np.float64]
#: Embeddings (d,) by text.
Embeddings: TypeAlias = Mapping[str, Vectors]


class Encode(Protocol):
    """The new backbone as a user's device has it; every text costs a forward pass."""

    def __call__(self, texts: Sequence[str], meter: Meter) -> dict[str, Vectors]:
        """Embeddings (d,) by text, counted in the stage ``"forward"``."""


@dataclass(frozen=True)
class Release:
    """A vendor's release, and what the laboratory knows of it.

    Attributes:
        name: The backbone's name.
        path: The bundle, with its head.
        head: The vendor's global head.
        embeddings: Embeddings (d,) of all the data set's texts, which cost the laboratory nothing:
            for scoring, for searches and where only quality is asked. What a device pays for goes
            through ``Situation.encode``.
        flops: FLOPs of one forward pass by length in tokens, from the graph's own shapes; empty
            for word vectors.
        tokens: Length of every text in tokens, cut as the backbone cuts it.
    """

    name: str
    path: Path
    head: Head
    embeddings: Embeddings
    flops: Mapping[int, float]
    tokens: Mapping[str, int] = field(default_factory=dict)

    def forward_flops(self, texts: Iterable[str]) -> float:
        """FLOPs of passing some texts through the backbone one by one, without padding."""
        if len(self.flops) < 3:
            return 0.0
        # Exact: a transformer's cost is a quadratic of the length.
        lengths = np.array([self.tokens[text] for text in texts], dtype=np.float64)
        curve = np.polyfit(list(self.flops), list(self.flops.values()), 2)
        return float(np.polyval(curve, lengths).sum())

    def inputs(self, examples: Sequence[Example]) -> Vectors:
        """The head's inputs of n examples, shape (n, D)."""
        return self.head.inputs(examples, self.embeddings)

    def words(self, examples: Sequence[Example]) -> SparseRows | None:
        """The n-grams of n examples; None where the head has no lexical view."""
        return self.head.words(examples)

    def logits(self, model: PersonalModel, examples: Sequence[Example]) -> Logits:
        """The logits (n, C) of a model on this release's head, of n examples."""
        return model.logits(self.inputs(examples), self.words(examples)).astype(np.float64)


@dataclass(frozen=True)
class User:
    """One user's examples.

    Attributes:
        name: As in the data set.
        train: What the device knows.
        train_labels: Their labels.
        test: Held out, in nobody's training data.
        test_labels: Their labels.
    """

    name: str
    train: Sequence[Example]
    train_labels: Sequence[UserLabel]
    test: Sequence[Example]
    test_labels: Sequence[UserLabel]


@dataclass(frozen=True)
class Situation:
    """What a method is given.

    Attributes:
        user: Whose model is replaced.
        old: The release that the device has.
        new: The backbone that comes with the vendor's plain head, where every peer starts.
        shipped: The same backbone as it comes to FaLA's devices: with the vendor's head on
            embeddings and words, a bridge, and what public annotators taught.
        personal: The old personal model, fitted by the device's own ``learn`` on all train
            examples.
        transformer: Folder of the new backbone as Hugging Face has it, for what trains it; None
            where the laboratory was given a bundle only.
        encode: The new backbone on the device.
        seed: Of every random choice.
        meter: Counts what this replacement costs.
        words: The vendor's head on words alone, of which the one dense input is 0; None where
            nobody asks for it.
    """

    user: User
    old: Release
    new: Release
    shipped: Release
    personal: PersonalModel
    transformer: Path | None
    encode: Encode
    seed: int
    meter: Meter = field(default_factory=Meter)
    words: Head | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the logits."""
        return self.new.head.labels

    @property
    def exclusive(self) -> bool:
        """Whether an example has one label of several: it is no rating, and has no tags."""
        return not isinstance(self.new.head.link, Rating | Tags)

    def label_shares(self) -> NDArray[np.float64]:
        """The train labels as class shares, shape (n, C); C is 1 for two classes."""
        return self.new.head.label_shares(self.user.train_labels)

    def old_logits(self, examples: Sequence[Example] | None = None) -> Logits:
        """The old personal model's logits, of the train examples if none are given, (n, C)."""
        return self.old.logits(self.personal, self.user.train if examples is None else examples)


def distinct_texts(examples: Iterable[Example]) -> list[str]:
    """The distinct texts of some examples, in order of first appearance."""
    return list(dict.fromkeys(text for example in examples for text in texts_of(example)))


def texts_of(example: Example) -> tuple[str, ...]:
    """The texts of one example: itself, or its history and its candidate."""
    return (*example.history, example.candidate) if isinstance(example, Match) else (example,)


def judged(example: Example) -> str:
    """What a label is about: the text, or the candidate."""
    return example.candidate if isinstance(example, Match) else example


def forward_flops_of(bundle: Bundle) -> dict[int, float]:
    """What a bundle says of FLOPs of one forward pass by length in tokens; see ``Release``."""
    cost = bundle.manifest.details.get("cost")
    flops = cost.get("flops", {}) if isinstance(cost, dict) else {}
    return {int(length): float(value) for length, value in flops.items()}
