"""The one fit of the device: a personal model over blocks of features.

    z = sum_k omega_k . x_k + b + a (z_vendor - mean z_vendor),
    (omega, b, a) ~ Normal((w, the vendor's b, 0), S)                                       (1)

Labels count by their cross-entropy, and ratings by half squares divided by the square of their
noise. Old logits count as weighted squares where there is no label (``evidence_of``). Every
variance of the Gaussian is multiplied by a scale that was chosen on simulated users.
``fala.solver.newton`` states the objective, with the half in front of the Gaussian's term.

Two models are fitted: the minimum of (1), and the minimum of (1) with omega = w, for which the
labels determine only the slope and the bias of the vendor's logit (Platt, 1999). The active model
is an interpolation of the two (``fala.solver.decision``).

With theta = omega / w, an isotropic Gaussian is the paper's ridge (equation 1) with a multiple of
the penalty P = diag(w^2), around theta = 1 instead of 0.

Examples are added to a fit, and labels changed, by Newton's method from its minimum (``State``). If
there are more than ``LARGEST`` other examples, their part of the objective is nearly a quadratic at
the minimum, so a few examples are added in its metric, without a pass over the others. If more than
``LARGEST`` examples have n-grams, a sample of them is fitted for the leave-one-out logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.base.threads import one_blas_thread
from fala.model.links import PerTag
from fala.model.scales import Scales, scales_at
from fala.solver.design import DenseRows, GramRows, JointRows
from fala.solver.gaussian import Candidate, Gaussian, calibrate, evidence_of, gaussian_around
from fala.solver.minimum import LARGEST, FitCost, Minimum, minimize, shortest
from fala.solver.newton import Evidence, Problem, newton
from fala.solver.training import Block, TrainingSet
from fala.text.sparse_rows import SparseRows

#: Default scales of a dense block, of n-grams, of the slope and of the bias. They have the least
#: mean loss over people of six data sets who are in no table (``device_sim/results/README.md``).
DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE, BIAS_SCALE = 0.5, 1.0, 0.5, 0.7
#: The number of labels from which on large differences between people are more than noise, and the
#: first three scales from there on.
MANY, WIDER = 100, (1.0, 3.0, 1.0)
# The least mixing weight by which a model's distance from the recalibrated one is divided.
_LEAST_TRUST = 0.25
# The most examples that are added in the metric of the minimum: at once, and in total as a share of
# the minimum's examples.
_TOGETHER, _FEW = 32, 0.01


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit.

    Attributes:
        full: The minimum of (1).
        calibrated: The recalibrated model: the vendor's direction with the user's slope and bias.
        vendor: The vendor's logits on the same examples, shape (n, C).
        scales: The scales of the Gaussian.
        count: The number of examples with a label or a target.
        state: The state to which further examples are added; None without evidence.
    """

    full: Candidate
    calibrated: Candidate
    vendor: Floats
    scales: Scales
    count: int = 0
    state: State | None = None

    @property
    def work(self) -> FitCost | None:
        """The cost of the full fit; None without evidence."""
        return None if self.state is None else self.state.minimum.work

    def personal(self, mixing: PerTag) -> Candidate:
        """Return the interpolation, by a share, from the recalibrated model to the full fit."""
        return self.calibrated.towards(self.full, mixing)


@one_blas_thread()
def fit(training: TrainingSet, scales: Scales | None = None, *, left_out_only: bool = False) -> Fit:
    """Fit to labels, and to targets where there is no label.

    Args:
        training: The user's examples; without any, the result is the Gaussian's mean.
        scales: The scales of the Gaussian; None takes the defaults for the number of labels.
        left_out_only: Whether only the leave-one-out logits are needed. If more than ``LARGEST``
            examples have n-grams, the model is then that of the sample.
    """
    vendor = training.vendor_logits()
    if scales is None:
        scales = scales_for((), training)
    prior = gaussian_around(training, vendor, scales)
    beside_labels = bool(training.labelled.any())
    chosen = np.flatnonzero(training.used)
    if not len(chosen):
        return Fit(*(2 * (Candidate(prior.weights, prior.bias, vendor),)), vendor, scales)

    def problem_of(positions: NDArray[np.integer]) -> Problem:
        used = training if len(positions) == len(training) else training.take(positions)
        evidence = evidence_of(used, beside_labels=beside_labels)
        return prior.problem(shortest(prior.rows(used)), vendor[positions], evidence)

    def left_out_by(
        model: Candidate, positions: NDArray[np.integer], left_out: Floats
    ) -> Candidate:
        if len(positions) < len(training):  # examples that were not fitted have the plain logits
            logits = training.logits(model.weights, model.bias)
            logits[positions], left_out = left_out, logits
        return replace(model, left_out=left_out)

    problem = every = problem_of(chosen)
    sample = chosen
    if isinstance(every.rows, JointRows):
        drawn = np.random.default_rng(0).permutation(len(chosen))[:LARGEST]
        sample = chosen[np.sort(drawn)]
        problem = problem_of(sample)
    minimum = minimize(problem)
    full = left_out_by(prior.model(minimum.lifted), sample, minimum.left_out)
    point, plain = calibrate(prior, vendor[chosen], every.evidence)
    calibrated = left_out_by(prior.model(point), chosen, plain.left_out)
    if problem is not every and not left_out_only:
        problem, sample, minimum = every, chosen, minimize(every, minimum.lifted)
        full = replace(prior.model(minimum.lifted), left_out=full.left_out)
    state = State(prior, vendor[sample], problem.evidence, minimum, point)
    return Fit(full, calibrated, vendor, scales, len(chosen), state)


@dataclass(frozen=True, eq=False)
class State:
    """A minimum with its evidence, from which the minimum with further examples is found.

    Attributes:
        gaussian: The prior.
        vendor: The vendor's logits of all rows, shape (n, C).
        evidence: The evidence of all rows, of which those that were replaced no longer count.
        minimum: The minimum over the first rows.
        plain: The recalibrated model's point.
        added: The further rows, which were added in the minimum's metric; None without any.
        point: The point with the added and without the replaced examples; None without any.
    """

    gaussian: Gaussian
    vendor: Floats
    evidence: Evidence
    minimum: Minimum
    plain: Floats
    added: JointRows | None = None
    point: Floats | None = None

    @classmethod
    @one_blas_thread()
    def of_model(
        cls, training: TrainingSet, scales: Scales, logits: Floats, mixing: PerTag
    ) -> State:
        """Return the state of a model that was fitted earlier, found from its logits.

        At the minimum, delta is -R' times the gradient of the data terms by the logits. This
        minimization starts there.

        Args:
            training: The examples of that fit, and perhaps a few others.
            scales: The scales of that fit.
            logits: The model's logits of the examples, shape (n, C).
            mixing: The mixing weight, the model's share of the full fit; see ``Fit.personal``.
        """
        vendor = training.vendor_logits()
        gaussian = gaussian_around(training, vendor, scales)
        chosen = np.flatnonzero(training.used)
        used, own = training.take(chosen), vendor[chosen]
        evidence = evidence_of(used, beside_labels=bool(training.labelled.any()))
        problem = gaussian.problem(shortest(gaussian.rows(used)), own, evidence)
        point, plain = calibrate(gaussian, own, evidence)
        shares = np.asarray(mixing, dtype=np.float64)
        # The model is between the calibrated one and the full fit.
        full = plain.z + (logits[chosen] - plain.z) / np.maximum(shares, _LEAST_TRUST)
        start = -problem.gather(evidence.gradient(full, evidence.mean(full)))
        return cls(gaussian, own, evidence, minimize(problem, start), point)

    @one_blas_thread()
    def more(self, training: TrainingSet, replaced: Sequence[int | None] = ()) -> State:
        """Return the state with further examples, in the same coordinates.

        Args:
            training: The further examples; each has a label or a target.
            replaced: The position of each example's earlier row, which no longer counts; None for a
                new example.
        """
        evidence, vendor = evidence_of(training, beside_labels=True), training.vendor_logits()
        rows, gone = self.gaussian.rows(training), [row for row in replaced if row is not None]
        added = rows if self.added is None else self.added.stack(rows)
        state = replace(
            self, vendor=np.vstack([self.vendor, vendor]), added=added,
            evidence=self.evidence.without(gone).stack(evidence),
        )  # fmt: skip
        count = len(self.minimum.rows)
        few = len(rows) <= _TOGETHER and state.count <= (1 + _FEW) * count
        if few and count > LARGEST and isinstance(self.minimum.rows, DenseRows):
            new = self.gaussian.problem(rows, vendor, evidence)
            return replace(state, point=self._beside(new, replaced))
        return state._minimized(added)

    def _minimized(self, added: JointRows) -> State:
        """Return the state at the minimum of all examples, given the added rows."""
        rows: Any = self.minimum.rows
        rows = rows.stack(added.written() if isinstance(rows, DenseRows) else added)
        problem = self.gaussian.problem(rows, self.vendor, self.evidence)
        start = self.minimum.point if self.point is None else self.point
        many = len(self.minimum.rows) > LARGEST and not isinstance(rows, GramRows)
        minimum = minimize(problem, start, self.minimum.inverses if many else ())
        plain, _ = calibrate(self.gaussian, self.vendor, self.evidence, self.plain)
        return State(self.gaussian, self.vendor, self.evidence, minimum, plain)

    def _beside(self, new: Problem, replaced: Sequence[int | None]) -> Floats:
        """Return the point with a few examples, in the metric of the minimum.

        At the minimum the other examples' J is nearly a quadratic with the Hessian H (Laplace's
        approximation). In its metric the new rows have the Gram matrix R H^-1 R', which leaves a
        problem over these rows alone. For a changed label the new one is added and the old one is
        taken away. The slopes are held.
        """
        at = [*range(len(new.rows)), *(k for k, row in enumerate(replaced) if row is not None)]
        gone = np.array([row for row in replaced if row is not None], dtype=np.intp)
        evidence = new.evidence.stack(self.evidence.take(gone).negated())
        point = self.minimum.point if self.point is None else self.point
        z = new.logits(point)[at]
        small = Problem(GramRows(np.empty((0, 0))), np.zeros_like(z), z, evidence)
        moved, start = point.copy(), 0
        for part, inverse in zip(small.separate(), self.minimum.inverses, strict=True):
            lifted = inverse(new.rows.gather(np.eye(len(new.rows))))
            gram = new.rows.times(lifted)[np.ix_(at, at)]
            metric = replace(part, rows=GramRows(gram))
            steps = newton(metric, metric.start, lambda _: np.copy)
            rows = slice(start, start + z.shape[1] // len(self.minimum.inverses))
            moved[rows, :-1] += steps.point[:, :-1] @ lifted[at]
            start = rows.stop
        return moved

    @property
    def count(self) -> int:
        """The number of rows, including replaced ones, because positions count all of them."""
        return len(self.vendor)

    @one_blas_thread()
    def model(self, mixing: PerTag) -> Candidate:
        """Return the interpolation from the recalibrated model to the full fit, without logits."""
        point = self.minimum.lifted if self.point is None else self.point
        return self.gaussian.model(self.plain).towards(self.gaussian.model(point), mixing)


def default_scales(blocks: Sequence[Block]) -> tuple[Scales, ...]:
    """Return the table of scales for some blocks if the release has none."""

    def row(dense: float, words: float, slope: float, labels: int) -> Scales:
        of_blocks = (words if isinstance(block.inputs, SparseRows) else dense for block in blocks)
        return Scales(tuple(of_blocks), slope, BIAS_SCALE, labels=labels)

    return row(DENSE_SCALE, LEXICAL_SCALE, SLOPE_SCALE, 0), row(*WIDER, MANY)


def scales_for(table: Sequence[Scales], training: TrainingSet) -> Scales:
    """Return the scales for a user's number of labels.

    A release's table ends where the public had too few annotators with as many labels. Above its
    last row the default rows are used, because that row is for users with far fewer labels.

    Args:
        table: The release's table, in ascending order of the number of labels; empty without one.
        training: The user's examples.
    """
    defaults = default_scales(training.blocks)
    above = [row for row in defaults if not table or row.labels > table[-1].labels]
    return scales_at([*table, *above], int(training.labelled.sum()))
