"""Compute leave-one-out losses of many devices' fits at any scales (prior variances).

Every scale multiplies a kernel, and kernels add, so one Gram matrix for each device and block
serves all scales. Devices with the same number of labels and one logit, or one logit per tag, are
minimized together as stacks of small matrices, by Newton's method over the examples (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1)

    B = 1 + W^1/2 K W^1/2,    alpha = b - W^1/2 B^-1 W^1/2 K b,    b = W K alpha - gradient

Labels are left out by one step from the minimum. Several logits that depend on one another need the
solver's folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.model.links import LABELS, Link
from fala.model.losses import Floats
from fala.model.scales import Scales
from fala.solver.design import GramRows
from fala.solver.gaussian import Gaussian, calibrate, evidence_of, gaussian_around
from fala.solver.minimum import minimize
from fala.solver.newton import Problem
from fala.solver.training import TrainingSet

# The minimum is reached when the next step would move logits by less than this share.
_TOLERANCE = 1e-6
_MOST_STEPS, _MOST_HALVINGS = 50, 40
# Smaller curvatures contribute nothing, and their inverse would lose all digits.
_LEAST_CURVATURE = 1e-9
# Larger triangles are inverted by halves.
_SMALL = 32


@dataclass(frozen=True, eq=False)
class _Device:
    """One device's leave-one-out logits at any scales, faster than with ``fit_device``.

    Attributes:
        gaussian: The prior with all scales equal to 1.
        vendor: The vendor's logits, shape (n, C).
        problem: The objective with all scales equal to 1, without its rows.
        grams: The Gram matrix of each of the k blocks' rows, shape (k, n, n), in float32.
    """

    gaussian: Gaussian
    vendor: Floats
    problem: Problem[GramRows]
    grams: NDArray[np.float32]

    @classmethod
    def of(cls, training: TrainingSet) -> _Device:
        """Prepare examples that all have a label."""
        vendor = training.vendor_logits()
        gaussian = gaussian_around(
            training, vendor, Scales((1.0,) * len(training.blocks), 1.0, 1.0)
        )
        evidence = evidence_of(training, beside_labels=True)
        problem = gaussian.problem(training, vendor, evidence)
        grams = [part.gram().astype(np.float32) for part in problem.rows.parts]
        nothing = GramRows(np.empty((0, 0)))
        return cls(gaussian, vendor, problem.over(nothing), np.stack(grams))

    def full(self, scales: Scales, near: Floats | None = None) -> tuple[Floats, Floats]:
        """Return the full fit's leave-one-out logits (n, C), and its minimum.

        Args:
            scales: The scales of the Gaussian.
            near: The point to start from, such as the minimum at other scales; None starts at 0.
        """
        gram = np.full(self.grams[0].shape, self.gaussian.deviation**2 * scales.bias)
        for block, scale in zip(self.grams, scales.blocks, strict=True):
            if scale:
                gram += scale * block
        problem = self.problem.over(GramRows(gram))
        column = np.sqrt(scales.slope) * problem.slope_column
        scaled = replace(problem, slope_column=column)
        minimum = minimize(scaled, near)
        return minimum.left_out, minimum.point

    def calibrated(self, scales: Scales) -> Floats:
        """Return the recalibrated model's leave-one-out logits (n, C)."""
        gaussian = replace(
            self.gaussian, slope=self.gaussian.slope * float(np.sqrt(scales.slope)),
            deviation=self.gaussian.deviation * float(np.sqrt(scales.bias)),
        )  # fmt: skip
        _, minimum = calibrate(gaussian, self.vendor, self.problem.evidence)
        return minimum.left_out


@dataclass(frozen=True, eq=False)
class Devices:
    """The fits of m devices with n labels each.

    Attributes:
        devices: The fit of each device.
        owners: The position of each device's person, (m,), in increasing order from 0.
        grams: The Gram matrices of k blocks, shape (k, m, n, n), in float32; None for several
            logits that depend on one another.
    """

    devices: Sequence[_Device]
    owners: NDArray[np.intp]
    grams: NDArray[np.float32] | None

    @classmethod
    def of(cls, people: Sequence[Sequence[TrainingSet]]) -> Devices:
        """Prepare the devices of some people, whose examples all have a label."""
        owners = np.repeat(np.arange(len(people)), [len(sets) for sets in people])
        devices = [_Device.of(training) for sets in people for training in sets]
        link, logits = devices[0].problem.evidence.link, devices[0].vendor.shape[1]
        if logits > 1 and link.kind != "tags":
            return cls(devices, owners, None)
        return cls(devices, owners, np.stack([device.grams for device in devices], axis=1))

    def losses(
        self, scales: Scales, shares: Sequence[float], starts: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return each person's mean leave-one-out loss at each mixing weight.

        Args:
            scales: The scales of the Gaussian.
            shares: The mixing weights: shares of the full fit, with the rest from the recalibrated
                model.
            starts: The minima at other scales; None starts at 0.

        Returns:
            The losses, shape (people, shares), and the minima.
        """
        full, minima = self._left_out(scales, starts)
        evidence = self.devices[0].problem.evidence
        labels = np.concatenate([device.problem.evidence.labels for device in self.devices])
        calibrated = full
        if set(shares) != {1.0}:
            calibrated = np.stack([device.calibrated(scales) for device in self.devices])
        counts, columns = np.bincount(self.owners), []
        for share in shares:
            mixed = calibrated + share * (full - calibrated)
            losses = evidence.link.losses(labels, mixed.reshape(labels.shape))
            of_devices = losses.reshape(len(self.devices), -1).mean(axis=1)
            columns.append(np.bincount(self.owners, of_devices) / counts)
        return np.column_stack(columns), minima

    def _left_out(self, scales: Scales, starts: Floats | None) -> tuple[Floats, Floats]:
        """Return the full fits' leave-one-out logits, (m, n, C), and their minima."""
        if self.grams is None:
            nears = [None] * len(self.devices) if starts is None else [*starts]
            pairs = [
                device.full(scales, near) for device, near in zip(self.devices, nears, strict=True)
            ]
            return np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
        problems = [device.problem for device in self.devices]
        kernels = np.zeros(self.grams.shape[1:])
        for grams, scale in zip(self.grams, scales.blocks, strict=True):
            if scale:
                kernels += scale * grams
        kernels += scales.bias * self.devices[0].gaussian.deviation ** 2
        slopes = np.sqrt(scales.slope) * np.stack([each.slope_column for each in problems])
        offsets = np.stack([problem.offset for problem in problems])
        labels = np.stack([problem.evidence.labels for problem in problems])
        link = LABELS if problems[0].evidence.link.kind == "tags" else problems[0].evidence.link
        left_out, minima = np.empty_like(offsets), np.empty(offsets.shape)
        for logit in range(offsets.shape[2]):
            column = slopes[..., logit]
            kernel = kernels + column[:, :, None] * column[:, None, :]
            start = None if starts is None else starts[..., logit]
            left_out[..., logit], minima[..., logit] = left_out_together(
                kernel, offsets[..., logit], labels[..., logit], link, start
            )
        return left_out, minima


def left_out_together(
    kernels: Floats, offsets: Floats, labels: Floats, link: Link, start: Floats | None = None
) -> tuple[Floats, Floats]:
    """Minimize m fits of n labels each, and leave out every label in turn.

    Args:
        kernels: Each fit's kernel K, shape (m, n, n).
        offsets: The logits at the prior's mean, shape (m, n).
        labels: The labels, shape (m, n).
        link: The meaning of one logit.
        start: Dual coefficients alpha to start from, shape (m, n); None starts at 0.

    Returns:
        The leave-one-out logits, and alpha at the minima, each of shape (m, n).
    """
    m, n = offsets.shape
    alpha = np.zeros((m, n)) if start is None else start.copy()
    move = _times(kernels, alpha)
    left_out = np.empty((m, n))
    rest = np.arange(m)  # These fits have not reached their minimum yet.
    for last in reversed(range(_MOST_STEPS)):
        kernel, offset, y, a, f = (each[rest] for each in (kernels, offsets, labels, alpha, move))
        mean = _mean(link, offset + f)
        gradient = link.residual(mean, y.reshape(-1, 1)).reshape(f.shape)
        weights = np.maximum(link.curvature(mean).reshape(f.shape), _LEAST_CURVATURE)
        root = np.sqrt(weights)
        system = root[:, :, None] * kernel * root[:, None, :]
        system[:, np.arange(n), np.arange(n)] += 1.0
        inverse = _inverse(np.asarray(np.linalg.cholesky(system)))
        b = weights * f - gradient
        solved = _times(inverse, root * _times(kernel, b))
        step = b - root * _times(inverse.swapaxes(1, 2), solved) - a
        moved = _times(kernel, step)
        share = _shares(link, offset + f, y, (a, f), (step, moved))[:, None]
        change = np.abs(moved * share).max(axis=1) / (1 + np.abs(offset + f).max(axis=1))
        done = (change <= _TOLERANCE) | (last == 0)
        diagonal = (inverse**2).sum(axis=1)[done]  # The diagonal is that of B^-1.
        leverage = (1 - diagonal) / weights[done]
        remaining = np.maximum(diagonal, np.finfo(np.float64).eps)
        left_out[rest[done]] = (offset + f)[done] + gradient[done] * leverage / remaining
        alpha[rest] += share * step
        move[rest] += share * moved
        rest = rest[~done]
        if not len(rest):
            break
    return left_out, alpha


def _mean(link: Link, z: Floats) -> Floats:
    return link.mean(z.reshape(-1, 1))


def _shares(
    link: Link,
    z: Floats,
    y: Floats,
    point: tuple[Floats, Floats],
    step: tuple[Floats, Floats],
) -> Floats:
    """Return the share of each step, halved until the objective does not rise, shape (m,)."""

    def value(share: Floats) -> Floats:
        a, f = (at + share[:, None] * by for at, by in zip(point, step, strict=True))
        logits = (z + share[:, None] * step[1]).reshape(-1, 1)
        losses = link.losses(y.reshape(-1, 1), logits).reshape(z.shape)
        return np.asarray(losses.sum(axis=1) + (a * f).sum(axis=1) / 2)

    share, before = np.ones(len(z)), value(np.zeros(len(z)))
    for _ in range(_MOST_HALVINGS):
        rises = value(share) > before + 1e-9 * (1 + np.abs(before))
        if not rises.any():
            break
        share[rises] /= 2
    return share


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply each matrix (m, p, n) by its vector, (m, n)."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _inverse(lower: Floats) -> Floats:
    """Invert each lower triangle, shape (m, n, n)."""
    n = lower.shape[-1]
    if n <= _SMALL:
        return np.asarray(np.linalg.inv(lower))
    half = n // 2
    result = np.zeros_like(lower)
    first, last = _inverse(lower[:, :half, :half]), _inverse(lower[:, half:, half:])
    result[:, :half, :half], result[:, half:, half:] = first, last
    result[:, half:, :half] = -last @ (lower[:, half:, :half] @ first)
    return result
