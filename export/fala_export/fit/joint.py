"""Fit a head to embeddings and n-grams together, with penalties from cross-validation.

    minimize  sum_i s_i L(y_i, z_i) + sum_k kappa_k |w_k|^2 / (2 r_k),
    z = z_0 + sum_k w_k . x_k + b

L is the link's loss (the cross-entropy of labels, or a rating's squared error), and the blocks k
are the parts of the embeddings, then the n-grams. kappa_k is the mean squared length of the centred
x_k, so r_k is the prior variance of block k's logits. As multiples of the mean loss, the penalties
are l_k = kappa_k / (2 r_k sum_i s_i).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fala.base.errors import DataError
from fala.base.products import Floats
from fala.base.threads import one_blas_thread
from fala.model.links import Link
from fala.solver.newton import Evidence
from fala_export.fit.joint_rows import JointProblem
from fala_export.people.draw import searched
from fala_export.people.fold import folds_of

#: Most points of the search, for the progress bar; 10 to 25 are usual.
MOST_STEPS = 30

# A block's r is 10^(k / 2) with one of these k. The grid is coarse, because the minimum is flat.
_GRID = range(-6, 9)
_START = 0
_ROUNDS = 2
# The search continues in a direction while the loss falls by this share.
_BETTER = 1e-4
# A fit ends when the next step would change logits by less than this share.
_SEARCH, _FINAL = 1e-2, 1e-6


@dataclass(frozen=True, eq=False)
class Joint:
    """The result of a joint fit.

    Attributes:
        weight: The weights w of the concatenated parts of the embeddings, shape (C, D).
        words: The weights v of the n-grams, shape (C, number of n-grams).
        bias: The biases b, shape (C,).
        logits: The examples' logits, shape (n, C).
        penalties: The penalties l_k by block, in units of the mean cross-entropy.
        loss: Mean loss on left-out documents, in nats per row; None if there is only one document.
        loss_without: Mean loss on left-out documents of the best fit without n-grams.
        margins: Halves of both losses' 95 % intervals over documents.
        documents: Number of documents that were left out in turn.
        buckets: Number of n-grams with a weight.
        link: The meaning of the logits.
    """

    weight: Floats
    words: Floats
    bias: Floats
    logits: Floats
    penalties: tuple[float, ...]
    loss: float | None
    loss_without: float | None
    margins: tuple[float | None, float | None]
    documents: int
    buckets: int
    link: Link

    def details(self) -> dict[str, Any]:
        """Return the fit's record for a manifest."""
        losses = {"with_words": self.loss, "without_words": self.loss_without}
        margins = dict(zip(losses, self.margins, strict=True))
        measure = self.link.measure
        if self.link.kind == "rating":  # The fit is in units of the ratings' standard deviation.
            measure = "half the squared error, by the ratings' variance,"
        return {
            "buckets": self.buckets,
            "penalties": [float(f"{penalty:.4g}") for penalty in self.penalties],
            "measure": measure,
            "left_out_loss": {
                name: None if loss is None else round(loss, 5) for name, loss in losses.items()
            },
            "margin": {name: None if of is None else round(of, 5) for name, of in margins.items()},
            "documents": self.documents,
        }


def fit_joint(problem: JointProblem, step: Callable[[], None] = lambda: None) -> Joint:
    """Choose the penalties by cross-validation over documents, and fit.

    Args:
        problem: The training data.
        step: A function called after every point of the search, at most ``MOST_STEPS`` times.
    """
    with one_blas_thread():
        subset = searched(len(problem))
        search = _Search(problem if subset is None else problem.take(subset), step)
        chosen, loss, loss_without = search.run()
        margins = search.margin_of(loss), search.margin_of(loss_without)
        documents = len(np.unique(search.problem.documents))
        del search  # This frees what the search computed for a subset.
        scales = [10.0 ** (k / 2) for k in chosen]
        point, logits = problem.minimize(scales, problem.evidence, None, _FINAL)
        total = float(problem.evidence.label_weights.sum())
        penalties = (
            kappa / (2 * scale * total) for kappa, scale in zip(problem.kappas, scales, strict=True)
        )
        return Joint(
            *problem.weights(point), logits, tuple(penalties), loss, loss_without, margins,
            documents, len(problem.ngrams), problem.evidence.link,
        )  # fmt: skip


def refitted(
    problem: JointProblem, penalties: Sequence[float], evidence: Sequence[Evidence]
) -> list[Floats]:
    """Return all examples' logits by fits to parts of the labels, each of shape (n, C).

    Args:
        problem: The training data.
        penalties: The penalties l_k by block, as ``fit_joint`` chose them on all documents.
        evidence: The evidence of each fit; an example that is left out has the weight 0.

    Raises:
        DataError: The number of penalties is not that of the blocks.
    """
    blocks = len(problem.parts) + 1
    if len(penalties) != blocks:
        raise DataError(
            f"there must be a penalty for each of the {blocks} blocks of features, not "
            f"{len(penalties)} penalties"
        )
    total = float(problem.evidence.label_weights.sum())
    scales = [
        kappa / (2 * penalty * total)
        for kappa, penalty in zip(problem.kappas, penalties, strict=True)
    ]
    with one_blas_thread():
        return [problem.minimize(scales, each, None, _FINAL)[1] for each in evidence]


def _sets(problem: JointProblem) -> Floats:
    """Return each fold's training set: 1 for its examples, 0 for those of left-out documents."""
    folds = folds_of(problem.documents)
    return np.asarray(folds != np.arange(folds.max() + 1)[:, None], dtype=np.float64)


class _Search:
    """A coordinate search for each block's prior variance, by the loss on left-out documents."""

    def __init__(self, problem: JointProblem, step: Callable[[], None]) -> None:
        self.problem = problem
        self._step = step
        self._sets = _sets(problem)
        self._losses: dict[tuple[int | None, ...], float] = {}
        self._margins: dict[float, float] = {}
        self._starts: list[Floats | None] = [None] * len(self._sets)

    def run(self) -> tuple[list[int], float | None, float | None]:
        """Return the chosen grid points by block, and the losses with and without n-grams."""
        blocks = len(self.problem.kappas)
        dense: list[int | None] = [_START] * (blocks - 1)
        if len(self._sets) < 2:
            return [_START] * blocks, None, None
        point, without = self._descend([*dense, None], range(blocks - 1))
        point[-1] = _START
        point, loss = self._descend(point, [blocks - 1, *range(blocks - 1)])
        return [k for k in point if k is not None], loss, without

    def margin_of(self, loss: float | None) -> float | None:
        """Return half of the 95 % interval of a loss, over documents."""
        return None if loss is None else self._margins[loss]

    def _descend(
        self, point: list[int | None], blocks: Sequence[int]
    ) -> tuple[list[int | None], float]:
        loss = self._loss(point)
        for _ in range(_ROUNDS):
            before = list(point)
            for block in blocks:
                for direction in (-1, 1):
                    while (k := (point[block] or 0) + direction) in _GRID:
                        candidate = [*point[:block], k, *point[block + 1 :]]
                        if (new_loss := self._loss(candidate)) >= loss * (1 - _BETTER):
                            break
                        point, loss = candidate, new_loss
            if point == before:
                break
        return point, loss

    def _loss(self, point: list[int | None]) -> float:
        key = tuple(point)
        if key not in self._losses:
            scales = [0.0 if k is None else 10.0 ** (k / 2) for k in point]
            self._losses[key] = self._left_out_loss(scales)
            if len(self._losses) <= MOST_STEPS:
                self._step()
        return self._losses[key]

    def _left_out_loss(self, scales: list[float]) -> float:
        evidence = self.problem.evidence
        counts, sums = evidence.label_weights, np.zeros(len(self.problem))
        for fold, fitted in enumerate(self._sets):
            start = self._starts[fold]
            part = replace(evidence, label_weights=fitted * counts)
            self._starts[fold], z = self.problem.minimize(scales, part, start, _SEARCH)
            losses = evidence.link.losses(evidence.labels, z)
            sums += (1 - fitted) * counts * losses
        total = float(counts.sum())
        loss = float(sums.sum()) / total
        of_documents = np.bincount(self.problem.documents, sums - loss * counts)
        self._margins[loss] = 1.96 * float(np.sqrt((of_documents**2).sum())) / total
        return loss
