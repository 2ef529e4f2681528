"""Settings of a training: the vendor's, and those of the loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from fala import DataError
from fala.base.examples import MATCHING
from fala_export.recipe.options import Count, FileOrFolder, FolderPath, Only, Positive, Seed, Share

if TYPE_CHECKING:
    from fala.model.links import Link

#: Whether a head has weights of words.
WithLexical: TypeAlias = Annotated[bool, "--lexical/--no-lexical"]

#: Texts that a step reads at a time, with their gradients: a step of many adds those of several
#: passes, so that its memory stays that of one.
PASS = 32

#: The metric of the validation examples that chooses the best epoch.
Best: TypeAlias = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the training loop.

    Attributes:
        epochs: Passes over the examples, at most.
        learning_rate: At its peak; it rises linearly, and falls linearly to zero.
        batch: Examples per step.
        passes: Batches whose gradients a step adds.
        epoch: Most texts of an epoch, drawn anew for each; None takes all.
        warm_up: Share of the steps in which it rises.
        weight_decay: AdamW's; not for biases and norms.
        patience: Epochs without improvement on the validation examples before an early stop.
        best: How the best epoch is chosen: by the lowest ``"loss"`` on the validation examples, or
            by the highest ``"accuracy"``, which only a classifier has; the earliest of equals.
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
    """The default settings of a transformer's training.

    A classifier has 250 steps at most: more steps were worse. A matcher reaches no lower loss on
    validation users in four epochs than in two.

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
        epochs: Most passes over the rows (default: what suits the backbone).
        batch: Texts per step; for a matcher, opened candidates per step (default: what suits the
            backbone).
        learning_rate: At its peak (default: what suits the backbone).
        warm_up: Share of the steps in which the rate rises.
        seed: Seed of everything random.
        annotators: Also train a head for each user of five rows or more (4,000, drawn, of more), at
            half of the loss; only the shared head is released. Default: where a classifier has a
            hundred such users.
    """

    epochs: Count | None = None
    batch: Count | None = None
    learning_rate: Positive | None = None
    warm_up: Share = 0.1
    seed: Seed = 0
    annotators: Annotated[bool | None, "--annotators/--no-annotators"] = None

    def over(self, defaults: LoopSettings) -> LoopSettings:
        """The default settings, changed where the vendor's settings are set."""
        batch = self.batch or defaults.batch
        return replace(
            defaults,
            epochs=self.epochs or defaults.epochs,
            learning_rate=self.learning_rate or defaults.learning_rate,
            batch=batch,
            passes=math.ceil(batch / PASS),
            warm_up=self.warm_up,
        )


#: The settings of a training without annotators' heads.
SCHEDULE = Only("epochs", "batch", "learning_rate", "warm_up", "seed")


@dataclass(frozen=True)
class LabelSettings:
    """The kind of the rows' labels; by default names that exclude one another.

    Attributes:
        rating: The labels are numbers within this range.
        tags: The labels are sets of names that do not exclude one another: a JSON list, names with
            | between, or the columns of --labels.
    """

    rating: tuple[float, float] | None = None
    tags: bool = False

    @property
    def link(self) -> Link:
        """The kind of labels.

        Raises:
            BundleFormatError: The range is empty.
            DataError: They are ratings and tags.
        """
        from fala.model.links import LABELS, TAGS
        from fala_export.rows.user_rows import rating_of

        if self.rating is None:
            return TAGS if self.tags else LABELS
        if self.tags:
            raise DataError("labels are ratings or tags, not both")
        return rating_of(*self.rating)


@dataclass(frozen=True)
class RunSettings:
    """The input and the work folder of a training.

    Attributes:
        data: Rows as of fala-replace --data; the public ones are read.
        work: Folder of the checkpoints, and of the trained model.
        resume: Continue from the last whole checkpoint in --work.
        skip_bad_rows: Leave rows out that cannot be read, and print their number and lines.
        lexical: Whether the head has weights of words, too: about 130 kB for two labels.
    """

    data: FileOrFolder
    work: FolderPath
    resume: bool = False
    skip_bad_rows: bool = False
    lexical: WithLexical = True
