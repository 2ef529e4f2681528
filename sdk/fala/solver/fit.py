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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import JointRows
from fala.solver.dual import SINGLE, minimize_dual
from fala.solver.gaussian import Candidate, Gaussian, calibrate, calibration, evidence_of
from fala.solver.newton import (
    Minimum,
    Problem,
    minimize,
    minimize_iteratively,
    minimize_several,
    sketch,
)
from fala.solver.state import ExactState, QuadraticState, State
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, TrainingSet
from fala.solver.whitened import whiten
from fala.text.sparse_rows import SparseRows

#: Standard deviation of the slope a before any evidence.
SLOPE_DEVIATION = 0.5
#: Scales where a release tells none: of a dense block, of n-grams, and of the slope.
DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE = 1.0, 3.0, 1.0
#: Examples that a fit over examples may have.
LARGEST = 2000


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
        point: The minimum in whitened coordinates, shape (C (p + 1),); None where there was nothing
            to fit to.
    """

    full: Candidate
    calibrated: Candidate
    vendor: Floats
    scales: tuple[float, ...] = ()
    steps: int = 0
    columns: int = 0
    flops: float = 0.0
    state: State | None = None
    point: Floats | None = None

    def personal(self, trust: float) -> Candidate:
        """The model that goes this share of the way from the calibrated one to the full fit."""
        return self.calibrated.towards(self.full, trust)


def fit(
    training: TrainingSet, scales: Sequence[float] | None = None, near: Fit | None = None
) -> Fit:
    """Fit to labels, and to targets where there is no label.

    Args:
        training: The user's examples; there may be none, and then the Gaussian alone answers.
        scales: A scale for every block, and one for the slope; None takes those that serve most
            people.
        near: A fit to nearly the same examples, where very many begin.
    """
    with one_blas_thread():
        return _fit(training, scales, None if near is None else near.point)


def _fit(training: TrainingSet, scales: Sequence[float] | None, near: Floats | None) -> Fit:
    vendor = training.vendor_logits()
    used = training.telling
    scales = default_scales(training.blocks) if scales is None else scales
    prior = _around(training, vendor, scales)
    offset = prior.offset(training, vendor)
    if not used.any():
        zeros = np.zeros(len(training.bias))
        delta = np.zeros((len(zeros), sum(space.size for space in prior.spaces) + 1))
        same = Candidate(prior.weights, prior.bias, vendor)
        return Fit(prior.full(delta, zeros, offset), same, vendor)
    evidence = evidence_of(training, beside_labels=bool(training.labelled.any()))
    every = Problem(prior.rows(training), prior.own(vendor), offset, evidence)
    chosen = np.flatnonzero(used)
    problem = every if used.all() else every.take(chosen)
    written = _written(problem)
    found, columns = _minimum(problem, written, near)
    flops, judging, left_out, solve = found.flops, found, found.left_out, found.solve
    if len(chosen) > LARGEST and (written is None or len(training.bias) > 1):
        sample = np.sort(np.random.default_rng(0).permutation(len(chosen))[:LARGEST])
        solve = sketch(problem.take(sample), found.z[sample], len(chosen) / len(sample))
        if written is None:
            judging, _ = _minimum(problem.take(sample), None)
            flops += judging.flops
            left_out = problem.logits(_point(judging))
            left_out[sample] = judging.left_out
    plain = calibrate(prior, vendor[used], problem.own, problem.evidence)
    level = plain.left_out
    if len(chosen) < len(training):
        everywhere = every.logits(_point(judging))
        everywhere[used] = left_out
        left_out = everywhere
        level = calibration(prior, vendor, every.own, evidence).logits(_point(plain))
        level[used] = plain.left_out
    full = prior.full(found.delta, found.own, left_out)
    # Further examples have embeddings of their own, not an earlier backbone's coordinates.
    calibrated = prior.calibrated(plain, level)
    state: State | None = None
    if all(getattr(block.inputs, "basis", None) is None for block in training.blocks):
        point, count = _point(found), len(chosen)
        if count > LARGEST:
            state = QuadraticState(prior, problem.evidence, point, solve, calibrated, count)
        else:
            state = ExactState(prior, problem, vendor[used], point, solve, count)
    return Fit(
        full, calibrated, vendor, tuple(scales),
        found.steps + plain.steps, columns, flops + plain.flops, state, _point(found),
    )  # fmt: skip


def resume(
    training: TrainingSet, scales: Sequence[float], fitted: int, further: int
) -> QuadraticState:
    """Take further examples into a model that was fitted to many, of which few are read again.

    Args:
        training: A sample of them. The blocks' weights and the bias are not the vendor's here, but
            the model's own, from which it moves.
        scales: Those that it was fitted at.
        fitted: How many examples it was fitted to.
        further: How many were added since.
    """
    with one_blas_thread():
        z = training.vendor_logits()
        prior = _around(training, z, [*scales[:-1], 0.0])
        evidence = evidence_of(training, beside_labels=True)
        few = Problem(prior.rows(training), prior.own(z), z, evidence)
        point = np.zeros(len(training.bias) * (few.rows.size + 1))
        same = Candidate(prior.weights, prior.bias, z)
        solve = sketch(few, z, (fitted + further) / len(training))
        return QuadraticState(prior, evidence, point, solve, same, fitted, further)


def _around(training: TrainingSet, vendor: Floats, scales: Sequence[float]) -> Gaussian:
    """The Gaussian around the training set's model, whose logits are given."""
    spaces, deviations = zip(*(whiten(block) for block in training.blocks), strict=True)
    # Who knows how people's biases differ has the say; the other blocks only have a habit.
    told = [
        deviation
        for block, deviation in zip(training.blocks, deviations, strict=True)
        if block.prior is not None
    ]
    used = training.telling
    *of_blocks, of_slope = scales
    return Gaussian(
        spaces,
        tuple(of_blocks),
        SLOPE_DEVIATION * float(np.sqrt(of_slope)),
        max(told or deviations),
        tuple(block.weight.astype(np.float64) for block in training.blocks),
        training.bias.astype(np.float64),
        vendor[used].mean(axis=0) if used.any() else np.zeros(len(training.bias)),
    )


def _written(problem: Problem) -> Problem | None:
    """The problem with its rows written out; None where that is not what is smallest."""
    rows = problem.rows
    if not isinstance(rows, JointRows) or rows.size > len(rows):
        return None
    written = rows.written()
    return None if written is None else problem.over(written)


def _minimum(
    problem: Problem, written: Problem | None, near: Floats | None = None
) -> tuple[Minimum, int]:
    """The minimum, by whatever is smallest, and over how many numbers."""
    rows, count = problem.rows, len(problem.offset)
    if written is not None:
        return minimize(written), rows.size + 1
    if count > LARGEST:
        return minimize_iteratively(problem, near), rows.size + 1
    several = problem.offset.shape[1] > 1
    if several:
        found = minimize_several(problem, rows.gram())
    else:
        found = minimize_dual(problem, rows.gram(single=count > SINGLE))
    return found.costing(rows.gram_flops), count + 1


def _point(minimum: Minimum) -> Floats:
    return np.hstack([minimum.delta, minimum.own[:, None]]).ravel()


def default_scales(blocks: Sequence[Block]) -> tuple[float, ...]:
    """The scales of some blocks, and the slope's, where a release tells none."""
    lexical = [isinstance(block.inputs, SparseRows) for block in blocks]
    return (*(LEXICAL_SCALE if words else DENSE_SCALE for words in lexical), SLOPE_SCALE)
