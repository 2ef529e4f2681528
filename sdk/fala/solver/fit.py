"""The one fit of the device: a personal model over blocks of features and an earlier view.

    z = sum_k omega_k . x_k + a z_view + b,    (omega, a, b) ~ Normal(the vendor's, S)      (1)

Labels count as cross-entropy, old logits as squares where no label speaks. Every block's Gaussian
is multiplied by a scale that leave-one-out chooses; the view's and the bias's go with the first
block's, the backbone's. It is solved over as many numbers as there are
features or examples, whichever are fewer (primal or dual).

With theta = omega / w the isotropic Gaussian is the paper's ridge (equation 1) with the penalty
P = diag(w^2), around theta = 1 instead of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fala.model.losses import Floats
from fala.solver.newton import Evidence, Minimum, Problem, minimize, update
from fala.solver.threads import one_blas_thread
from fala.solver.training import TrainingSet
from fala.solver.whitened import Whitened, whiten
from fala.solver.whitening import product

#: The view's weight a before any evidence: its mean and standard deviation.
VIEW_WEIGHT, VIEW_DEVIATION = 0.4, 0.2
#: Multiples of a block's covariance that leave-one-out chooses among.
SCALES = (0.3, 1.0, 3.0)
#: Weight of an old logit beside labels: the square then curves as the cross-entropy of one label
#: does at an undecided document (1/4, against the square's 2), so each counts as much as the other.
LOGIT_WEIGHT = 1 / 8

# Eigenvalues of a Gram matrix below this share of the largest are rounding.
_RANK = 1e-13


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
        rows = _stack(self.spaces, self.scales, self.deviation, training)
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
            np.vstack([self.problem.rows, rows]),
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
        parts = np.zeros((classes, sum(_size(space) for space in spaces) + 1))
        moved = _lift(spaces, [1.0] * len(spaces), deviation, weights, bias, parts)
        view = None if training.view is None else np.full(classes, VIEW_WEIGHT)
        return Fit(*moved, view, plain, vendor)
    blocks = [
        space.rows(block.inputs)[used] for space, block in zip(spaces, training.blocks, strict=True)
    ]
    own = _own(training)[used]
    evidence = _evidence(training, beside_labels=bool(training.labelled.any()), chosen=used)
    search = _Search(blocks, deviation, own, plain[used], evidence)
    chosen = search.choose(given)
    minimum, lifted = search.at(chosen)
    delta = lifted(minimum.delta)
    moved_weights, moved_bias = _lift(spaces, chosen, deviation, weights, bias, delta)
    view_weight = None
    if training.view is not None:
        view_weight = VIEW_WEIGHT + np.sqrt(chosen[0]) * VIEW_DEVIATION * minimum.own
    left_out = plain.copy()
    rest = np.flatnonzero(~used)
    if len(rest):
        rows = _stack(spaces, chosen, deviation, training)[rest]
        left_out[rest] += product(rows, np.ascontiguousarray(delta.T))
        left_out[rest] += np.sqrt(chosen[0]) * _own(training)[rest] * minimum.own
    left_out[used] = minimum.left_out
    state = None
    if not search.dual and all(space.turn is None for space in spaces):
        point = np.hstack([delta, minimum.own[:, None]]).ravel()
        problem = Problem(search.rows(chosen), np.sqrt(chosen[0]) * own, plain[used], evidence)
        state = State(
            spaces, chosen, deviation, weights, bias, problem, point, minimum.solve, len(own)
        )
    return Fit(
        moved_weights, moved_bias, view_weight, left_out, vendor, chosen,
        search.steps, search.columns, state,
    )  # fmt: skip


class _Search:
    """Minima at several scales, and the scales that leave out best."""

    def __init__(
        self,
        blocks: Sequence[Floats],
        deviation: float,
        own: Floats,
        offset: Floats,
        evidence: Evidence,
    ) -> None:
        self._blocks, self._deviation = blocks, deviation
        self._own, self._offset, self._evidence = own, offset, evidence
        self._found: dict[tuple[float, ...], tuple[Minimum, Callable[[Floats], Floats]]] = {}
        self._last: tuple[tuple[float, ...], Minimum] | None = None
        self.steps = 0
        size = sum(block.shape[1] for block in blocks) + 1
        self.dual = len(own) < size
        self.columns = min(len(own), size) + 1

    def rows(self, scales: Sequence[float]) -> Floats:
        """All blocks' rows at some scales, and the bias's, shape (n, p)."""
        parts = [np.sqrt(s) * rows for s, rows in zip(scales, self._blocks, strict=True)]
        deviation = np.sqrt(scales[0]) * self._deviation
        return np.hstack([*parts, np.full((len(self._own), 1), deviation)])

    def at(self, scales: tuple[float, ...]) -> tuple[Minimum, Callable[[Floats], Floats]]:
        """The minimum at some scales, and what takes its numbers to those of the rows."""
        if scales not in self._found:
            rows = self.rows(scales)
            lift: Callable[[Floats], Floats] = _same
            if self.dual:
                rows, lift = _reduced(rows)
            start = None if self.dual else self._start(scales)
            own = np.sqrt(scales[0]) * self._own
            problem = Problem(rows, own, self._offset, self._evidence)
            minimum = minimize(problem, start)
            self.steps += minimum.steps
            self._found[scales] = minimum, lift
            self._last = scales, minimum
        return self._found[scales]

    def choose(self, given: Sequence[float] | None) -> tuple[float, ...]:
        """The scales with the least leave-one-out loss, one block after the other."""
        if given is not None:
            return tuple(given)
        best = (1.0,) * len(self._blocks)
        for block in range(len(self._blocks)):
            tried = [(*best[:block], scale, *best[block + 1 :]) for scale in SCALES]
            losses = [self._evidence.loss(self.at(scales)[0].left_out) for scales in tried]
            # Losses that differ by rounding alone are equal: the smaller scale is the safer one.
            least = min(losses) * (1 + 1e-9)
            best = next(s for s, loss in zip(tried, losses, strict=True) if loss <= least)
        return best

    def _start(self, scales: tuple[float, ...]) -> Floats | None:
        """The last minimum's model, in the numbers of other scales."""
        if self._last is None:
            return None
        before, minimum = self._last
        ratio = np.sqrt(np.array(before) / np.array(scales))
        repeated = np.repeat([*ratio, ratio[0]], [*(b.shape[1] for b in self._blocks), 1])
        return np.hstack([minimum.delta * repeated, ratio[0] * minimum.own[:, None]]).ravel()


def _reduced(rows: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Rows (n, r), r <= n, of the same Gram matrix, and the way back: the dual."""
    gram = scipy.linalg.blas.dsyrk(1.0, rows.T, trans=1, lower=1)
    values, vectors, _ = scipy.linalg.lapack.dsyevd(gram, lower=1, overwrite_a=1)
    kept = values > _RANK * max(float(values[-1]), np.finfo(np.float64).tiny)
    values, vectors = values[kept], np.ascontiguousarray(vectors[:, kept])
    back = vectors / np.sqrt(values)
    return vectors * np.sqrt(values), lambda delta: (rows.T @ (back @ delta.T)).T


def _same(delta: Floats) -> Floats:
    return delta


def _size(space: Whitened) -> int:
    return len(space.root if space.turn is None else space.turn) + len(space.factors)


def _stack(
    spaces: Sequence[Whitened], scales: Sequence[float], deviation: float, training: TrainingSet
) -> Floats:
    parts = [
        np.sqrt(scale) * space.rows(block.inputs)
        for scale, space, block in zip(scales, spaces, training.blocks, strict=True)
    ]
    return np.hstack([*parts, np.full((len(training), 1), np.sqrt(scales[0]) * deviation)])


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


def _evidence(
    training: TrainingSet, *, beside_labels: bool, chosen: slice | NDArray[np.bool_] = slice(None)
) -> Evidence:
    labels, targets = training.labels[chosen], training.targets[chosen]
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
            part = delta[index, start : start + _size(space)]
            omega, share = space.lift(np.sqrt(scale) * part)
            moved[block][index] += omega
            bias[index] += share
            start += _size(space)
    return tuple(moved), bias
