"""Fit a head to embeddings and n-grams together, with penalties from cross-validation.

    minimize  sum_i s_i L(y_i, z_i) + sum_k kappa_k |w_k|^2 / (2 r_k),
    z = z_0 + sum_k w_k . x_k + b

L is the link's loss (the cross-entropy of labels, or a rating's squared error), and the blocks k
are the parts of the embeddings, then the n-grams. kappa_k is the mean squared length of the centred
x_k, so r_k is the prior variance of block k's logits. As multiples of the mean loss, the penalties
are l_k = kappa_k / (2 r_k sum_i s_i).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fala.base.errors import DataError
from fala.base.products import Floats
from fala.base.threads import one_blas_thread
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


#: A k for each block; None omits the block.
_Point: TypeAlias = tuple[int | None, ...]


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
        details: The fit's record for a manifest.
    """

    weight: Floats
    words: Floats
    bias: Floats
    logits: Floats
    penalties: tuple[float, ...]
    loss: float | None
    details: Mapping[str, Any]


def fit_joint(problem: JointProblem, step: Callable[[], None] = lambda: None) -> Joint:
    """Choose the penalties by cross-validation over documents, and fit.

    Args:
        problem: The training data.
        step: A function called after every point of the search, at most ``MOST_STEPS`` times.
    """
    with one_blas_thread():
        subset = searched(len(problem))
        search = _Search(problem if subset is None else problem.take(subset), step)
        chosen, found = search.run()
        documents = len(np.unique(search.problem.documents))
        del search  # This frees what the search computed for a subset.
        scales = _scales(chosen)
        point, logits = problem.minimize(scales, problem.evidence, None, _FINAL)
        penalties = _converted(problem, scales)
        link = problem.evidence.link
    measure = link.measure
    if link.kind == "rating":  # The fit is in units of the ratings' standard deviation.
        measure = "half the squared error, by the ratings' variance,"
    details = {
        "buckets": len(problem.ngrams),
        "penalties": [float(f"{penalty:.4g}") for penalty in penalties],
        "measure": measure,
        "left_out_loss": {name: loss and round(loss, 5) for name, (loss, _) in found.items()},
        "margin": {name: margin and round(margin, 5) for name, (_, margin) in found.items()},
        "documents": documents,
    }
    loss, _ = found["with_words"]
    return Joint(*problem.weights(point), logits, penalties, loss, details)


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
    blocks = len(problem.kappas)
    if len(penalties) != blocks:
        raise DataError(
            f"there must be a penalty for each of the {blocks} blocks of features, not "
            f"{len(penalties)} penalties"
        )
    scales = _converted(problem, penalties)
    with one_blas_thread():
        return [problem.minimize(scales, each, None, _FINAL)[1] for each in evidence]


def _converted(problem: JointProblem, numbers: Sequence[float]) -> tuple[float, ...]:
    """Convert prior variances by block to penalties, or penalties to prior variances."""
    total = float(problem.evidence.label_weights.sum())
    return tuple(
        kappa / (2 * number * total) for kappa, number in zip(problem.kappas, numbers, strict=True)
    )


def _scales(point: _Point) -> list[float]:
    """Return the prior variances of a point of the grid."""
    return [0.0 if k is None else 10.0 ** (k / 2) for k in point]


class _Search:
    """A coordinate search for each block's prior variance, by the loss on left-out documents."""

    def __init__(self, problem: JointProblem, step: Callable[[], None]) -> None:
        self.problem, self._step = problem, step
        folds = folds_of(problem.documents)
        # Each fold's training set: 1 for its examples, 0 for those of left-out documents.
        self._sets = [(folds != fold).astype(np.float64) for fold in range(folds.max() + 1)]
        self._starts: list[Floats | None] = [None] * len(self._sets)
        self._found: dict[_Point, tuple[float, float]] = {}

    def run(self) -> tuple[_Point, dict[str, tuple[float | None, float | None]]]:
        """Return the best point, and the losses with and without n-grams and their margins."""
        dense, words = range(len(self.problem.kappas) - 1), len(self.problem.kappas) - 1
        start = (_START,) * words
        if len(self._sets) < 2:
            return (*start, _START), {"with_words": (None, None), "without_words": (None, None)}
        without = self._descend((*start, None), dense)
        best = self._descend((*without[:-1], _START), [words, *dense])
        found = {"with_words": self._left_out(best), "without_words": self._left_out(without)}
        return best, dict(found)

    def _descend(self, point: _Point, blocks: Sequence[int]) -> _Point:
        """Return the best point that changes of some blocks lead to."""
        loss, _ = self._left_out(point)
        for _ in range(_ROUNDS):
            before = point
            for block in blocks:
                for direction in (-1, 1):
                    while (k := (point[block] or 0) + direction) in _GRID:
                        candidate = (*point[:block], k, *point[block + 1 :])
                        new_loss, _ = self._left_out(candidate)
                        if new_loss >= loss * (1 - _BETTER):
                            break
                        point, loss = candidate, new_loss
            if point == before:
                break
        return point

    def _left_out(self, point: _Point) -> tuple[float, float]:
        """Return the loss on left-out documents, and half of its 95 % interval over documents."""
        if point in self._found:
            return self._found[point]
        evidence = self.problem.evidence
        counts, sums = evidence.label_weights, np.zeros(len(self.problem))
        for fold, fitted in enumerate(self._sets):
            part = replace(evidence, label_weights=fitted * counts)
            self._starts[fold], z = self.problem.minimize(
                _scales(point), part, self._starts[fold], _SEARCH
            )
            sums += (1 - fitted) * counts * evidence.link.losses(evidence.labels, z)
        total = float(counts.sum())
        loss = float(sums.sum()) / total
        of_documents = np.bincount(self.problem.documents, sums - loss * counts)
        margin = 1.96 * float(np.sqrt((of_documents**2).sum())) / total
        self._found[point] = loss, margin
        if len(self._found) <= MOST_STEPS:
            self._step()
        return loss, margin
