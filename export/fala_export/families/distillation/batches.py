"""The distillation as ``fala_export.training`` sees it: batches of texts, and a loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fala_export.models.sentence_encoder import SentenceEncoder, pad
from fala_export.training.texts import EpochPlan, length_batches


class Imitation(nn.Module):
    """A student and its loss: half the squared distance to the teacher's embedding.

    In units of the targets' mean squared length, so that it is one minus the cosine where all
    embeddings have length 1.

    Args:
        student: What is trained.
        scale: The targets' mean squared length.
    """

    def __init__(self, student: SentenceEncoder, scale: float) -> None:
        super().__init__()
        self.student = student
        self._scale = scale

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """The loss of n texts: ids and mask (n, length), targets (n, dim)."""
        distances = (self.student(input_ids, attention_mask) - targets).square().sum(dim=1)
        weight = torch.tensor(float(len(targets)))
        return {"loss": distances.mean() / (2 * self._scale), "weight": weight}


class TextBatches:
    """Texts and what the teacher makes of them, in batches of similar length.

    Args:
        pieces: Piece ids of n texts.
        targets: Shape (n, dim).
        size: Texts a batch.
        pad_id: The padding piece's id.
        seed: Of the order, which is another one in every epoch.
    """

    def __init__(
        self,
        pieces: Sequence[Sequence[int]],
        targets: NDArray[np.float32],
        size: int,
        pad_id: int,
        seed: int,
    ) -> None:
        self._pieces = pieces
        self._targets = torch.from_numpy(targets)
        self._pad_id = pad_id
        self._plan = EpochPlan(seed, partial(length_batches, [len(ids) for ids in pieces], size))

    def __len__(self) -> int:
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Tensor]:
        """The arguments of ``Imitation.forward``."""
        chosen = self._plan.batch(epoch, position)
        ids, mask = pad([self._pieces[index] for index in chosen], self._pad_id)
        return {"input_ids": ids, "attention_mask": mask, "targets": self._targets[chosen]}
