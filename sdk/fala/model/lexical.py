"""The vendor's weights of n-grams: the lexical view of a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError
from fala.text.ngrams import BUCKETS, Lexicon


@dataclass(frozen=True, eq=False)
class Lexical:
    """The lexical view of a head.

    Attributes:
        lexicon: Turns texts into n-grams with a value each.
        weight: The vendor's v, shape (C, BUCKETS).

    Raises:
        BundleFormatError: If the weight is of another shape, or not finite.
    """

    lexicon: Lexicon
    weight: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.weight.shape[1] != BUCKETS:
            raise BundleFormatError(
                f"a lexical view has a weight of shape (C, {BUCKETS}), not {self.weight.shape}"
            )
        if self.weight.dtype != np.float32 or not np.isfinite(self.weight).all():
            raise BundleFormatError("a lexical view of weights that are not finite in float32")

    def reversed(self) -> Lexical:
        """The same view of two labels in the other order."""
        return Lexical(self.lexicon, -self.weight)

    def take(self, rows: Sequence[int]) -> Lexical:
        """The same view with its logits in another order, by position."""
        return Lexical(self.lexicon, self.weight[list(rows)])

    def __eq__(self, other: object) -> bool:
        """Whether it is the same view, number by number."""
        if not isinstance(other, Lexical):
            return NotImplemented
        return self.lexicon == other.lexicon and np.array_equal(self.weight, other.weight)
