"""What a vendor may say about a global training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a global training.

    Attributes:
        epochs: Passes over the public rows, at most; None takes the backbone's own (``Learner``).
        batch: Texts a step; for a matcher, opened candidates a step.
        learning_rate: At its peak; None takes the backbone's own.
        warm_up: Share of the steps in which the rate rises.
        seed: Of everything random.
    """

    epochs: int | None = None
    batch: int = 32
    learning_rate: float | None = None
    warm_up: float = 0.1
    seed: int = 0
