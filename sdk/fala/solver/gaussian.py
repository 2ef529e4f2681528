"""The Gaussian around a vendor's model, and the models that are made of whitened numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import DenseRows, JointRows, scaled
from fala.solver.newton import Evidence, Minimum, Problem, minimize
from fala.solver.training import TrainingSet
from fala.solver.whitened import Whitened

#: The least multiple of the vendor's own logit, of which labels that say nothing leave no more than
#: chance does: below 0 the vendor's ranking would be turned round.
LEAST_SLOPE = 0.1
#: Weight of an old logit beside labels: the square then curves as the cross-entropy of one label
#: does at an undecided document (1/4, against the square's 2), so each counts as much as the other.
LOGIT_WEIGHT = 1 / 8


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that could answer.

    Attributes:
        weights: omega of every block, shapes (C, d_k).
        bias: b, shape (C,).
        left_out: Leave-one-out logits, shape (n, C); plain ones of what was not fitted to.
    """

    weights: tuple[Floats, ...]
    bias: Floats
    left_out: Floats

    def towards(self, other: Candidate, share: float) -> Candidate:
        """The model that lies between this and another, a share of the way there."""

        def between(one: Floats, two: Floats) -> Floats:
            return np.asarray((1 - share) * one + share * two)

        weights = tuple(map(between, self.weights, other.weights))
        bias, left_out = between(self.bias, other.bias), between(self.left_out, other.left_out)
        return Candidate(weights, bias, left_out)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The prior, and the vendor's model that it is around.

    Attributes:
        spaces: How the blocks' rows are made.
        scales: Their scales.
        slope: The slope's standard deviation.
        deviation: The bias's.
        weights: The vendor's omega of every block.
        bias: The vendor's b.
        level: Mean of the vendor's logits, shape (C,), where the slope turns.
    """

    spaces: tuple[Whitened, ...]
    scales: tuple[float, ...]
    slope: float
    deviation: float
    weights: tuple[Floats, ...]
    bias: Floats
    level: Floats

    def rows(self, training: TrainingSet) -> JointRows:
        """All blocks' rows."""
        parts = [
            space.rows(block.inputs)
            for space, block in zip(self.spaces, training.blocks, strict=True)
        ]
        return scaled(parts, self.scales, self.deviation)

    def offset(self, training: TrainingSet, vendor: Floats) -> Floats:
        """Logits where all numbers are 0, of the vendor's own, shape (n, C)."""
        means = [
            space.offset(block.inputs)[:, None]
            for space, block in zip(self.spaces, training.blocks, strict=True)
        ]
        return np.asarray(sum(means, start=vendor))

    def own(self, vendor: Floats) -> Floats:
        """The slope's column of each logit, of the vendor's logits (n, C)."""
        return np.asarray(self.slope * (vendor - self.level))

    def full(self, delta: Floats, eta: Floats, left_out: Floats) -> Candidate:
        """The model of whitened numbers (C, p) and slopes' numbers (C,)."""
        moved, bias = self._sloped(eta)
        bias += self.deviation * delta[:, -1]
        for index in range(len(bias)):
            start = 0
            for weight, space, scale in zip(moved, self.spaces, self.scales, strict=True):
                part = delta[index, start : start + space.size]
                omega, share = space.lift(np.sqrt(scale) * part)
                weight[index] += omega
                bias[index] += share
                start += space.size
        return Candidate(tuple(moved), bias, left_out)

    def calibrated(self, found: Minimum, left_out: Floats) -> Candidate:
        """The model of a slope and a bias alone."""
        moved, bias = self._sloped(found.own)
        return Candidate(tuple(moved), bias + self.deviation * found.delta[:, 0], left_out)

    def _sloped(self, eta: Floats) -> tuple[list[Floats], Floats]:
        slope = self.slope * eta
        moved = [(1 + slope)[:, None] * weight for weight in self.weights]
        return moved, self.bias + slope * (self.bias - self.level)


def calibrate(prior: Gaussian, vendor: Floats, own: Floats, evidence: Evidence) -> Minimum:
    """The minimum over a bias and a slope alone, which keeps the vendor's ranking."""
    problem = calibration(prior, vendor, own, evidence)
    found = minimize(problem)
    turned = 1 + prior.slope * found.own < LEAST_SLOPE
    if not turned.any():
        return found
    least = np.where(turned, (LEAST_SLOPE - 1) / prior.slope, 0.0)
    held = Problem(problem.rows, np.where(turned, 0.0, own), vendor + own * least, evidence)
    again = minimize(held)
    return replace(
        again, own=np.where(turned, least, again.own), steps=found.steps + again.steps,
        flops=found.flops + again.flops,
    )  # fmt: skip


def calibration(prior: Gaussian, vendor: Floats, own: Floats, evidence: Evidence) -> Problem:
    """J over a bias and a slope alone."""
    rows = DenseRows(np.full((len(vendor), 1), prior.deviation))
    return Problem(rows, own, vendor, evidence)


def evidence_of(training: TrainingSet, *, beside_labels: bool) -> Evidence:
    """Labels, and targets where there is none.

    Args:
        training: The examples.
        beside_labels: Whether the fit has labels, beside which an old logit weighs as one of them.
    """
    labels, targets = training.labels, training.targets
    has_label = np.logical_not(np.isnan(labels).any(axis=1))
    has_target = np.logical_and(~has_label, ~np.isnan(targets).any(axis=1))
    weight = LOGIT_WEIGHT if beside_labels else 1.0
    return Evidence(
        np.where(has_label[:, None], labels, 0.5 if labels.shape[1] == 1 else 0.0),
        has_label.astype(np.float64),
        np.where(has_target[:, None], targets, 0.0),
        weight * has_target,
    )
