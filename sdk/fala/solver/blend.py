"""The personal model over the new backbone's view and the old one's, in one closed form.

    z = omega . x + a z_old + b

x is the head's input from the new backbone, z_old the old view's logit on the same example: the
old vendor's, since what is personal is fitted to the user's labels in omega; the old personal
model's where no label is left to fit. (omega, a, b) is Gaussian before any evidence, and fitted by
the reweighted least squares of ``fala.objective``. An example counts with the input that the
device has: from real embeddings, or from old ones over the vendor's bridge. Both kinds weigh the
same: weights by the bridge's residual variance, or logits shrunk by it, were no better on people
who are in no published figure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fala.errors import DataError
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.prior import PopulationPrior
from fala.solver.evidence import Evidence
from fala.solver.objective import fit_offset
from fala.solver.personal import LOGIT_WEIGHT
from fala.solver.threads import one_blas_thread
from fala.solver.whitening import Floats

#: The old view's weight a before any evidence: its mean and standard deviation.
VIEW_WEIGHT, VIEW_DEVIATION = 0.4, 0.2
#: How far people's omega is from the vendor's w, without a population prior: the variance of a
#: coordinate, as a multiple of the mean square of w. The optimum is broad.
SPREAD = 1.25
#: Standard deviation of people's bias, without a population prior.
BIAS_DEVIATION = 1.0
#: Multiples of the prior's covariance that leave-one-out chooses among.
SCALES = (0.3, 1.0, 3.0)

# Share of the mean variance that is added to a covariance that need not have full rank.
_JITTER = 1e-9


@dataclass(frozen=True)
class View:
    """An earlier backbone's model that still has a say.

    Attributes:
        model: The model, on its own head and embeddings.
        weight: What its logits are multiplied by before they are added, shape (C,).
    """

    model: PersonalModel
    weight: Vectors

    def logits(self, inputs: Vectors) -> Vectors:
        """What it adds to the logits, shape (n, C), from its own head's inputs (n, d)."""
        return np.asarray(self.weight * self.model.logits(inputs), dtype=np.float32)


@dataclass(frozen=True)
class Inputs:
    """The new head's inputs x of n examples, as a product where few numbers stand for many.

    Attributes:
        coordinates: Shape (n, q).
        basis: x = coordinates @ basis, shape (q, d); None where the coordinates are x.
    """

    coordinates: Vectors
    basis: Vectors | None = None

    def logits(self, weight: NDArray[np.floating]) -> Floats:
        """W . x for a weight (C, d), shape (n, C)."""
        inner = weight.T if self.basis is None else self.basis @ weight.T
        return np.asarray(self.coordinates @ inner, dtype=np.float64)

    def mean(self) -> Floats:
        """The mean of x, shape (d,)."""
        mean = self.coordinates.mean(axis=0, dtype=np.float64)
        return np.asarray(mean if self.basis is None else mean @ self.basis, dtype=np.float64)


@dataclass(frozen=True)
class Rows:
    """What is known of n examples.

    Attributes:
        inputs: Their inputs from the new backbone, real or mapped.
        labels: Class shares, shape (n, C), NaN where the user gave none.
        view: The old view's logits, shape (n, C); None without one.
        targets: Logits that stand in where there is no label, shape (n, C); NaN where they do not.
    """

    inputs: Inputs
    labels: Floats
    view: Floats | None
    targets: Floats


@dataclass(frozen=True)
class Blend:
    """A fitted blend.

    Attributes:
        model: The part on the new backbone, with the bias.
        weight: The old view's weight a, shape (C,); None without one.
        left_out: Leave-one-out logits, shape (n, C); plain ones of what was not fitted to.
        vendor: The vendor's own logits on the same inputs, shape (n, C).
        lambda_: The penalty chosen; None where there was nothing to fit.
        steps: Least squares problems that were solved.
        columns: Columns of each.
    """

    model: PersonalModel
    weight: Vectors | None
    left_out: Floats
    vendor: Floats
    lambda_: float | None
    steps: int
    columns: int


def fit_blend(head: Head, rows: Rows, prior: PopulationPrior | None = None) -> Blend:
    """Fit (omega, a, b) to the rows' labels, and to targets where there is no label.

    Args:
        head: The vendor's new head.
        rows: The user's examples; there may be none, and then the prior alone answers.
        prior: How people differ from the head; None takes an isotropic Gaussian around it.

    Raises:
        DataError: If a number is not finite.
    """
    vendor = rows.inputs.logits(head.weight) + head.bias
    with one_blas_thread():
        spaces = [_Space(head, rows, index, prior) for index in range(len(head.weight))]
        offset = vendor + np.stack([s.offset for s in spaces], axis=1)
        left_out, deltas = offset, [s.mean for s in spaces]
        labelled = np.logical_not(np.isnan(rows.labels).any(axis=1))
        used = np.logical_or(labelled, np.logical_not(np.isnan(rows.targets).any(axis=1)))
        lambda_, steps, columns = None, 0, 0
        if used.any():
            evidence = Evidence.of(
                np.stack([s.rows[used] for s in spaces], axis=1),
                labels=rows.labels[used] if labelled.any() else None,
                logits=np.where(labelled[:, None], np.nan, rows.targets)[used],
                logit_weight=LOGIT_WEIGHT if labelled.any() else 1.0,
            )
            grid = [0.5 / (used.sum() * scale) for scale in SCALES]
            solved = fit_offset(evidence, offset[used], grid)
            deltas = [s.lift(d) for s, d in zip(spaces, solved.theta, strict=True)]
            lambda_, steps, columns = solved.lambda_, solved.steps, solved.theta.shape[1]
            left_out = vendor + np.stack(
                [s.logits(d) for s, d in zip(spaces, deltas, strict=True)], axis=1
            )
            left_out[used] = solved.left_out
    moved = np.stack(deltas)
    d = head.dimension
    model = PersonalModel.of_weights(head, head.weight + moved[:, :d], head.bias + moved[:, -1])
    weight = None if rows.view is None else moved[:, d].astype(np.float32)
    return Blend(model, weight, left_out, vendor, lambda_, steps, columns)


class _Space:
    """One logit's Gaussian over (omega - w, a, b - the vendor's b), and the rows whitened by it.

    With the design G = [coordinates, z_old, 1] and the matrix A that takes the Gaussian's p numbers
    to G's q, the logits' covariance is G M G', M = A S A' = U U'. The rows are G U: delta has the
    identity for its prior, and as few numbers as the coordinates.
    """

    def __init__(self, head: Head, rows: Rows, index: int, prior: PopulationPrior | None) -> None:
        self._basis = rows.inputs.basis
        count = len(rows.inputs.coordinates)
        view = np.empty((count, 0)) if rows.view is None else rows.view[:, index : index + 1]
        self._design: Floats = np.hstack([rows.inputs.coordinates, view, np.ones((count, 1))])
        if not np.isfinite(self._design).all():
            raise DataError("an input or an old logit is not finite")
        self.mean, covariance = _gaussian(head, rows, index, prior)
        self.offset = self.logits(self.mean)
        # A S, then A S A'.
        self._half = self._down(covariance)
        inner = self._down(self._half.T)
        inner.flat[:: len(inner) + 1] += _JITTER * np.trace(inner) / len(inner)
        self._root = scipy.linalg.cholesky(inner, lower=True)
        self.rows: Floats = self._design @ self._root

    def lift(self, delta: Floats) -> Floats:
        """The Gaussian's p numbers for whitened ones: mean + S A' U'^-1 delta."""
        solved = scipy.linalg.solve_triangular(self._root, delta, lower=True, trans="T")
        return np.asarray(self.mean + self._half.T @ solved, dtype=np.float64)

    def logits(self, numbers: Floats) -> Floats:
        """G A numbers, shape (n,): what (omega - w, a, b - the vendor's b) adds to the logits."""
        return np.asarray(self._design @ self._down(numbers), dtype=np.float64)

    def _down(self, numbers: Floats) -> Floats:
        """A times numbers of shape (p,) or (p, m)."""
        if self._basis is None:
            return numbers.copy()
        d = self._basis.shape[1]
        return np.concatenate([self._basis.astype(np.float64) @ numbers[:d], numbers[d:]])


def _gaussian(
    head: Head, rows: Rows, index: int, prior: PopulationPrior | None
) -> tuple[Floats, Floats]:
    """Mean (p,) and covariance (p, p) of one logit's (omega - w, a, b - the vendor's b)."""
    d = head.dimension
    kept = [*range(d), -1] if rows.view is None else [*range(d), d, -1]
    mean = np.zeros(d + 2)
    variance = np.empty(d + 2)
    mean[d], variance[d] = VIEW_WEIGHT, VIEW_DEVIATION**2
    ends = [*range(d), d + 1]
    # A diagonal matrix cannot move a weight that is 0: nothing may be fitted there.
    fixed = np.flatnonzero(head.weight[index] == 0)
    if prior is None:
        variance[:d] = SPREAD * np.mean(head.weight[index].astype(np.float64) ** 2)
        variance[:d][fixed] = 0.0
        variance[-1] = BIAS_DEVIATION**2
        covariance = np.diag(variance)
        # The bias is meant at the user's mean input: omega alone does not move the mean logit.
        centre = rows.inputs.mean() if len(rows.labels) else np.zeros(d)
        covariance[:d, -1] = covariance[-1, :d] = -centre * variance[:d]
        covariance[-1, -1] += float(centre**2 @ variance[:d])
    else:
        mean[ends], variance[ends] = prior.mean, prior.variance
        covariance = np.diag(variance)
        factors = prior.factors.astype(np.float64)
        covariance[np.ix_(ends, ends)] += factors.T @ factors
        mean[fixed] = covariance[fixed] = covariance[:, fixed] = 0.0
    chosen = [position % (d + 2) for position in kept]
    return mean[chosen], covariance[np.ix_(chosen, chosen)]
