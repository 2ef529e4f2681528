"""The matcher's global training: which of a few candidates did the user open?

The user is the attention-weighted sum u of the history's embeddings, a candidate's logit is
z = w . (u * v); the loss is the cross-entropy of an opened candidate among others that the user
did not open (Okura et al., "Embedding-based News Recommendation for Millions of Users", KDD 2017;
the paper samples four).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import DataError, Head
from fala.release import MATCHING, Evidence, Row, Vectors, fit_paper
from fala_export.models.sentence_encoder import pad
from fala_export.training.backbones import Learner
from fala_export.training.choices import Opened
from fala_export.training.texts import EpochPlan, Texts

_CALIBRATION = 1e-6  # the pull of the scale to 1: it decides nothing, unless all rows are alike


class MatcherModule(nn.Module):
    """A backbone with a matcher's head.

    Args:
        learner: The backbone.
        head: Where the head starts; without a query, it starts from the mean of the history.
    """

    def __init__(self, learner: Learner, head: Head) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        query = np.zeros(head.dimension, np.float32) if head.query is None else head.query.copy()
        self.weight = nn.Parameter(torch.from_numpy(head.weight[0].copy()))
        self.query = nn.Parameter(torch.from_numpy(query))

    def logits(
        self, ids: Tensor, mask: Tensor, history: Tensor, opened: Tensor, candidates: Tensor
    ) -> Tensor:
        """Z of candidates without the bias, which no choice among them depends on; shape (n, K).

        Args:
            ids: Of the batch's distinct texts, shape (m, length).
            mask: The same.
            history: Places among the texts, shape (n, longest history).
            opened: 1 where there is a text in ``history``, the same shape.
            candidates: Places among the texts, shape (n, K).
        """
        texts = self.backbone(ids, mask)
        user = user_vectors(texts, history, opened, self.query)
        return (texts[candidates] * (user * self.weight).unsqueeze(1)).sum(dim=2)

    def forward(
        self, ids: Tensor, mask: Tensor, history: Tensor, opened: Tensor, candidates: Tensor
    ) -> dict[str, Tensor]:
        """The loss over choices; the first candidate is the one that was opened."""
        logits = self.logits(ids, mask, history, opened, candidates)
        target = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        loss = functional.cross_entropy(logits, target)
        return {"loss": loss, "weight": torch.tensor(float(len(logits)))}

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """The head as the SDK computes it, its logits made into probabilities.

        What is learned from choices is an order. A scale of w and a bias b bring the logits to
        labelled rows, at the minimum of their cross-entropy.

        Args:
            rows: Labelled rows, better not of the training.
            embeddings: Embedding by text.
        """
        raw = Head(
            MATCHING,
            self.labels,
            self.weight.detach().numpy()[None].copy(),
            np.zeros(1, dtype=np.float32),
            self.query.detach().numpy().copy(),
        )
        inputs = raw.inputs([row.example for row in rows], embeddings)
        evidence = Evidence.of(
            raw.vendor_model().logits(inputs), labels=raw.label_shares([row.label for row in rows])
        )
        fitted = fit_paper(evidence, prior_mean=1.0, lambdas=[_CALIBRATION])
        scale = fitted.theta[0].astype(np.float32)
        return Head(MATCHING, self.labels, raw.weight * scale, fitted.bias, raw.query)


def user_vectors(texts: Tensor, history: Tensor, opened: Tensor, query: Tensor) -> Tensor:
    """The users' vectors u, shape (n, dim): attention over a history's embeddings.

    Args:
        texts: Embeddings, shape (m, dim).
        history: Places among the texts, shape (n, longest history).
        opened: 1 where there is a text in ``history``, the same shape.
        query: Of the attention, shape (dim,); zeros weigh all texts alike.
    """
    rows = texts[history]
    scores = rows @ query
    scores = scores.masked_fill(opened == 0, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=1) * opened  # an empty history has u = 0
    return (weights.unsqueeze(-1) * rows).sum(dim=1)


class MatcherBatches:
    """Opened candidates, each among others that the user did not open.

    Args:
        learner: What reads the texts.
        opened: The rows, by user.
        batch: Choices a batch.
        seed: Of their order, and of the candidates that are not opened.

    Raises:
        DataError: There is no opened candidate with a history, or nothing else to choose.
    """

    def __init__(self, learner: Learner, opened: Opened, batch: int, seed: int) -> None:
        self._opened = opened
        self._texts = Texts(learner, opened.texts)
        self._seed = seed
        if not opened.choices:
            raise DataError("no user opened a candidate after another text, while leaving one")
        self._plan = EpochPlan(seed, partial(opened.plan, batch))

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Tensor]:
        """The arguments of ``MatcherModule.forward``; each distinct text is in it once."""
        rng = np.random.default_rng((self._seed, epoch, position))
        choices = [self._opened.draw(choice, rng) for choice in self._plan.batch(epoch, position)]
        texts = dict.fromkeys(text for match in choices for text in (*match[0], *match[1]))
        place = {text: index for index, text in enumerate(texts)}
        history, mask = pad([[place[text] for text in read] for read, _ in choices], 0)
        return {
            **self._texts.take([self._texts.position[text] for text in texts]),
            "history": history,
            "opened": mask,
            "candidates": torch.tensor([[place[text] for text in among] for _, among in choices]),
        }
