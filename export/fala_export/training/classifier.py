"""The classifier's global training: cross-entropy of the label shares of distinct texts.

Half of the loss may be that of annotators' own heads, one for each, which are thrown away when the
training ends: what explains how people differ need not be squeezed into what they share (Davani et
al., "Dealing with Disagreements: Looking Beyond the Majority Vote in Subjective Annotations", TACL
2022, train a head an annotator; here the shared head is what is kept).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import Head
from fala.release import CLASSIFICATION, Row, Vectors
from fala_export.training.backbones import Learner
from fala_export.training.texts import EpochPlan, Texts, length_batches

#: AdamW moves every number by about its learning rate a step, whatever the gradient, and an
#: annotator's numbers have a few dozen steps: at a layer's own pace they would stay at nothing.
WEIGHT_PACE, BIAS_PACE = 30.0, 300.0


class ClassifierModule(nn.Module):
    """A backbone with a classifier's head: z = w . h + b.

    Args:
        learner: The backbone.
        head: Where the head starts.
        annotators: How many have a head of their own, z_a = z + w_a . h + b_a, from 0 on.
    """

    def __init__(self, learner: Learner, head: Head, annotators: int = 0) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        self.weight = nn.Parameter(torch.from_numpy(head.weight.copy()))
        self.bias = nn.Parameter(torch.from_numpy(head.bias.copy()))
        if annotators:
            self.own_weight = nn.Parameter(torch.zeros(annotators, *head.weight.shape))
            self.own_bias = nn.Parameter(torch.zeros(annotators, *head.bias.shape))

    def logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Z of texts, shape (n, C)."""
        return self.backbone(ids, mask) @ self.weight.T + self.bias

    def forward(
        self,
        ids: Tensor,
        mask: Tensor,
        shares: Tensor,
        counts: Tensor,
        own: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The loss over texts.

        Args:
            ids: Shape (n, length).
            mask: The same.
            shares: Of the labels, shape (n, C); of the second label alone where C = 1.
            counts: Rows of each text, shape (n,).
            own: Of the m rows of annotators with a head: the place of their ``text`` among the n,
                their ``annotator``, shape (m,) each, and ``shares``, shape (m, C). None, or no
                row, leaves the shared head's loss whole.
        """
        states = self.backbone(ids, mask)
        logits = states @ self.weight.T + self.bias
        loss = (cross_entropies(logits, shares) * counts).sum() / counts.sum()
        if own is not None and len(own["text"]):
            of_whom, states = own["annotator"], states[own["text"]]
            offsets = torch.einsum("mcd,md->mc", self.own_weight[of_whom], states)
            personal = logits[own["text"]] + WEIGHT_PACE * offsets
            personal = personal + BIAS_PACE * self.own_bias[of_whom]
            loss = (loss + cross_entropies(personal, own["shares"]).mean()) / 2
        right = (_right(logits, shares) * counts).sum() / counts.sum()
        return {"loss": loss, "weight": counts.sum(), "accuracy": right}

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """The head as the SDK computes it; cross-entropy needs no rows to calibrate it on."""
        return Head(
            CLASSIFICATION,
            self.labels,
            self.weight.detach().numpy().copy(),
            self.bias.detach().numpy().copy(),
        )


def cross_entropies(logits: Tensor, shares: Tensor) -> Tensor:
    """The loss of each text, shape (n,).

    Args:
        logits: Shape (n, C).
        shares: Of the labels, shape (n, C); of the second label alone where C = 1.
    """
    if logits.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(
            logits.squeeze(1), shares.squeeze(1), reduction="none"
        )
    return functional.cross_entropy(logits, shares, reduction="none")


def _right(logits: Tensor, shares: Tensor) -> Tensor:
    """The share of each text's rows that have the label that is decided for, shape (n,)."""
    if logits.shape[1] == 1:
        return torch.where(logits > 0, shares, 1 - shares).squeeze(1)
    return shares.gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1)


class ClassifierBatches:
    """Distinct texts with the shares of their labels.

    Args:
        learner: What reads the texts.
        rows: Rows of the classifier's task.
        labels: The labels' names.
        batch: Texts a batch.
        seed: Of their order.
        annotators: Users with a head of their own, whose rows come one by one besides.
    """

    def __init__(
        self,
        learner: Learner,
        rows: Sequence[Row],
        labels: Sequence[str],
        batch: int,
        seed: int,
        annotators: Sequence[str] = (),
    ) -> None:
        distinct = list(dict.fromkeys(row.example for row in rows))
        self._texts = Texts(learner, [str(text) for text in distinct])
        column = {label: position for position, label in enumerate(labels)}
        counts = np.zeros((len(distinct), len(labels)), dtype=np.float32)
        number = {user: place for place, user in enumerate(annotators)}
        self._own: list[list[tuple[int, int]]] | None = None  # annotator and label, by text
        if annotators:
            self._own = [[] for _ in distinct]
        for row in rows:
            text, label = self._texts.position[str(row.example)], column[str(row.label)]
            counts[text, label] += 1
            if self._own is not None and row.user in number:
                self._own[text].append((number[row.user], label))
        self._counts = counts.sum(axis=1)
        shares = counts / self._counts[:, None]
        self._shares = shares[:, 1:] if len(labels) == 2 else shares
        self._labels = len(labels)
        self._plan = EpochPlan(seed, partial(length_batches, self._texts.lengths, batch))

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Any]:
        """The arguments of ``ClassifierModule.forward``."""
        chosen = self._plan.batch(epoch, position)
        batch: dict[str, Any] = {
            **self._texts.take(chosen),
            "shares": torch.from_numpy(self._shares[chosen]),
            "counts": torch.from_numpy(self._counts[chosen]),
        }
        if self._own is not None:
            own = self._own
            rows = [(place, *row) for place, text in enumerate(chosen) for row in own[text]]
            place, annotator, label = torch.tensor(rows, dtype=torch.long).reshape(-1, 3).T
            shares = functional.one_hot(label, self._labels).to(torch.float32)
            shares = shares[:, 1:] if self._labels == 2 else shares
            batch["own"] = {"text": place, "annotator": annotator, "shares": shares}
        return batch
