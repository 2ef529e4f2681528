"""An earlier backbone's model that still has a say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fala.model.heads import PersonalModel, Vectors, same_arrays


@dataclass(frozen=True, eq=False)
class View:
    """An earlier backbone's model that still has a say.

    Attributes:
        model: The model, on its own head and embeddings.
        weight: What its logits are multiplied by before they are added, shape (C,).
    """

    model: PersonalModel
    weight: Vectors

    def logits(self, inputs: Vectors) -> Vectors:
        """What it adds to the logits, shape (n, C), from its own head's inputs (n, d)."""
        return np.asarray(self.weight * self.model.logits(inputs), dtype=np.float32)

    def __eq__(self, other: object) -> bool:
        """Whether it adds the same."""
        if not isinstance(other, View):
            return NotImplemented
        return self.model == other.model and same_arrays((self.weight,), (other.weight,))

    __hash__ = None  # type: ignore[assignment]  # its arrays can be written to
