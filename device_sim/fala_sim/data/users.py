"""Users, their examples and their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fala import Match
from fala.model.labels import OwnLabel

#: The tasks, by the kind of their labels.
LabelTask: TypeAlias = Literal["classification", "matching", "rating", "tags"]
#: The tasks whose labels exclude one another.
CLASSES: tuple[LabelTask, ...] = ("classification", "matching")
UserExample: TypeAlias = "str | Match"
#: A label, a rating's number, or an example's tags.
UserLabel: TypeAlias = OwnLabel


@dataclass(frozen=True)
class User:
    """One user's examples.

    Attributes:
        name: Name as in the data set.
        train: Examples on the device.
        train_labels: Labels of the examples on the device.
        test: Held-out examples, which are in nobody's training data.
        test_labels: Labels of the held-out examples.
    """

    name: str
    train: Sequence[UserExample]
    train_labels: Sequence[UserLabel]
    test: Sequence[UserExample]
    test_labels: Sequence[UserLabel]


def distinct_texts(examples: Iterable[UserExample]) -> list[str]:
    """Return the distinct texts of some examples, in order of first appearance."""
    return list(dict.fromkeys(text for example in examples for text in example_texts(example)))


def example_texts(example: UserExample) -> tuple[str, ...]:
    """Return the texts of one example: itself, or its history and its candidate."""
    return (*example.history, example.candidate) if isinstance(example, Match) else (example,)
