"""How a training runs: what a vendor may say about it, and what the loop is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

#: What the best of a training's epochs is chosen by, on its validation examples.
Best: TypeAlias = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class LoopSettings:
    """How a module is trained.

    Attributes:
        epochs: Passes over the examples, at most.
        learning_rate: At its peak; it rises linearly, and falls linearly to zero.
        warm_up: Share of the steps in which it rises.
        weight_decay: AdamW's; biases and norms are spared.
        patience: Epochs without a better validation after which the training ends.
        best: Which epoch is the best: that of the lowest ``"loss"`` on the validation examples, or
            of the highest ``"accuracy"``, the earliest of equals. Only a classifier has one.
    """

    epochs: int
    learning_rate: float
    warm_up: float = 0.1
    weight_decay: float = 0.01
    patience: int = 2
    best: Best = "loss"


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a global training.

    Attributes:
        epochs: Passes over the public rows, at most; None takes the backbone's own (``Learner``).
        batch: Texts a step; for a matcher, opened candidates a step.
        learning_rate: At its peak; None takes the backbone's own.
        warm_up: Share of the steps in which the rate rises.
        seed: Of everything random.
        annotators: Whether a classifier's training gives every user of five training rows or more
            a head of their own, at half of the loss; None does so where there are two such users.
    """

    epochs: int | None = None
    batch: int = 32
    learning_rate: float | None = None
    warm_up: float = 0.1
    seed: int = 0
    annotators: bool | None = None

    def over(self, own: LoopSettings) -> LoopSettings:
        """A way of training, with what the vendor says otherwise."""
        return replace(
            own,
            epochs=own.epochs if self.epochs is None else self.epochs,
            learning_rate=own.learning_rate if self.learning_rate is None else self.learning_rate,
            warm_up=self.warm_up,
        )
