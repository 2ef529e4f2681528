"""The one fit of the device: a personal model over blocks of features.

    z = sum_k omega_k . x_k + b + a (z_vendor - mean z_vendor),
    (omega, b, a) ~ Normal((w, the vendor's b, 0), S)                                       (1)

Labels count as cross-entropy, old logits as squares where no label speaks. Every block's Gaussian
is multiplied by a scale of its own, which the vendor's public annotators chose. It is solved over
as many numbers as there are features or examples, whichever are fewer (primal or dual); where both
are too many, by conjugate gradients, and a sample of the examples stands in for all where each is
left out.

Two minima come of it: all of (1), and (1) with omega = w, which asks of the labels no more than how
far to trust the vendor's logit and where its zero lies (Platt, 1999). What answers lies on the way
between them (``fala.solver.judge``).

With theta = omega / w an isotropic Gaussian is the paper's ridge (equation 1) with a multiple of
the penalty P = diag(w^2), around theta = 1 instead of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fala.lexical.rows import SparseRows
from fala.model.losses import Floats
from fala.solver.dual import minimize_dual
from fala.solver.newton import (
    Evidence,
    Minimum,
    Problem,
    minimize,
    minimize_iteratively,
    minimize_several,
    update,
)
from fala.solver.rows import DenseRows, JointRows, scaled
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, TrainingSet
from fala.solver.whitened import Whitened, whiten

#: Standard deviation of the slope a before any evidence.
SLOPE_DEVIATION = 0.5
#: The least multiple of the vendor's own logit, of which labels that say nothing leave no more than
#: chance does: below 0 the vendor's ranking would be turned round.
LEAST_SLOPE = 0.1
#: Scales where a release tells none: of a dense block, of n-grams, and of the slope.
DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE = 1.0, 3.0, 1.0
#: Examples that a fit over examples may have.
LARGEST = 2000
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
class Fit:
    """A fit.

    Attributes:
        full: The minimum of all of (1).
        calibrated: The vendor's direction with the user's own slope and bias.
        vendor: The vendor's own logits on the same examples, shape (n, C).
        scales: Every block's scale, and the slope's; empty where there was nothing to fit to.
        steps: Least squares problems that were solved.
        columns: Columns of each at most.
        flops: Floating-point operations of the products and factors that it took.
        state: What one more example is added to; None where it cannot be.
    """

    full: Candidate
    calibrated: Candidate
    vendor: Floats
    scales: tuple[float, ...] = ()
    steps: int = 0
    columns: int = 0
    flops: float = 0.0
    state: State | None = None

    def personal(self, trust: float) -> Candidate:
        """The model that goes this share of the way from the calibrated one to the full fit."""
        return self.calibrated.towards(self.full, trust)


@dataclass(frozen=True, eq=False)
class _Gaussian:
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


@dataclass(frozen=True, eq=False)
class State:
    """A minimum that can take one more example.

    Attributes:
        gaussian: The prior.
        problem: What was minimized.
        vendor: The vendor's logits of the same examples.
        point: Its minimum.
        solve: The inverse of the last exact fit's Hessian.
        fitted: How many examples that fit had.
    """

    gaussian: _Gaussian
    problem: Problem
    vendor: Floats
    point: Floats
    solve: Callable[[Floats], Floats]
    fitted: int

    def more(self, training: TrainingSet, replaced: Sequence[int] = ()) -> State:
        """The state with further examples, in the same coordinates.

        Args:
            training: The further examples; each has a label or a target.
            replaced: Examples of before that no longer count, by position.
        """
        prior, problem = self.gaussian, self.problem
        vendor = training.vendor_logits()
        new, old = _evidence(training, beside_labels=True), problem.evidence
        weights = np.array([old.label_weights, old.target_weights])
        weights[:, list(replaced)] = 0.0
        evidence = Evidence(
            np.vstack([old.labels, new.labels]),
            np.concatenate([weights[0], new.label_weights]),
            np.vstack([old.targets, new.targets]),
            np.concatenate([weights[1], new.target_weights]),
        )
        larger = Problem(
            problem.rows.stack(prior.rows(training)),
            np.vstack([problem.own, prior.own(vendor)]),
            np.vstack([problem.offset, prior.offset(training, vendor)]),
            evidence,
        )
        with one_blas_thread():
            point, _ = update(larger, self.point, self.solve)
        vendor = np.vstack([self.vendor, vendor])
        return State(prior, larger, vendor, point, self.solve, self.fitted)

    def candidates(self) -> tuple[Candidate, Candidate]:
        """The full model and the calibrated one; their logits are plain ones."""
        problem, prior = self.problem, self.gaussian
        parts = self.point.reshape(len(prior.bias), -1)
        full = prior.full(parts[:, :-1], parts[:, -1], problem.logits(self.point))
        with one_blas_thread():
            found = _calibrate(prior, self.vendor, problem.own, problem.evidence)
        return full, prior.calibrated(found, found.z)


def fit(training: TrainingSet, scales: Sequence[float] | None = None) -> Fit:
    """Fit to labels, and to targets where there is no label.

    Args:
        training: The user's examples; there may be none, and then the Gaussian alone answers.
        scales: A scale for every block, and one for the slope; None takes those that serve most
            people.
    """
    with one_blas_thread():
        return _fit(training, scales)


def _fit(training: TrainingSet, scales: Sequence[float] | None) -> Fit:
    vendor = training.vendor_logits()
    used = training.telling
    spaces, deviations = zip(*(whiten(block) for block in training.blocks), strict=True)
    # Who knows how people's biases differ has the say; the other blocks only have a habit.
    told = [
        deviation
        for block, deviation in zip(training.blocks, deviations, strict=True)
        if block.prior is not None
    ]
    *of_blocks, of_slope = default_scales(training.blocks) if scales is None else scales
    prior = _Gaussian(
        spaces,
        tuple(of_blocks),
        SLOPE_DEVIATION * float(np.sqrt(of_slope)),
        max(told or deviations),
        tuple(block.weight.astype(np.float64) for block in training.blocks),
        training.bias.astype(np.float64),
        vendor[used].mean(axis=0) if used.any() else np.zeros(len(training.bias)),
    )
    offset = prior.offset(training, vendor)
    if not used.any():
        zeros = np.zeros(len(training.bias))
        delta = np.zeros((len(zeros), sum(space.size for space in spaces) + 1))
        same = Candidate(prior.weights, prior.bias, vendor)
        return Fit(prior.full(delta, zeros, offset), same, vendor)
    evidence = _evidence(training, beside_labels=bool(training.labelled.any()))
    every = Problem(prior.rows(training), prior.own(vendor), offset, evidence)
    chosen = np.flatnonzero(used)
    problem = every if used.all() else every.take(chosen)
    found, columns = _minimum(problem)
    flops, judging, left_out = found.flops, found, found.left_out
    if len(chosen) > LARGEST:
        sample = np.sort(np.random.default_rng(0).permutation(len(chosen))[:LARGEST])
        judging, _ = _minimum(problem.take(sample))
        flops += judging.flops
        left_out = problem.logits(_point(judging))
        left_out[sample] = judging.left_out
    plain = _calibrate(prior, vendor[used], problem.own, problem.evidence)
    level = plain.left_out
    if len(chosen) < len(training):
        everywhere = every.logits(_point(judging))
        everywhere[used] = left_out
        left_out = everywhere
        level = _calibration(prior, vendor, every.own, evidence).logits(_point(plain))
        level[used] = plain.left_out
    full = prior.full(found.delta, found.own, left_out)
    # Further examples have embeddings of their own, not an earlier backbone's coordinates.
    state = None
    if all(getattr(block.inputs, "basis", None) is None for block in training.blocks):
        state = State(prior, problem, vendor[used], _point(found), found.solve, len(chosen))
    return Fit(
        full, prior.calibrated(plain, level), vendor, (*prior.scales, of_slope),
        found.steps + plain.steps, columns, flops + plain.flops, state,
    )  # fmt: skip


def _minimum(problem: Problem) -> tuple[Minimum, int]:
    """The minimum, by whatever is smallest, and over how many numbers."""
    rows, count = problem.rows, len(problem.offset)
    if isinstance(rows, JointRows) and rows.size <= count:
        written = rows.written()
        if written is not None:
            return minimize(problem.over(written)), rows.size + 1
    if count > LARGEST:
        return minimize_iteratively(problem), rows.size + 1
    several = problem.offset.shape[1] > 1
    gram = rows.gram()
    found = minimize_several(problem, gram) if several else minimize_dual(problem, gram)
    return found.costing(rows.gram_flops), count + 1


def _calibrate(prior: _Gaussian, vendor: Floats, own: Floats, evidence: Evidence) -> Minimum:
    """The minimum over a bias and a slope alone, which keeps the vendor's ranking."""
    problem = _calibration(prior, vendor, own, evidence)
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


def _calibration(prior: _Gaussian, vendor: Floats, own: Floats, evidence: Evidence) -> Problem:
    rows = DenseRows(np.full((len(vendor), 1), prior.deviation))
    return Problem(rows, own, vendor, evidence)


def _point(minimum: Minimum) -> Floats:
    return np.hstack([minimum.delta, minimum.own[:, None]]).ravel()


def default_scales(blocks: Sequence[Block]) -> tuple[float, ...]:
    """The scales of some blocks, and the slope's, where a release tells none."""
    lexical = [isinstance(block.inputs, SparseRows) for block in blocks]
    return (*(LEXICAL_SCALE if words else DENSE_SCALE for words in lexical), SLOPE_SCALE)


def _evidence(training: TrainingSet, *, beside_labels: bool) -> Evidence:
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
