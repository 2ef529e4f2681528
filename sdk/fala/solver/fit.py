"""The one fit of the device: a personal model over blocks of features and an earlier view.

    z = sum_k omega_k . x_k + a z_view + b,    (omega, a, b) ~ Normal(the vendor's, S)      (1)

Labels count as cross-entropy, old logits as squares where no label speaks. Every block's Gaussian
is multiplied by a scale that leave-one-out chooses; the view's and the bias's go with the first
block's, the backbone's. It is solved over as many numbers as there are
features or examples, whichever are fewer (primal or dual); where both are too many, by conjugate
gradients, and a sample of the examples stands in for all where each is left out.

With theta = omega / w the isotropic Gaussian is the paper's ridge (equation 1) with the penalty
P = diag(w^2), around theta = 1 instead of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
from fala.solver.rows import DenseRows, JointRows, Rows, scaled
from fala.solver.threads import one_blas_thread
from fala.solver.training import TrainingSet
from fala.solver.whitened import Whitened, whiten

#: The view's weight a before any evidence: its mean and standard deviation.
VIEW_WEIGHT, VIEW_DEVIATION = 0.4, 0.2
#: Multiples of a block's covariance that leave-one-out chooses among, and those of n-grams'.
SCALES = (0.3, 1.0, 3.0)
LEXICAL_SCALES = (0.0, 0.3, 1.0, 3.0, 10.0)
#: Examples that choose the scales at most, and those that a fit over examples may have.
SEARCHED, LARGEST = 600, 2000
#: Weight of an old logit beside labels: the square then curves as the cross-entropy of one label
#: does at an undecided document (1/4, against the square's 2), so each counts as much as the other.
LOGIT_WEIGHT = 1 / 8


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted personal model.

    Attributes:
        weights: omega of every block, shapes (C, d_k).
        bias: b, shape (C,).
        view: The view's weight a, shape (C,); None without one.
        left_out: Leave-one-out logits, shape (n, C); plain ones of what was not fitted to.
        vendor: The vendor's own logits on the same examples, shape (n, C).
        scales: The scale chosen for every block; empty where there was nothing to fit to.
        steps: Least squares problems that were solved.
        columns: Columns of each at most.
        flops: Floating-point operations of the products and factors that it took.
        state: What one more example is added to; None where all is fitted again at no cost.
    """

    weights: tuple[Floats, ...]
    bias: Floats
    view: Floats | None
    left_out: Floats
    vendor: Floats
    scales: tuple[float, ...] = ()
    steps: int = 0
    columns: int = 0
    flops: float = 0.0
    state: State | None = None


@dataclass(frozen=True, eq=False)
class State:
    """A minimum that can take one more example.

    Attributes:
        spaces: How the blocks' rows are made.
        scales: Their scales.
        deviation: The bias's standard deviation.
        weights: The vendor's omega of every block.
        vendor_bias: The vendor's b.
        problem: What was minimized.
        point: Its minimum.
        solve: The inverse of the last exact fit's Hessian.
        fitted: How many examples that fit had.
    """

    spaces: tuple[Whitened, ...]
    scales: tuple[float, ...]
    deviation: float
    weights: tuple[Floats, ...]
    vendor_bias: Floats
    problem: Problem
    point: Floats
    solve: Callable[[Floats], Floats]
    fitted: int

    def more(self, training: TrainingSet, replaced: Sequence[int] = ()) -> State:
        """The state with further examples, at the same scales; see ``refit``.

        Args:
            training: The further examples; each has a label or a target.
            replaced: Examples of before that no longer count, by position.
        """
        parts = [
            space.rows(block.inputs)
            for space, block in zip(self.spaces, training.blocks, strict=True)
        ]
        rows = scaled(parts, self.scales, self.deviation)
        own = np.sqrt(self.scales[0]) * _own(training)
        offset = _offset(self.spaces, training)
        new = _evidence(training, beside_labels=True)
        old = self.problem.evidence
        weights = np.array([old.label_weights, old.target_weights])
        weights[:, list(replaced)] = 0.0
        evidence = Evidence(
            np.vstack([old.labels, new.labels]),
            np.concatenate([weights[0], new.label_weights]),
            np.vstack([old.targets, new.targets]),
            np.concatenate([weights[1], new.target_weights]),
        )
        problem = Problem(
            self.problem.rows.stack(rows),
            np.vstack([self.problem.own, own]),
            np.vstack([self.problem.offset, offset]),
            evidence,
        )
        with one_blas_thread():
            point, _ = update(problem, self.point, self.solve)
        return State(
            self.spaces, self.scales, self.deviation, self.weights, self.vendor_bias,
            problem, point, self.solve, self.fitted,
        )  # fmt: skip

    def model(self, *, view: bool) -> tuple[tuple[Floats, ...], Floats, Floats | None]:
        """Weights by block, bias, and the view's weight where there is one; see ``Fit``."""
        parts = self.point.reshape(self.problem.offset.shape[1], -1)
        weights, bias = _lift(
            self.spaces, self.scales, self.deviation, self.weights, self.vendor_bias, parts[:, :-1]
        )
        deviation = np.sqrt(self.scales[0]) * VIEW_DEVIATION
        return weights, bias, VIEW_WEIGHT + deviation * parts[:, -1] if view else None


def fit(training: TrainingSet, scales: Sequence[float] | None = None) -> Fit:
    """Fit (omega, a, b) to labels, and to targets where there is no label.

    Args:
        training: The user's examples; there may be none, and then the Gaussian alone answers.
        scales: A scale for every block, instead of those that leave-one-out would choose.
    """
    with one_blas_thread():
        return _fit(training, scales)


def _fit(training: TrainingSet, given: Sequence[float] | None) -> Fit:
    vendor = training.vendor_logits()
    spaces, deviations = zip(*(whiten(block) for block in training.blocks), strict=True)
    deviation = max(deviations)
    plain = _offset(spaces, training)
    used = training.telling
    weights = tuple(block.weight.astype(np.float64) for block in training.blocks)
    bias = training.bias.astype(np.float64)
    classes = len(bias)
    if not used.any():
        parts = np.zeros((classes, sum(space.size for space in spaces) + 1))
        moved = _lift(spaces, [1.0] * len(spaces), deviation, weights, bias, parts)
        view = None if training.view is None else np.full(classes, VIEW_WEIGHT)
        return Fit(*moved, view, plain, vendor)
    rows = [space.rows(block.inputs) for space, block in zip(spaces, training.blocks, strict=True)]
    own = _own(training)
    evidence = _evidence(training, beside_labels=bool(training.labelled.any()))
    every = _Minimizer(rows, deviation, own, plain, evidence)
    telling = every if used.all() else every.take(np.flatnonzero(used))
    chosen = telling.choose() if given is None else tuple(given)
    minimum = telling.at(chosen)
    moved_weights, moved_bias = _lift(spaces, chosen, deviation, weights, bias, minimum.delta)
    view_weight = None
    if training.view is not None:
        view_weight = VIEW_WEIGHT + np.sqrt(chosen[0]) * VIEW_DEVIATION * minimum.own
    left_out, judged = minimum.left_out, minimum
    if len(telling) > LARGEST:
        positions = _sample(len(telling), LARGEST)
        sample = telling.take(positions)
        judged = sample.at(chosen)
        telling.flops += sample.flops
        left_out = telling.logits(chosen, judged)
        left_out[positions] = judged.left_out
    if telling is not every:
        everywhere = every.logits(chosen, judged)
        everywhere[used] = left_out
        left_out = everywhere
    point = np.hstack([minimum.delta, minimum.own[:, None]]).ravel()
    # Further examples have embeddings of their own, not an earlier backbone's coordinates.
    own_inputs = all(getattr(block.inputs, "basis", None) is None for block in training.blocks)
    state = None if not own_inputs else State(
        tuple(spaces), chosen, deviation, weights, bias, telling.problem(chosen), point,
        minimum.solve, len(telling),
    )  # fmt: skip
    return Fit(
        moved_weights, moved_bias, view_weight, left_out, vendor, chosen,
        telling.steps, telling.columns, telling.flops, state,
    )  # fmt: skip


class _Minimizer:
    """Minima at several scales, and the scales that leave out best."""

    def __init__(
        self,
        parts: Sequence[Rows],
        deviation: float,
        own: Floats,
        offset: Floats,
        evidence: Evidence,
    ) -> None:
        self._parts, self._deviation = parts, deviation
        self._own, self._offset, self._evidence = own, offset, evidence
        self._grams: list[Floats] = []
        self._found: dict[tuple[float, ...], Minimum] = {}
        self._last: tuple[tuple[float, ...], Minimum] | None = None
        self.steps, self.flops = 0, 0.0
        size = sum(part.size for part in parts) + 1
        self._written = size <= len(own) and all(isinstance(part, DenseRows) for part in parts)
        self.columns = min(len(own), size) + 1

    def __len__(self) -> int:
        return len(self._own)

    def take(self, positions: NDArray[np.integer]) -> _Minimizer:
        """The same of some examples, by position."""
        return _Minimizer(
            [part.take(positions) for part in self._parts], self._deviation,
            self._own[positions], self._offset[positions], self._evidence.take(positions),
        )  # fmt: skip

    def problem(self, scales: Sequence[float]) -> Problem:
        """J at some scales."""
        rows = scaled(self._parts, scales, self._deviation)
        return Problem(rows, np.sqrt(scales[0]) * self._own, self._offset, self._evidence)

    def logits(self, scales: Sequence[float], minimum: Minimum) -> Floats:
        """What a minimum of some of the examples says of all, shape (n, C)."""
        return self.problem(scales).logits(np.hstack([minimum.delta, minimum.own[:, None]]).ravel())

    def at(self, scales: tuple[float, ...]) -> Minimum:
        """The minimum at some scales."""
        if scales not in self._found:
            minimum = self._minimize(scales)
            self.steps += minimum.steps
            self.flops += minimum.flops
            self._found[scales] = minimum
            self._last = scales, minimum
        return self._found[scales]

    def choose(self) -> tuple[float, ...]:
        """The scales with the least leave-one-out loss, one block after the other."""
        if not self._written and len(self) > SEARCHED:
            sample = self.take(_sample(len(self), SEARCHED))
            chosen = sample.choose()
            self.steps += sample.steps
            self.flops += sample.flops
            return chosen
        best = (1.0,) * len(self._parts)
        for block, part in enumerate(self._parts):
            grid = SCALES if isinstance(part, DenseRows) else LEXICAL_SCALES
            tried = [(*best[:block], scale, *best[block + 1 :]) for scale in grid]
            losses = [self._evidence.loss(self.at(scales).left_out) for scales in tried]
            # Losses that differ by rounding alone are equal: the smaller scale is the safer one.
            least = min(losses) * (1 + 1e-9)
            best = next(s for s, loss in zip(tried, losses, strict=True) if loss <= least)
        return best

    def _minimize(self, scales: tuple[float, ...]) -> Minimum:
        problem = self.problem(scales)
        if self._written and isinstance(problem.rows, JointRows):
            written = replace(problem, rows=problem.rows.written())
            return minimize(written, self._start(scales))
        if len(self) > LARGEST:
            return minimize_iteratively(problem)
        gram = self._gram(scales)
        if self._offset.shape[1] > 1:
            return minimize_several(problem, gram)
        return minimize_dual(problem, gram, None if self._last is None else self._last[1].z)

    def _gram(self, scales: Sequence[float]) -> Floats:
        """The Gram matrix of all blocks' rows at some scales, shape (n, n)."""
        if not self._grams:
            self._grams = [part.gram() for part in self._parts]
            self.flops += sum(part.gram_flops for part in self._parts)
        total = np.full((len(self), len(self)), scales[0] * self._deviation**2)
        for scale, gram in zip(scales, self._grams, strict=True):
            if scale:
                total += scale * gram
        return total

    def _start(self, scales: tuple[float, ...]) -> Floats | None:
        """The last minimum's model, in the numbers of other scales."""
        if self._last is None:
            return None
        before, minimum = self._last
        ratio = np.sqrt(np.array(before) / np.array(scales))
        repeated = np.repeat([*ratio, ratio[0]], [*(part.size for part in self._parts), 1])
        return np.hstack([minimum.delta * repeated, ratio[0] * minimum.own[:, None]]).ravel()


def _sample(count: int, size: int) -> NDArray[np.int64]:
    """Positions of some of many examples, in order; the same every time."""
    return np.sort(np.random.default_rng(0).permutation(count)[:size])


def _offset(spaces: Sequence[Whitened], training: TrainingSet) -> Floats:
    """Logits where all numbers are 0, shape (n, C)."""
    parts = [
        space.offset(block.inputs)[:, None]
        for space, block in zip(spaces, training.blocks, strict=True)
    ]
    view = 0.0 if training.view is None else VIEW_WEIGHT * training.view
    return np.asarray(training.vendor_logits() + sum(parts) + view, dtype=np.float64)


def _own(training: TrainingSet) -> Floats:
    if training.view is None:
        return np.zeros(training.labels.shape)
    return VIEW_DEVIATION * training.view


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


def _lift(
    spaces: Sequence[Whitened],
    scales: Sequence[float],
    deviation: float,
    weights: Sequence[Floats],
    vendor_bias: Floats,
    delta: Floats,
) -> tuple[tuple[Floats, ...], Floats]:
    """Weights by block and the bias, of whitened numbers (C, p)."""
    moved = [weight.copy() for weight in weights]
    bias = vendor_bias + np.sqrt(scales[0]) * deviation * delta[:, -1]
    for index in range(len(vendor_bias)):
        start = 0
        for block, (space, scale) in enumerate(zip(spaces, scales, strict=True)):
            part = delta[index, start : start + space.size]
            omega, share = space.lift(np.sqrt(scale) * part)
            moved[block][index] += omega
            bias[index] += share
            start += space.size
    return tuple(moved), bias
