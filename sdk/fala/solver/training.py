"""Training sets of personal models: blocks of features, labels and old logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.base.products import Floats, product
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.links import LABELS, Link
from fala.text.sparse_rows import SparseRows


@dataclass(frozen=True, eq=False)
class Block:
    """A group of features with a scale of its own.

    Attributes:
        inputs: The features x of n examples: real or mapped, shape (n, d), or n-grams.
        weight: The vendor's omega, shape (C, d), which is the mean of the Gaussian.
        unseen: The mean squared length of the part of the features that the inputs lack if they are
            estimates.
    """

    inputs: Vectors | SparseRows
    weight: Vectors
    unseen: float = 0.0

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Return the logits omega . x for a weight omega (C, d), shape (n, C)."""
        if isinstance(self.inputs, SparseRows):
            return self.inputs.times(weight)
        return np.asarray(product(self.inputs, weight.T), dtype=np.float64)

    def take(self, positions: NDArray[np.integer]) -> Block:
        """Return the block with some of the examples, by position."""
        inputs = self.inputs
        chosen = inputs.take(positions) if isinstance(inputs, SparseRows) else inputs[positions]
        return replace(self, inputs=chosen)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The features, labels and old logits of n examples.

    Attributes:
        blocks: The features of the examples.
        bias: The vendor's b, shape (C,).
        labels: Class shares or numbers, shape (n, C); NaN where there is no label.
        targets: Old logits, which count where there is no label, shape (n, C); NaN where there is
            none. On a device they are the vendor's logits plus the old model's difference from its
            own vendor's logits.
        link: The meaning of the logits.

    Raises:
        DataError: A feature is not finite, or a label or a target is infinite.
    """

    blocks: tuple[Block, ...]
    bias: Vectors
    labels: Floats
    targets: Floats
    link: Link = LABELS

    def __post_init__(self) -> None:
        for inputs in (block.inputs for block in self.blocks):
            values = inputs.values if isinstance(inputs, SparseRows) else inputs
            if not np.isfinite(values).all():
                raise DataError("an input is not finite")
        if np.isinf(self.labels).any() or np.isinf(self.targets).any():
            raise DataError("a label or a target is infinite")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which examples have a label, shape (n,)."""
        return np.logical_not(np.isnan(self.labels).any(axis=1))

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which examples have a label or a target, shape (n,)."""
        return np.logical_or(self.labelled, ~np.isnan(self.targets).any(axis=1))

    def logits(self, weights: Sequence[NDArray[np.floating]], bias: NDArray[np.floating]) -> Floats:
        """Return the logits of a model of these blocks, shape (n, C)."""
        parts = [block.times(weight) for block, weight in zip(self.blocks, weights, strict=True)]
        return np.asarray(sum(parts) + bias, dtype=np.float64)

    def vendor_logits(self) -> Floats:
        """Return the vendor's own logits, shape (n, C)."""
        return self.logits([block.weight for block in self.blocks], self.bias)

    def take(self, positions: NDArray[np.integer]) -> TrainingSet:
        """Return some of the examples, by position."""
        return replace(
            self, blocks=tuple(block.take(positions) for block in self.blocks),
            labels=self.labels[positions], targets=self.targets[positions],
        )  # fmt: skip


def blocks_of(
    head: Head, inputs: Vectors, ngrams: SparseRows | None, unseen: float = 0.0
) -> tuple[Block, ...]:
    """Return the blocks of a fit: the parts of the inputs, then the n-grams.

    Args:
        head: The head.
        inputs: The head's inputs of n examples, shape (n, D).
        ngrams: The examples' n-grams; None if the head has no lexical view.
        unseen: See ``Block``; it counts if the head has one part.
    """
    if len(head.parts) == 1:
        blocks = [Block(inputs, head.weight, unseen)]
    else:
        blocks = [Block(inputs[:, part], head.weight[:, part]) for part in head.parts]
    if head.lexical is not None and ngrams is not None:
        blocks.append(Block(ngrams, head.lexical.weight))
    return tuple(blocks)


def personal_of(
    head: Head, weights: Sequence[NDArray[np.floating]], bias: NDArray[np.floating]
) -> PersonalModel:
    """Return the personal model of a fit's weights, in the order of ``blocks_of``, and bias."""
    parts = len(head.parts)
    lexical = None if head.lexical is None else weights[parts]
    return PersonalModel(head, np.hstack(weights[:parts]), bias, lexical)
