"""Define the settings of a training: the vendor's settings, and those of the loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from fala import DataError
from fala.base.examples import MATCHING
from fala_export.recipe.options import Count, Positive, Seed, Share

if TYPE_CHECKING:
    from fala.model.links import Link

#: Whether a head has lexical features.
WithLexical: TypeAlias = Annotated[bool, "--lexical/--no-lexical"]

#: Number of texts that a step reads at a time, with their gradients. A larger step adds the
#: gradients of several passes, so that its memory stays that of one.
PASS = 32

#: The metric of the validation examples that chooses the best epoch.
Best: TypeAlias = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the training loop.

    Attributes:
        epochs: Most passes over the examples.
        learning_rate: Peak learning rate; the rate rises linearly to it, then falls linearly to
            zero.
        batch: Examples per step.
        passes: Number of batches whose gradients a step adds.
        epoch: Most texts of an epoch, drawn again for each; None uses all.
        warm_up: Share of the steps in which the learning rate rises.
        weight_decay: Weight decay of AdamW, which excludes biases and norms.
        patience: Number of epochs without improvement on the validation examples before training
            stops early.
        best: How the best epoch is chosen: by the lowest ``"loss"`` on the validation examples, or
            by the highest ``"accuracy"``, which only a classifier has. The earliest of equal epochs
            is used.
    """

    epochs: int
    learning_rate: float
    batch: int = PASS
    passes: int = 1
    epoch: int | None = None
    warm_up: float = 0.1
    weight_decay: float = 0.01
    patience: int = 2
    best: Best = "loss"


def transformer_loop(task: str) -> LoopSettings:
    """Return the default settings for training a transformer.

    A classifier is trained for at most 250 steps, because more steps were worse. A matcher is
    trained for two epochs, because four reached no lower loss on validation users.

    Args:
        task: ``"classification"`` or ``"matching"``.
    """
    if task == MATCHING:
        return LoopSettings(epochs=2, learning_rate=5e-5)
    return LoopSettings(epochs=10, learning_rate=2e-4, batch=576, epoch=25 * 576)


@dataclass(frozen=True)
class TrainingSettings:
    """How a backbone and its head are trained on public rows.

    Attributes:
        epochs: Most passes over the rows (default: depends on the backbone).
        batch: Texts per step; for a matcher, opened candidates per step (default: depends on the
            backbone).
        learning_rate: Peak learning rate (default: depends on the backbone).
        warm_up: Share of the steps in which the learning rate rises.
        seed: Seed of everything random.
    """

    epochs: Count | None = None
    batch: Count | None = None
    learning_rate: Positive | None = None
    warm_up: Share = 0.1
    seed: Seed = 0

    def over(self, defaults: LoopSettings) -> LoopSettings:
        """Return the default settings, changed by those that the vendor has set."""
        batch = self.batch or defaults.batch
        return replace(
            defaults,
            epochs=self.epochs or defaults.epochs,
            learning_rate=self.learning_rate or defaults.learning_rate,
            batch=batch,
            passes=math.ceil(batch / PASS),
            warm_up=self.warm_up,
        )


@dataclass(frozen=True)
class LabelSettings:
    """The kind of the rows' labels; by default, names that exclude one another.

    Attributes:
        rating: The labels are numbers within this range.
        tags: The labels are sets of names that do not exclude one another: a JSON list, names
            separated by |, or the columns of --labels.
    """

    rating: tuple[float, float] | None = None
    tags: bool = False

    @property
    def link(self) -> Link:
        """The kind of labels.

        Raises:
            BundleFormatError: The range is empty.
            DataError: Both ratings and tags are set.
        """
        from fala.model.links import LABELS, TAGS
        from fala_export.rows.user_rows import rating_of

        if self.rating is None:
            return TAGS if self.tags else LABELS
        if self.tags:
            raise DataError(
                "labels must be ratings or tags, not both; use either --rating or --tags"
            )
        return rating_of(*self.rating)
