"""Compute held-out losses of many devices' fits at any scales (prior variances).

Every scale multiplies a kernel, and kernels add, so one Gram matrix for each device and block
serves all scales. Devices with the same number of labels and one logit, or one logit per tag, are
minimized together as stacks of small matrices, by Newton's method over the examples (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1)

    B = 1 + W^1/2 K W^1/2,    alpha = b - W^1/2 B^-1 W^1/2 K b,    b = W K alpha - gradient

An example that is not in the fit has the logit of its offset plus its row of the kernel times
alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.links import LABELS, Link
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


class Simulated(NamedTuple):
    """The examples of a simulated device.

    Attributes:
        training: The examples that it learns.
        scored: The examples on which it is scored.
    """

    training: TrainingSet
    scored: TrainingSet


@dataclass(frozen=True, eq=False)
class _Device:
    """One device's fit at any scales, faster than with ``fit_device``.

    Attributes:
        gaussian: The prior with all scales equal to 1, without its blocks, which the Gram matrices
            replace.
        vendor: The vendor's logits of the n training examples, shape (n, C).
        problem: The objective of the training examples with all scales equal to 1, without its
            rows.
        grams: The Gram matrix of each of the k blocks' training rows, shape (k, n, n), in float32.
        scored: The objective of the m scored examples, without its rows.
        crossed: The products of each block's scored rows with its training rows, (k, m, n), in
            float32.
    """

    gaussian: Gaussian
    vendor: Floats
    problem: Problem
    grams: NDArray[np.float32]
    scored: Problem
    crossed: NDArray[np.float32]

    @classmethod
    def of(cls, simulated: Simulated) -> _Device:
        """Prepare examples that all have a label."""
        training, scored = simulated
        vendor = training.vendor_logits()
        gaussian = gaussian_around(
            training, vendor, Scales((1.0,) * len(training.blocks), 1.0, 1.0)
        )
        nothing, count = GramRows(np.empty((0, 0))), len(training)
        problem, beside = (
            gaussian.problem(nothing, logits, evidence_of(each, beside_labels=True))
            for each, logits in ((training, vendor), (scored, scored.vendor_logits()))
        )
        stacked = gaussian.rows(training).stack(gaussian.rows(scored)).parts
        grams = np.stack([part.gram()[:, :count].astype(np.float32) for part in stacked])
        # A block of n-grams has a megabyte of numbers for each of hundreds of devices.
        gaussian = replace(gaussian, centres=(), roots=(), weights=())
        return cls(gaussian, vendor, problem, grams[:, :count], beside, grams[:, count:])

    def kernel(self, products: NDArray[np.float32], scales: Scales) -> Floats:
        """Return the kernel of the blocks and the bias, without the slope.

        Args:
            products: The products of each of the k blocks, shape (k, rows, n).
            scales: The scales of the Gaussian.
        """
        kernel = np.full(products.shape[1:], scales.bias * self.gaussian.deviation**2)
        for block, scale in zip(products, scales.blocks, strict=True):
            if scale:
                kernel += scale * block
        return kernel

    def minimum(self, scales: Scales, near: Floats | None = None) -> Floats:
        """Return the full fit's dual coefficients alpha, shape (n, C).

        Args:
            scales: The scales of the Gaussian.
            near: The coefficients to start from, such as those at other scales; None starts at 0.
        """
        problem = replace(
            self.problem, rows=GramRows(self.kernel(self.grams, scales)),
            slope_column=np.sqrt(scales.slope) * self.problem.slope_column,
        )  # fmt: skip
        start = None if near is None else problem.gather(near)
        return minimize(problem, start).point[:, :-1].T

    def calibrated(self, scales: Scales) -> Floats:
        """Return the recalibrated model's logits of the scored examples, (m, C)."""
        gaussian = replace(
            self.gaussian, slope=self.gaussian.slope * float(np.sqrt(scales.slope)),
            deviation=self.gaussian.deviation * float(np.sqrt(scales.bias)),
        )  # fmt: skip
        point, _ = calibrate(gaussian, self.vendor, self.problem.evidence)
        bias, slope = point.T
        column = np.sqrt(scales.slope) * self.scored.slope_column
        return np.asarray(self.scored.offset + gaussian.deviation * bias + column * slope)


@dataclass(frozen=True, eq=False)
class Devices:
    """The fits of d devices with n labels each, and m scored examples in all.

    Attributes:
        devices: The fit of each device.
        owners: The position of each device's person, (d,), in increasing order from 0.
        positions: The position of each scored example's device, (m,).
    """

    devices: Sequence[_Device]
    owners: NDArray[np.intp]
    positions: NDArray[np.intp]

    @classmethod
    def of(cls, people: Sequence[Sequence[Simulated]]) -> Devices:
        """Prepare the devices of some people, whose examples all have a label."""
        owners = np.repeat(np.arange(len(people)), [len(devices) for devices in people])
        devices = [_Device.of(simulated) for devices in people for simulated in devices]
        counts = [len(device.scored.offset) for device in devices]
        return cls(devices, owners, np.repeat(np.arange(len(devices)), counts))

    def losses(
        self, scales: Scales, shares: Sequence[float], starts: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return each person's mean loss on scored examples at each mixing weight.

        Args:
            scales: The scales of the Gaussian.
            shares: The mixing weights: shares of the full fit, with the rest from the recalibrated
                model.
            starts: The minima at other scales; None starts at 0.

        Returns:
            The losses, shape (people, shares), and the minima, (d, n, C).
        """
        alphas = self._minima(scales, starts)
        full = np.concatenate(
            [
                self._logits(device, scales, alpha)
                for device, alpha in zip(self.devices, alphas, strict=True)
            ]
        )
        calibrated = full
        if set(shares) != {1.0}:
            calibrated = np.concatenate([device.calibrated(scales) for device in self.devices])
        evidence = self.devices[0].scored.evidence
        labels = np.concatenate([device.scored.evidence.labels for device in self.devices])
        counts, devices, columns = np.bincount(self.positions), np.bincount(self.owners), []
        for share in shares:
            losses = evidence.link.losses(labels, calibrated + share * (full - calibrated))
            of_devices = np.bincount(self.positions, losses) / counts
            columns.append(np.bincount(self.owners, of_devices) / devices)
        return np.column_stack(columns), alphas

    @staticmethod
    def _logits(device: _Device, scales: Scales, alpha: Floats) -> Floats:
        """Return the full fit's logits of a device's scored examples, (m, C)."""
        kernel, scored = device.kernel(device.crossed, scales), device.scored
        slope = scales.slope * (device.problem.slope_column * alpha).sum(axis=0)
        return np.asarray(scored.offset + kernel @ alpha + scored.slope_column * slope)

    def _minima(self, scales: Scales, starts: Floats | None) -> Floats:
        """Return the full fits' dual coefficients, (d, n, C)."""
        problems = [device.problem for device in self.devices]
        link, logits = problems[0].evidence.link, problems[0].offset.shape[1]
        if logits > 1 and link.kind != "tags":
            nears = [None] * len(self.devices) if starts is None else [*starts]
            pairs = zip(self.devices, nears, strict=True)
            return np.stack([device.minimum(scales, near) for device, near in pairs])
        kernels = np.stack([device.kernel(device.grams, scales) for device in self.devices])
        slopes = np.sqrt(scales.slope) * np.stack([each.slope_column for each in problems])
        offsets = np.stack([problem.offset for problem in problems])
        labels = np.stack([problem.evidence.labels for problem in problems])
        link = LABELS if link.kind == "tags" else link
        minima = np.zeros(offsets.shape) if starts is None else starts.copy()
        for logit in range(logits):
            column = slopes[..., logit]
            kernel = kernels + column[:, :, None] * column[:, None, :]
            minima[..., logit] = minima_together(
                kernel, offsets[..., logit], labels[..., logit], link, minima[..., logit]
            )
        return minima


def minima_together(
    kernels: Floats, offsets: Floats, labels: Floats, link: Link, start: Floats
) -> Floats:
    """Minimize d fits of n labels each.

    Args:
        kernels: Each fit's kernel K, shape (d, n, n).
        offsets: The logits at the prior's mean, shape (d, n).
        labels: The labels, shape (d, n).
        link: The meaning of one logit.
        start: Dual coefficients alpha to start from, shape (d, n).

    Returns:
        The coefficients alpha at the minima, shape (d, n).
    """
    n = offsets.shape[1]
    alpha = start.copy()
    move = _times(kernels, alpha)
    rest = np.arange(len(offsets))  # These fits have not reached their minimum yet.
    for _ in range(_MOST_STEPS):
        kernel, offset, y, a, f = (each[rest] for each in (kernels, offsets, labels, alpha, move))
        mean = link.mean((offset + f).reshape(-1, 1))
        gradient = link.residual(mean, y.reshape(-1, 1)).reshape(f.shape)
        weights = np.maximum(link.curvature(mean).reshape(f.shape), _LEAST_CURVATURE)
        root = np.sqrt(weights)
        system = root[:, :, None] * kernel * root[:, None, :]
        system[:, np.arange(n), np.arange(n)] += 1.0
        b = weights * f - gradient
        solved = np.linalg.solve(system, (root * _times(kernel, b))[:, :, None])[:, :, 0]
        step = b - root * solved - a
        moved = _times(kernel, step)
        share = _shares(link, offset + f, y, (a, f), (step, moved))[:, None]
        change = np.abs(moved * share).max(axis=1) / (1 + np.abs(offset + f).max(axis=1))
        alpha[rest] += share * step
        move[rest] += share * moved
        rest = rest[change > _TOLERANCE]
        if not len(rest):
            break
    return alpha


def _shares(
    link: Link,
    z: Floats,
    y: Floats,
    point: tuple[Floats, Floats],
    step: tuple[Floats, Floats],
) -> Floats:
    """Return the share of each step, halved until the objective does not rise, shape (d,)."""

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
    """Multiply each matrix (d, p, n) by its vector, (d, n)."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])
