"""The matcher's global training: which of a few candidates did the user open?

The user is the attention-weighted sum u of the history's embeddings, a candidate's logit is
z = w . (u * v); the loss is the cross-entropy of an opened candidate among others that the user
did not open (Okura et al., "Embedding-based News Recommendation for Millions of Users", KDD 2017;
the paper samples four).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fala import DataError, Head, Match
from fala.release import MATCHING, Evidence, Row, Vectors, fit_paper
from fala_export.models.sentence_encoder import pad
from fala_export.training.backbones import Learner
from fala_export.training.texts import EpochPlan, Texts

NEGATIVES = 4  # candidates that were not opened, to one that was (the paper, section 4.2)
HISTORY = 50  # latest texts of a history that a training looks at

_TOGETHER = 4  # choices of one user that stay in a batch: they share the texts of the history

_User: TypeAlias = str | tuple[str, ...]


class Opened:
    """Rows of a matching task, by user.

    Args:
        rows: Labelled rows; those without a user are told apart by their histories.
        label: Of a candidate that was opened.

    Attributes:
        choices: Rows whose candidate was opened after something else, and for which there is
            something that the user did not open.
        texts: Distinct texts of all that can be drawn.
    """

    def __init__(self, rows: Sequence[Row], label: str) -> None:
        self._pool = list(dict.fromkeys(_match(row).candidate for row in rows))
        self._left: dict[_User, list[str]] = {}
        self._known: dict[_User, set[str]] = {}
        opened: list[tuple[_User, Match]] = []
        for row in rows:
            match = _match(row)
            user = match.history if row.user is None else row.user
            known = self._known.setdefault(user, set())
            known.update(match.history)
            if str(row.label) == label:
                known.add(match.candidate)
                if match.history:
                    opened.append((user, match))
            else:
                self._left.setdefault(user, []).append(match.candidate)
        for user, left in self._left.items():
            distinct = dict.fromkeys(left)
            self._left[user] = [text for text in distinct if text not in self._known[user]]
        everything = set(self._pool)
        self.choices = [
            (user, match) for user, match in opened if not everything <= self._known[user]
        ]
        histories = (text for _, match in self.choices for text in match.history[-HISTORY:])
        self.texts = list(dict.fromkeys([*self._pool, *histories]))

    def plan(self, batch: int, rng: np.random.Generator) -> list[list[int]]:
        """Divide the choices at random into batches, with a few of a user side by side."""
        of_user: dict[_User, list[int]] = {}
        for index in rng.permutation(len(self.choices)).tolist():
            of_user.setdefault(self.choices[index][0], []).append(index)
        groups = [
            chosen[start : start + _TOGETHER]
            for chosen in of_user.values()
            for start in range(0, len(chosen), _TOGETHER)
        ]
        order = [index for group in rng.permutation(len(groups)) for index in groups[group]]
        return [order[start : start + batch] for start in range(0, len(order), batch)]

    def draw(self, choice: int, rng: np.random.Generator) -> tuple[tuple[str, ...], list[str]]:
        """Draw what an opened candidate is chosen among.

        From what the same user left, without repetition; what is missing of that from all
        candidates that the user did not open.

        Args:
            choice: Position in ``choices``.
            rng: Draws.

        Returns:
            The latest texts of the history, and the opened candidate before the others.
        """
        user, match = self.choices[choice]
        left = self._left.get(user, [])
        count = min(NEGATIVES, len(left))
        among = [left[index] for index in rng.choice(len(left), count, replace=False)]
        while len(among) < NEGATIVES:
            text = self._pool[int(rng.integers(len(self._pool)))]
            if text not in self._known[user]:
                among.append(text)
        return match.history[-HISTORY:], [match.candidate, *among]


def _match(row: Row) -> Match:
    if not isinstance(row.example, Match):
        raise TypeError("a row of another task")
    return row.example


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
