"""The classifier's global training: cross-entropy of the label shares of distinct texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import Head
from fala.vendor import CLASSIFICATION, Row, Vectors
from fala_export.training.learners import Learner
from fala_export.training.texts import Texts, length_batches


class ClassifierModule(nn.Module):
    """A backbone with a classifier's head: z = w . h + b.

    Args:
        learner: The backbone.
        head: Where the head starts.
    """

    def __init__(self, learner: Learner, head: Head) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))

    def logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Z of texts, shape (n, C)."""
        return self.backbone(ids, mask) @ self.weight.T + self.bias

    def forward(
        self, ids: Tensor, mask: Tensor, shares: Tensor, counts: Tensor
    ) -> dict[str, Tensor]:
        """The loss over texts.

        Args:
            ids: Shape (n, length).
            mask: The same.
            shares: Of the labels, shape (n, C); of the second label alone where C = 1.
            counts: Rows of each text, shape (n,).
        """
        logits = self.logits(ids, mask)
        if logits.shape[1] == 1:
            losses = functional.binary_cross_entropy_with_logits(
                logits.squeeze(1), shares.squeeze(1), reduction="none"
            )
        else:
            losses = functional.cross_entropy(logits, shares, reduction="none")
        return {"loss": (losses * counts).sum() / counts.sum(), "weight": counts.sum()}

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """The head as the SDK computes it; cross-entropy needs no rows to calibrate it on."""
        return Head(
            CLASSIFICATION,
            self.labels,
            self.weight.detach().numpy().copy(),
            self.bias.detach().numpy().copy(),
        )


class ClassifierBatches:
    """Distinct texts with the shares of their labels.

    Args:
        learner: What reads the texts.
        rows: Rows of the classifier's task.
        labels: The labels' names.
        batch: Texts a batch.
        seed: Of their order.
    """

    def __init__(
        self, learner: Learner, rows: Sequence[Row], labels: Sequence[str], batch: int, seed: int
    ) -> None:
        distinct = list(dict.fromkeys(row.example for row in rows))
        self._texts = Texts(learner, [str(text) for text in distinct])
        column = {label: position for position, label in enumerate(labels)}
        counts = np.zeros((len(distinct), len(labels)), dtype=np.float32)
        for row in rows:
            counts[self._texts.position[str(row.example)], column[str(row.label)]] += 1
        self._counts = counts.sum(axis=1)
        shares = counts / self._counts[:, None]
        self._shares = shares[:, 1:] if len(labels) == 2 else shares
        self._batch, self._seed = batch, seed
        self._planned: tuple[int, list[list[int]]] = (0, self._plan(0))

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self._planned[1])

    def batch(self, epoch: int, position: int) -> dict[str, Tensor]:
        """The arguments of ``ClassifierModule.forward``."""
        if self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch))
        chosen = self._planned[1][position]
        return {
            **self._texts.take(chosen),
            "shares": torch.from_numpy(self._shares[chosen]),
            "counts": torch.from_numpy(self._counts[chosen]),
        }

    def _plan(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng((self._seed, epoch))
        return length_batches(self._texts.lengths, self._batch, rng)
