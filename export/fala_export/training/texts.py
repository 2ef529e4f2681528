"""Store distinct texts as tokens, and make batches of them with little padding."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from fala_export.embedding.tokens import pad
from fala_export.training.backbones import TrainableBackbone

_TOGETHER = 4096  # Number of texts that are tokenized together.
# Number of batches whose texts are sorted by length together, for little padding and random order.
_POOL = 50


class TextTokens:
    """Distinct texts, which are tokenized when a batch needs them.

    Args:
        learner: The backbone.
        texts: n distinct texts, which may be on the disk.

    Attributes:
        lengths: Number of tokens of each text.
    """

    def __init__(self, learner: TrainableBackbone, texts: Sequence[str]) -> None:
        self._learner, self._texts = learner, texts
        self.lengths = array("i")
        for start in range(0, len(texts), _TOGETHER):
            self.lengths.extend(map(len, learner.token_ids(list(texts[start : start + _TOGETHER]))))

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each text."""
        return {text: position for position, text in enumerate(self._texts)}

    def ids(self, position: int) -> list[int]:
        """Return the tokens of a text."""
        return self._learner.token_ids([self._texts[position]])[0]

    def take(self, positions: Sequence[int]) -> dict[str, Tensor]:
        """Return the ``ids`` and the ``mask`` of some texts."""
        texts = [self._texts[position] for position in positions]
        ids, mask = pad(self._learner.token_ids(texts), self._learner.pad_id)
        return {"ids": ids, "mask": mask}


class EpochPlan:
    """Batches, with a new random division for every epoch.

    Args:
        seed: Seed of the order.
        plan: A function that divides positions into batches at random, such as ``length_batches``.
        most: Most batches of an epoch; None uses all.
    """

    def __init__(
        self,
        seed: int,
        plan: Callable[[np.random.Generator], list[list[int]]],
        most: int | None = None,
    ) -> None:
        self._seed, self._plan, self._most = seed, plan, most
        self._planned = (0, self._divided(0))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._planned[1])

    def batch(self, epoch: int, position: int) -> list[int]:
        """Return the positions of one batch of an epoch."""
        if self._planned[0] != epoch:
            self._planned = (epoch, self._divided(epoch))
        return self._planned[1][position]

    def _divided(self, epoch: int) -> list[list[int]]:
        return self._plan(np.random.default_rng((self._seed, epoch)))[: self._most]


def length_batches(lengths: Sequence[int], batch: int, rng: np.random.Generator) -> list[list[int]]:
    """Divide texts at random into batches of similar length.

    Args:
        lengths: Number of tokens of each text.
        batch: Number of texts per batch.
        rng: The random generator of the order.

    Returns:
        The texts' positions, by batch.
    """
    order = rng.permutation(len(lengths)).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(order), batch * _POOL):
        pool = sorted(order[start : start + batch * _POOL], key=lengths.__getitem__)
        parts = [pool[first : first + batch] for first in range(0, len(pool), batch)]
        batches += [parts[index] for index in rng.permutation(len(parts))]
    return batches
