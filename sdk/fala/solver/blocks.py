"""A head's blocks of features, and the personal model of their fitted weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, PersonalModel
from fala.model.prior import PopulationPrior
from fala.solver.training import Block, Inputs
from fala.text.sparse_rows import SparseRows


def blocks_of(
    head: Head, inputs: Inputs, words: SparseRows | None, prior: PopulationPrior | None
) -> tuple[Block, ...]:
    """The blocks that a fit has: the inputs' parts, then the words.

    Args:
        head: The head.
        inputs: Its inputs of n examples.
        words: Their n-grams; None where the head has no lexical view.
        prior: How people differ from the head, on its embeddings; where inputs have several parts
            it has nothing to say.
    """
    if len(head.parts) == 1:
        blocks = [Block(inputs, head.weight, prior)]
    else:
        blocks = [
            Block(Inputs(inputs.coordinates[:, part]), head.weight[:, part]) for part in head.parts
        ]
    if head.lexical is not None and words is not None:
        blocks.append(Block(words, head.lexical.weight))
    return tuple(blocks)


def personal_of(
    head: Head, weights: Sequence[NDArray[np.floating]], bias: NDArray[np.floating]
) -> PersonalModel:
    """The personal model of a fit's weights, in the order of ``blocks_of``, and bias."""
    parts = len(head.parts)
    lexical = None if head.lexical is None else weights[parts]
    return PersonalModel(head, np.hstack(weights[:parts]), bias, lexical)
