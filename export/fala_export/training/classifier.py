"""Train a classifier globally, with the cross-entropy of the label shares of distinct texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala.base.examples import CLASSIFICATION
from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel
from fala_export.rows.table import Rows, by_appearance
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import TrainableBackbone
from fala_export.training.texts import EpochPlan, TextTokens, length_batches


class ClassifierModule(nn.Module):
    """A backbone with a classifier's head: z = w . h + b.

    Args:
        learner: The backbone.
        head: The initial head.
    """

    def __init__(self, learner: TrainableBackbone, head: Head) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))

    def forward(
        self, ids: Tensor, mask: Tensor, shares: Tensor, counts: Tensor
    ) -> dict[str, Tensor]:
        """Return the loss over texts.

        Args:
            ids: Token ids, shape (n, length).
            mask: Mask of the same shape.
            shares: Shares of the labels, shape (n, C); of the second label alone if C = 1.
            counts: Number of rows of each text, shape (n,).
        """
        states = self.backbone(ids, mask)
        logits = states @ self.weight.T + self.bias
        loss = (cross_entropies(logits, shares) * counts).sum() / counts.sum()
        accuracy = (_accuracy(logits, shares) * counts).sum() / counts.sum()
        return {"loss": loss, "weight": counts.sum(), "accuracy": accuracy}

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """Return the head in the SDK's form; cross-entropy needs no calibration on the rows."""
        return Head(
            CLASSIFICATION,
            self.labels,
            self.weight.detach().numpy().copy(),
            self.bias.detach().numpy().copy(),
        )


def cross_entropies(logits: Tensor, shares: Tensor) -> Tensor:
    """Return the loss of each text, shape (n,).

    Args:
        logits: Logits, shape (n, C).
        shares: Shares of the labels, shape (n, C); of the second label alone if C = 1.
    """
    if logits.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(
            logits.squeeze(1), shares.squeeze(1), reduction="none"
        )
    return functional.cross_entropy(logits, shares, reduction="none")


def _accuracy(logits: Tensor, shares: Tensor) -> Tensor:
    """Return the share of each text's rows that have the predicted label, shape (n,)."""
    if logits.shape[1] == 1:
        return torch.where(logits > 0, shares, 1 - shares).squeeze(1)
    return shares.gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1)


class ClassifierBatches:
    """Batches of distinct texts with the shares of their labels.

    Args:
        learner: The backbone.
        rows: Rows of the classifier's task.
        labels: The labels.
        batch: Number of texts per batch.
        seed: Seed of the texts' order.
        epoch: Most texts of an epoch; None uses all.
    """

    def __init__(
        self,
        learner: TrainableBackbone,
        rows: Sequence[Row],
        labels: Sequence[HeadLabel],
        batch: int,
        seed: int,
        epoch: int | None = None,
    ) -> None:
        rows = Rows.of(rows)
        self._texts = TextTokens(learner, rows.texts())
        column = {str(label): position for position, label in enumerate(labels)}
        columns = np.array([column.get(str(value), -1) for value in rows.values])
        text, label = by_appearance(rows.documents), columns[rows.label_codes]
        counts = np.zeros((len(self._texts.lengths), len(labels)), dtype=np.float32)
        np.add.at(counts, (text, label), 1)
        self._counts = counts.sum(axis=1)
        shares = counts / self._counts[:, None]
        self._shares = shares[:, 1:] if len(labels) == 2 else shares
        most = None if epoch is None else math.ceil(epoch / batch)
        self._plan = EpochPlan(seed, partial(length_batches, self._texts.lengths, batch), most)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """Return the arguments of ``ClassifierModule.forward``."""
        chosen = self._plan.batch(epoch, position)
        return {
            **self._texts.take(chosen),
            "shares": torch.from_numpy(self._shares[chosen]),
            "counts": torch.from_numpy(self._counts[chosen]),
        }
