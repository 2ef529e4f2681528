"""The prior around a vendor's model, as rows in which it is the identity.

With omega = m + A delta and delta ~ Normal(0, I), a block adds m . x + (A' x) . delta to a logit,
so A' x is a row. A is v^1/2 I, and rows are centred at the user's mean input, so that omega alone
does not move the mean logit. The variance v makes a row's mean square 1, for embeddings and for
n-grams of any length, and the block's scale multiplies it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fala.base.products import Floats
from fala.model.links import PerTag
from fala.model.scales import Scales
from fala.solver.design import CentredRows, DenseRows, JointRows, Products
from fala.solver.minimum import Minimum, minimize
from fala.solver.newton import Evidence, Problem
from fala.solver.training import Block, TrainingSet
from fala.text.sparse_rows import SparseRows

#: Standard deviation of the slope a before any evidence, at the scale 1.
SLOPE_DEVIATION = 0.5
#: Standard deviation of people's bias at the scale 1.
BIAS_DEVIATION = 1.0

# Texts whose n-grams differ by less than this count as equal.
_ALIKE = 1e-9
#: The least multiple of the vendor's own logit. Labels without information can make it any small
#: number, and below 0 it would reverse the vendor's ranking.
LEAST_SLOPE = 0.1
#: The weight of an old logit beside labels. Its curvature, twice the weight, then equals the
#: curvature 1/4 of the cross-entropy at a probability of 1/2, so that both count the same. For a
#: rating both are divided by the square of its spread.
LOGIT_WEIGHT = 1 / 8


def whiten(block: Block) -> tuple[Floats, float]:
    """Return the mean input of a block, (p,), and the mean squared distance of inputs from it."""
    inputs = block.inputs
    if isinstance(inputs, SparseRows):
        centre = inputs.mean()
        length = float(inputs.squared_lengths().mean() - centre @ centre) if len(inputs) else 0.0
    else:
        centre = np.zeros(inputs.shape[1])
        if len(inputs):
            centre = inputs.mean(axis=0, dtype=np.float64)
        centred = inputs - centre
        length = float(np.vdot(centred, centred)) / max(len(inputs), 1) + block.unseen
    return centre, length if length > _ALIKE else 1.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that can be chosen.

    Attributes:
        weights: The weights omega of every block, shapes (C, d_k).
        bias: The bias b, shape (C,).
        left_out: Leave-one-out logits, shape (n, C), with the plain logits of examples that were
            not fitted; empty if they are not known.
    """

    weights: tuple[Floats, ...]
    bias: Floats
    left_out: Floats = field(default_factory=lambda: np.empty((0, 1)))

    def towards(self, other: Candidate, share: PerTag) -> Candidate:
        """Return the interpolation between this model and another, by a share."""
        shares = np.asarray(share)

        def between(first: Floats, second: Floats, part: Floats = shares) -> Floats:
            return np.asarray((1 - part) * first + part * second)

        weights = tuple(
            between(first, second, shares[..., None])
            for first, second in zip(self.weights, other.weights, strict=True)
        )
        bias, left_out = between(self.bias, other.bias), between(self.left_out, other.left_out)
        return Candidate(weights, bias, left_out)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The prior, and the vendor's model that it is around.

    Attributes:
        centres: The user's mean input of every block, shapes (d_k,).
        roots: The square root of each block's variance of a weight at the scale 1.
        scales: The blocks' scales.
        slope: The slope's standard deviation.
        deviation: The bias's standard deviation.
        weights: The vendor's omega of every block.
        bias: The vendor's b.
        level: The mean of the vendor's logits, shape (C,), which the slope leaves unchanged.
    """

    centres: tuple[Floats, ...]
    roots: tuple[float, ...]
    scales: tuple[float, ...]
    slope: float
    deviation: float
    weights: tuple[Floats, ...]
    bias: Floats
    level: Floats

    def rows(self, training: TrainingSet) -> JointRows:
        """Return the rows of some examples, in which the prior is the identity."""
        parts = tuple(
            CentredRows(block.inputs, centre, root)
            if isinstance(block.inputs, SparseRows)
            else DenseRows((block.inputs - centre) * root)
            for block, centre, root in zip(training.blocks, self.centres, self.roots, strict=True)
        )
        roots = tuple(float(np.sqrt(scale)) for scale in self.scales)
        return JointRows(parts, roots, self.deviation)

    def problem(self, rows: Products, vendor: Floats, evidence: Evidence) -> Problem:
        """Return the objective J over rows of some examples, given the vendor's logits of them."""
        return Problem(rows, np.asarray(self.slope * (vendor - self.level)), vendor, evidence)

    def model(self, point: Floats) -> Candidate:
        """Return the model at a point of J, (C, p + 1), or of ``calibrate``, (C, 2)."""
        slope = self.slope * point[:, -1]
        weights = [(1 + slope)[:, None] * weight for weight in self.weights]
        bias = self.bias + slope * (self.bias - self.level) + self.deviation * point[:, -2]
        if point.shape[1] > 2:
            ends = np.cumsum([len(centre) for centre in self.centres])[:-1]
            parts = np.split(point[:, :-2], ends, axis=1)
            blocks = zip(weights, self.centres, self.roots, self.scales, parts, strict=True)
            for weight, centre, root, scale, part in blocks:
                omega = np.sqrt(scale) * root * part
                weight += omega
                bias -= omega @ centre
        return Candidate(tuple(weights), bias)


def gaussian_around(training: TrainingSet, vendor: Floats, scales: Scales) -> Gaussian:
    """Return the Gaussian around a training set's model, with these logits."""
    spread = training.link.spread
    used = training.used
    centres, lengths = zip(*map(whiten, training.blocks), strict=True)
    return Gaussian(
        centres,
        tuple(spread / float(np.sqrt(length)) for length in lengths),
        scales.blocks,
        SLOPE_DEVIATION * float(np.sqrt(scales.slope)),
        spread * BIAS_DEVIATION * float(np.sqrt(scales.bias)),
        tuple(block.weight.astype(np.float64) for block in training.blocks),
        training.bias.astype(np.float64),
        vendor[used].mean(axis=0) if used.any() else np.zeros(len(training.bias)),
    )


def calibrate(
    prior: Gaussian, vendor: Floats, evidence: Evidence, start: Floats | None = None
) -> tuple[Floats, Minimum]:
    """Minimize over a bias and a slope alone, which keeps the vendor's ranking.

    Args:
        prior: The prior.
        vendor: The vendor's logits, shape (n, C).
        evidence: The labels and old logits.
        start: The point of fewer examples; None starts at 0.

    Returns:
        The point, shape (C, 2), and the minimum, which is over the bias alone if the slope is held
        at its least.
    """
    rows = DenseRows(np.full((len(vendor), 1), prior.deviation))
    problem = prior.problem(rows, vendor, evidence)
    free = minimize(problem, start)
    point = free.point
    clipped = 1 + prior.slope * point[:, 1] < LEAST_SLOPE
    if not clipped.any():
        return point, free
    least = np.where(clipped, (LEAST_SLOPE - 1) / prior.slope, 0.0)
    column = problem.slope_column
    held = Problem(rows, np.where(clipped, 0.0, column), vendor + column * least, evidence)
    minimum = minimize(held)
    bias, eta = minimum.point.T
    return np.column_stack([bias, np.where(clipped, least, eta)]), minimum


def evidence_of(training: TrainingSet, *, beside_labels: bool) -> Evidence:
    """Return the labels of examples, and the targets of those without a label.

    Args:
        training: The examples.
        beside_labels: Whether the fit has labels, in which case an old logit counts like a label.
    """
    labels, targets = training.labels, training.targets
    has_label = np.logical_not(np.isnan(labels).any(axis=1))
    has_target = np.logical_and(~has_label, ~np.isnan(targets).any(axis=1))
    weight = (LOGIT_WEIGHT if beside_labels else 1.0) / training.link.spread**2
    return Evidence(
        np.where(has_label[:, None], labels, 0.5 if labels.shape[1] == 1 else 0.0),
        has_label.astype(np.float64),
        np.where(has_target[:, None], targets, 0.0),
        weight * has_target,
        training.link,
    )
