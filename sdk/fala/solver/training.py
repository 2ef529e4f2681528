"""Training sets of personal models: blocks of features, labels and old logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.base.products import Floats, product
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.links import LABELS, Link
from fala.text.sparse_rows import SparseRows


@dataclass(frozen=True, eq=False)
class Inputs:
    """A block's dense features x of n examples.

    Attributes:
        coordinates: The features, shape (n, d).
        unseen: The mean squared length of the part of the features that the coordinates lack if
            they are estimates.
    """

    coordinates: Vectors
    unseen: float = 0.0

    def __len__(self) -> int:
        return len(self.coordinates)

    def times(self, weight: NDArray[np.floating]) -> Floats:
        """Return the logits w . x for a weight (C, d), shape (n, C)."""
        return np.asarray(product(self.coordinates, weight.T), dtype=np.float64)

    def take(self, positions: NDArray[np.integer]) -> Inputs:
        """Return some of the rows, by position."""
        return Inputs(self.coordinates[positions], self.unseen)


Features = Inputs | SparseRows


@dataclass(frozen=True, eq=False)
class Block:
    """A group of features with a scale of its own.

    Attributes:
        inputs: The features x of n examples: real, mapped, or n-grams.
        weight: The vendor's omega, shape (C, d), which is the mean of the Gaussian.
    """

    inputs: Features
    weight: Vectors

    def logits(self) -> Floats:
        """Return the block's part of the vendor's logits, shape (n, C)."""
        return self.inputs.times(self.weight)


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
            values = inputs.values if isinstance(inputs, SparseRows) else inputs.coordinates
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
        parts = [
            block.inputs.times(weight) for block, weight in zip(self.blocks, weights, strict=True)
        ]
        return np.asarray(sum(parts) + bias, dtype=np.float64)

    def vendor_logits(self) -> Floats:
        """Return the vendor's own logits, shape (n, C)."""
        return self.logits([block.weight for block in self.blocks], self.bias)

    def take(self, positions: NDArray[np.integer]) -> TrainingSet:
        """Return some of the examples, by position."""
        blocks = tuple(Block(block.inputs.take(positions), block.weight) for block in self.blocks)
        return TrainingSet(
            blocks, self.bias, self.labels[positions], self.targets[positions], self.link
        )


def blocks_of(head: Head, inputs: Inputs, ngrams: SparseRows | None) -> tuple[Block, ...]:
    """Return the blocks of a fit: the parts of the inputs, then the n-grams.

    Args:
        head: The head.
        inputs: The head's inputs of n examples.
        ngrams: The examples' n-grams; None if the head has no lexical view.
    """
    if len(head.parts) == 1:
        blocks = [Block(inputs, head.weight)]
    else:
        blocks = [
            Block(Inputs(inputs.coordinates[:, part]), head.weight[:, part]) for part in head.parts
        ]
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
