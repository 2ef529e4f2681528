"""Train a classifier globally, with the cross-entropy of the label shares of distinct texts.

Half of the loss may come from one head per annotator: the shared head plus a deviation with a
Gaussian prior. The deviations are dropped after the training. They absorb the differences between
people, so that the shared head need not (Davani et al., "Dealing with Disagreements: Looking Beyond
the Majority Vote in Subjective Annotations", TACL 2022, train one head per annotator).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fala.base.examples import CLASSIFICATION
from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel
from fala_export.rows.table import Rows, by_appearance
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import TrainableBackbone
from fala_export.training.texts import EpochPlan, TextTokens, length_batches

#: Weight of the squares of an annotator's deviation in the loss.
PRIOR = 1e-3
#: AdamW moves every number by about its learning rate in each step, whatever the gradient. An
#: annotator's numbers have only a few dozen steps, so they move faster than the layers, by these
#: factors.
WEIGHT_PACE, BIAS_PACE = 30.0, 300.0


class ClassifierModule(nn.Module):
    """A backbone with a classifier's head: z = w . h + b.

    Args:
        learner: The backbone.
        head: The initial head.
        annotators: Number of annotators' heads, z_a = z + w_a . h + b_a, where w_a and b_a start at
            0.
    """

    def __init__(self, learner: TrainableBackbone, head: Head, annotators: int = 0) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))
        if annotators:
            self.own_weight = nn.Parameter(torch.zeros(annotators, *head.weight.shape))
            self.own_bias = nn.Parameter(torch.zeros(annotators, *head.bias.shape))

    def forward(
        self,
        ids: Tensor,
        mask: Tensor,
        shares: Tensor,
        counts: Tensor,
        own: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the loss over texts.

        Args:
            ids: Token ids, shape (n, length).
            mask: Mask of the same shape.
            shares: Shares of the labels, shape (n, C); of the second label alone if C = 1.
            counts: Number of rows of each text, shape (n,).
            own: The m rows of annotators with a head: the position of their ``text`` among the n
                and their ``annotator``, shape (m,) each, and ``shares``, shape (m, C). With None or
                no rows, only the shared head's loss is returned.
        """
        states = self.backbone(ids, mask)
        logits = states @ self.weight.T + self.bias
        loss = (cross_entropies(logits, shares) * counts).sum() / counts.sum()
        if own is not None and len(own["text"]):
            annotator, states = own["annotator"], states[own["text"]]
            weight = WEIGHT_PACE * self.own_weight[annotator]
            bias = BIAS_PACE * self.own_bias[annotator]
            personal = logits[own["text"]] + torch.einsum("mcd,md->mc", weight, states) + bias
            squares = weight.square().sum(dim=(1, 2)) + bias.square().sum(dim=1)
            personal_loss = cross_entropies(personal, own["shares"]).mean()
            loss = (loss + personal_loss) / 2 + PRIOR * squares.mean()
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


def shares_of(labels: Tensor, count: int) -> Tensor:
    """Return the shares of rows with one label each, as ``cross_entropies`` takes them.

    Args:
        labels: Positions of the labels, shape (n,).
        count: Number C of labels; two labels have one column.
    """
    shares = functional.one_hot(labels, count).to(torch.float32)
    return shares[:, 1:] if count == 2 else shares


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
        annotators: Users with their own head; batches include their rows.
        epoch: Most texts of an epoch; None uses all.
    """

    def __init__(
        self,
        learner: TrainableBackbone,
        rows: Sequence[Row],
        labels: Sequence[HeadLabel],
        batch: int,
        seed: int,
        annotators: Sequence[str] = (),
        epoch: int | None = None,
    ) -> None:
        rows = Rows.of(rows)
        self._texts = TextTokens(learner, rows.texts())
        column = {str(label): position for position, label in enumerate(labels)}
        columns = np.array([column.get(str(value), -1) for value in rows.values])
        text, label = by_appearance(rows.documents), columns[rows.label_codes]
        counts = np.zeros((len(self._texts.lengths), len(labels)), dtype=np.float32)
        np.add.at(counts, (text, label), 1)
        # The rows of annotators by text: annotator and label, and the end of each text's rows.
        self._votes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        if annotators:
            number = {user: position for position, user in enumerate(annotators)}
            numbers = np.array([number.get(name or "", -1) for name in rows.names])
            annotator = numbers[rows.user_codes]
            order = np.argsort(text, kind="stable")
            order = order[annotator[order] >= 0]
            ends = np.cumsum([0, *np.bincount(text[order], minlength=len(counts))])
            self._votes = np.stack([annotator[order], label[order]], axis=1), ends
        self._counts = counts.sum(axis=1)
        shares = counts / self._counts[:, None]
        self._shares = shares[:, 1:] if len(labels) == 2 else shares
        self._labels = len(labels)
        most = None if epoch is None else math.ceil(epoch / batch)
        self._plan = EpochPlan(seed, partial(length_batches, self._texts.lengths, batch), most)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """Return the arguments of ``ClassifierModule.forward``."""
        chosen = self._plan.batch(epoch, position)
        batch: dict[str, Any] = {
            **self._texts.take(chosen),
            "shares": torch.from_numpy(self._shares[chosen]),
            "counts": torch.from_numpy(self._counts[chosen]),
        }
        if self._votes is not None:
            votes, ends = self._votes
            rows = [
                (index, *row)
                for index, text in enumerate(chosen)
                for row in votes[ends[text] : ends[text + 1]].tolist()
            ]
            texts, annotator, label = torch.tensor(rows, dtype=torch.long).reshape(-1, 3).T
            shares = shares_of(label, self._labels)
            batch["own"] = {"text": texts, "annotator": annotator, "shares": shares}
        return batch
