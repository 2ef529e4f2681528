"""Train a matcher globally, to find which of a few candidates the user opened.

The user is the attention-weighted sum u of the history's embeddings, and a candidate's logit is z =
w . (u * v). The loss is the cross-entropy of an opened candidate among others that the user did not
open (Okura et al., "Embedding-based News Recommendation for Millions of Users", KDD 2017; the paper
samples four).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import DataError, Match
from fala.base.examples import MATCHING
from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel
from fala_export.embedding.tokens import pad
from fala_export.fit.calibration import scales_and_biases
from fala_export.rows.user_rows import Row
from fala_export.training.backbones import TrainableBackbone
from fala_export.training.texts import EpochPlan, TextTokens

# Number of candidates that were not opened for each opened one (the paper, section 4.2).
NEGATIVES = 4
HISTORY = 50  # Number of the latest texts of a history that a training reads.

# Number of choices of one user that stay in one batch, because they share the history's texts.
_TOGETHER = 4

_User: TypeAlias = str | tuple[str, ...]


class MatcherModule(nn.Module):
    """A backbone with a matcher's head.

    Args:
        learner: The backbone.
        head: The initial head; without a query, it starts from the mean of the history.
    """

    def __init__(self, learner: TrainableBackbone, head: Head) -> None:
        super().__init__()
        self.backbone = learner.module
        self.labels = head.labels
        query = np.zeros(head.dimension, np.float32) if head.query is None else head.query.copy()
        self.weight = nn.Parameter(torch.from_numpy(head.weight[0].copy()))
        self.query = nn.Parameter(torch.from_numpy(query))

    def logits(
        self, ids: Tensor, mask: Tensor, history: Tensor, opened: Tensor, candidates: Tensor
    ) -> Tensor:
        """Return candidates' logits z, (n, K), without the bias, which does not affect their order.

        Args:
            ids: Token ids of the batch's distinct texts, shape (m, length).
            mask: Mask of the same shape.
            history: Positions among the texts, shape (n, longest history).
            opened: Mask that is 1 for each text in ``history``, of the same shape.
            candidates: Positions among the texts, shape (n, K).
        """
        texts = self.backbone(ids, mask)
        user = user_vectors(texts, history, opened, self.query)
        return (texts[candidates] * (user * self.weight).unsqueeze(1)).sum(dim=2)

    def forward(
        self, ids: Tensor, mask: Tensor, history: Tensor, opened: Tensor, candidates: Tensor
    ) -> dict[str, Tensor]:
        """Return the loss over choices; the first candidate is the opened one."""
        logits = self.logits(ids, mask, history, opened, candidates)
        target = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        loss = functional.cross_entropy(logits, target)
        return {"loss": loss, "weight": torch.tensor(float(len(logits)))}

    def head(self, rows: Sequence[Row], embeddings: Mapping[str, Vectors]) -> Head:
        """Return the head in the SDK's form, with calibrated logits.

        The training only learns an order. A scale of w and a bias b calibrate the logits on
        labelled rows, at the minimum of the cross-entropy.

        Args:
            rows: Labelled rows, preferably not those of the training.
            embeddings: Embeddings by text.
        """
        raw = Head(
            MATCHING,
            self.labels,
            self.weight.detach().numpy()[None].copy(),
            np.zeros(1, dtype=np.float32),
            self.query.detach().numpy().copy(),
        )
        inputs = raw.inputs([row.example for row in rows], embeddings)
        logits = raw.vendor_model().logits(inputs).astype(np.float64)
        shares = raw.label_shares([row.label for row in rows])
        scales, bias = scales_and_biases(logits[:, :, None], shares)
        return Head(
            MATCHING, self.labels, raw.weight * scales[0].astype(np.float32), bias, raw.query
        )


def user_vectors(texts: Tensor, history: Tensor, opened: Tensor, query: Tensor) -> Tensor:
    """Return the users' vectors u, shape (n, dim), by attention over a history's embeddings.

    Args:
        texts: Embeddings of the texts, shape (m, dim).
        history: Positions among the texts, shape (n, longest history).
        opened: Mask that is 1 for each text in ``history``, of the same shape.
        query: Query of the attention, shape (dim,); zeros give all texts the same weight.
    """
    rows = texts[history]
    scores = rows @ query
    scores = scores.masked_fill(opened == 0, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=1) * opened  # An empty history has u = 0.
    return (weights.unsqueeze(-1) * rows).sum(dim=1)


class MatcherBatches:
    """Batches of opened candidates, each among others that the user did not open.

    Args:
        learner: The backbone.
        rows: Labelled rows; those without a user are grouped by their histories.
        label: The label of an opened candidate.
        batch: Number of choices per batch.
        seed: Seed of the choices' order, and of the candidates that are not opened.

    Attributes:
        choices: Rows with a history whose candidate was opened, if there is a text that the user
            did not open.
        texts: All distinct texts that can be drawn.

    Raises:
        DataError: There is no opened candidate with a history, or nothing else to choose.
    """

    def __init__(
        self,
        learner: TrainableBackbone,
        rows: Sequence[Row],
        label: HeadLabel,
        batch: int,
        seed: int,
    ) -> None:
        self._pool = list(dict.fromkeys(_match(row).candidate for row in rows))
        self._unopened: dict[_User, list[str]] = {}
        self._read: dict[_User, set[str]] = {}
        opened: list[tuple[_User, Match]] = []
        for row in rows:
            match = _match(row)
            user = match.history if row.user is None else row.user
            read = self._read.setdefault(user, set())
            read.update(match.history)
            if str(row.label) == str(label):
                read.add(match.candidate)
                if match.history:
                    opened.append((user, match))
            else:
                self._unopened.setdefault(user, []).append(match.candidate)
        for user, unopened in self._unopened.items():
            distinct = dict.fromkeys(unopened)
            self._unopened[user] = [text for text in distinct if text not in self._read[user]]
        candidates = set(self._pool)
        self.choices = [
            (user, match) for user, match in opened if not candidates <= self._read[user]
        ]
        histories = (text for _, match in self.choices for text in match.history[-HISTORY:])
        self.texts = list(dict.fromkeys([*self._pool, *histories]))
        self._tokens = TextTokens(learner, self.texts)
        self._seed = seed
        if not self.choices:
            raise DataError(
                "no user has a history, an opened candidate and a candidate that was not opened"
            )
        self._plan = EpochPlan(seed, partial(self.divided, batch))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return len(self._plan)

    def batch(self, epoch: int, position: int) -> dict[str, Tensor]:
        """Return the arguments of ``MatcherModule.forward``; each distinct text occurs once."""
        rng = np.random.default_rng((self._seed, epoch, position))
        choices = [self.draw(choice, rng) for choice in self._plan.batch(epoch, position)]
        texts = dict.fromkeys(text for match in choices for text in (*match[0], *match[1]))
        index = {text: number for number, text in enumerate(texts)}
        history, mask = pad([[index[text] for text in latest] for latest, _ in choices], 0)
        return {
            **self._tokens.take([self._tokens.position[text] for text in texts]),
            "history": history,
            "opened": mask,
            "candidates": torch.tensor([[index[text] for text in drawn] for _, drawn in choices]),
        }

    def divided(self, batch: int, rng: np.random.Generator) -> list[list[int]]:
        """Divide the choices at random into batches, keeping a few of each user together."""
        by_user: dict[_User, list[int]] = {}
        for index in rng.permutation(len(self.choices)).tolist():
            by_user.setdefault(self.choices[index][0], []).append(index)
        groups = [
            chosen[start : start + _TOGETHER]
            for chosen in by_user.values()
            for start in range(0, len(chosen), _TOGETHER)
        ]
        order = [index for group in rng.permutation(len(groups)) for index in groups[group]]
        return [order[start : start + batch] for start in range(0, len(order), batch)]

    def draw(self, choice: int, rng: np.random.Generator) -> tuple[tuple[str, ...], list[str]]:
        """Draw the candidates of a choice.

        Candidates are drawn first from those that the user was shown and did not open, without
        repetition, then from all candidates that the user did not open.

        Args:
            choice: Position of the choice in ``choices``.
            rng: The random generator.

        Returns:
            The latest texts of the history, and the candidates, of which the opened one is first.
        """
        user, match = self.choices[choice]
        unopened = self._unopened.get(user, [])
        count = min(NEGATIVES, len(unopened))
        negatives = [unopened[index] for index in rng.choice(len(unopened), count, replace=False)]
        while len(negatives) < NEGATIVES:
            text = self._pool[int(rng.integers(len(self._pool)))]
            if text not in self._read[user]:
                negatives.append(text)
        return match.history[-HISTORY:], [match.candidate, *negatives]


def _match(row: Row) -> Match:
    if not isinstance(row.example, Match):
        raise TypeError("the row belongs to another task")
    return row.example
