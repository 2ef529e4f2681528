"""The choice of the prior with the least loss on held-out annotators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fala.model.links import Link
from fala.model.losses import Floats
from fala.model.prior import PopulationPrior
from fala.solver.gaussian import BIAS_DEVIATION
from fala_export.fitting.device_fit import BIAS_SCALE, DENSE_SCALE, one_blas_thread
from fala_export.fitting.population.annotators import Annotator, Annotators, Map
from fala_export.fitting.population.estimation import Gaussian, estimate, find_mode, isotropic

FOLDS = 5
#: Number of estimates in ``choose_prior``: without the annotators of each fold, and of all.
ESTIMATES = FOLDS + 1

_ISOTROPIC = (0.1, 0.3, 1.0, 3.0, 10.0)
# With few rows an annotator EM overestimates the spread of the weights, but not of the bias.
_ESTIMATED = (0.25, 0.5, 1.0, 2.0)
_DIRECTIONS = (0, 5, 20)
_LEAST = 1e-4  # least diagonal variance of a coordinate, as a share of its variance
_DIGITS = 6


@dataclass(frozen=True)
class Candidate:
    """A way to make a prior from annotators.

    Attributes:
        directions: k, the number of leading directions; None is the isotropic prior.
        factor: Factor of the weights' covariance; the bias's does not change.
    """

    directions: int | None
    factor: float

    def __str__(self) -> str:
        kind = "isotropic" if self.directions is None else f"{self.directions} directions"
        return f"{kind} x {self.factor:g}"

    def prior(self, start: Gaussian, fitted: Gaussian) -> PopulationPrior:
        """The prior from the isotropic start and the fit that started there."""
        if self.directions is None:
            return cut(start, 0, self.factor)
        return cut(fitted, self.directions, self.factor)


CANDIDATES = (
    *(Candidate(None, factor) for factor in _ISOTROPIC),
    *(Candidate(k, factor) for k in _DIRECTIONS for factor in _ESTIMATED),
)


@dataclass(frozen=True)
class Fold:
    """Candidates estimated without some annotators.

    Attributes:
        priors: Priors by candidate.
        losses: Mean losses of these annotators' rows, by candidate, in nats.
        vendor: The same for the vendor's head alone.
        devices: The same for the devices' default prior.
    """

    priors: dict[Candidate, PopulationPrior]
    losses: dict[Candidate, list[float]]
    vendor: list[float]
    devices: list[float]


@dataclass(frozen=True)
class PriorChoice:
    """The chosen prior.

    Attributes:
        prior: The prior for the bundle; None if none is better than the vendor's head alone, and
            than the devices' default prior.
        held_out: The same estimated without each fold's annotators: those at positions f,
            f + ``FOLDS`` and so on for fold f.
        candidate: The best candidate.
        losses: Mean loss of the held-out annotators' rows, by candidate, in nats.
        vendor: The same for the vendor's head alone.
        devices: The same for the devices' default prior.
        link: The head's link.
    """

    prior: PopulationPrior | None
    held_out: tuple[PopulationPrior | None, ...]
    candidate: Candidate
    losses: dict[Candidate, float]
    vendor: float
    devices: float
    link: Link

    def details(self) -> dict[str, Any]:
        """The details for a manifest."""
        return {
            **self._chosen(),
            "measure": self.link.measure,
            "held_out_loss": {
                "vendor's head": round(self.vendor, _DIGITS),
                "devices' own prior": round(self.devices, _DIGITS),
                **{str(key): round(value, _DIGITS) for key, value in self.losses.items()},
            },
        }

    def _chosen(self) -> dict[str, Any]:
        prior = self.prior
        if prior is None:
            return {
                "refused": "no population prior is better on held-out annotators: "
                f"{self.link.measure} {self.losses[self.candidate]:.4f} with the best, "
                f"{self.vendor:.4f} with the vendor's head alone, {self.devices:.4f} with the "
                "isotropic prior that devices use by default"
            }
        spread = prior.variance[-1] + (prior.factors[:, -1] ** 2).sum()
        return {
            "chosen": str(self.candidate),
            "k": len(prior.factors),
            "factor": self.candidate.factor,
            "bias_mean": round(float(prior.mean[-1]), _DIGITS),
            "bias_deviation": round(float(np.sqrt(spread)), _DIGITS),
        }


def choose_prior(
    annotators: Annotators, tick: Callable[[int], None], run: Map = map
) -> PriorChoice:
    """Estimate candidates without a fifth of the annotators, and compare losses on this fifth.

    For each held-out annotator a personal head (and a device's other parameters) is fitted under
    the candidate to every second row, in the order of the vendor's logits. The loss is that of the
    other rows, and vice versa. Annotators count equally, as users do. The best candidate is then
    estimated from all annotators.

    Args:
        annotators: The annotators.
        tick: Called with the number of new estimates, ``ESTIMATES`` in all.
        run: Runs the estimates, which are independent of each other.
    """
    folds = []
    for fold in run(partial(_fold, annotators), range(ESTIMATES)):
        folds.append(fold)
        tick(1)
    means = {candidate: _mean(fold.losses[candidate] for fold in folds) for candidate in CANDIDATES}
    vendor, devices = _mean(fold.vendor for fold in folds), _mean(fold.devices for fold in folds)
    best = min(means, key=lambda candidate: means[candidate])
    link = annotators.link
    if not means[best] < min(vendor, devices):
        return PriorChoice(None, (None,) * FOLDS, best, means, vendor, devices, link)
    *held_out, whole = (fold.priors[best] for fold in folds)
    return PriorChoice(whole, tuple(held_out), best, means, vendor, devices, link)


def _mean(folds: Iterable[list[float]]) -> float:
    return float(np.mean([loss for fold in folds for loss in fold]))


def _fold(annotators: Annotators, number: int) -> Fold:
    """Estimate candidates without the annotators of a fold; fold ``FOLDS`` has none."""
    rest = [each for index, each in enumerate(annotators) if index % FOLDS != number]
    held_out = annotators[number::FOLDS] if number < FOLDS else []
    with one_blas_thread():
        start = isotropic(rest)
        fitted = estimate(rest, start)
        priors = {candidate: candidate.prior(start, fitted) for candidate in CANDIDATES}
        by_annotator = [_losses(annotator, priors.values()) for annotator in held_out]
        vendor = [_loss(annotator, annotator.logits) for annotator in held_out]
        devices = [_devices_loss(annotator) for annotator in held_out]
    losses = {
        candidate: [row[position] for row in by_annotator]
        for position, candidate in enumerate(CANDIDATES)
    }
    return Fold(priors, losses, vendor, devices)


def cut(full: Gaussian, directions: int, factor: float) -> PopulationPrior:
    """Cut a covariance to a diagonal and its leading directions, and scale it.

    Args:
        full: The Gaussian.
        directions: k, their number.
        factor: Factor of the weights' covariance; the bias's does not change.
    """
    variance = np.diag(full.covariance)
    values, vectors = full.directions
    leading = slice(max(len(values) - directions, 0), None)
    factors = (vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0))).T
    rest = np.maximum(variance - (factors**2).sum(axis=0), _LEAST * variance)
    scale = np.full(len(variance), np.sqrt(factor))
    scale[-1] = 1.0
    return PopulationPrior(
        full.mean.astype(np.float32),
        (scale**2 * rest).astype(np.float32),
        (scale * factors).astype(np.float32),
    )


def _losses(annotator: Annotator, priors: Iterable[PopulationPrior]) -> list[float]:
    """The loss under each prior; each fit starts from the previous prior's."""
    losses = []
    duals: list[Floats | None] = [None, None]
    for prior in priors:
        inputs = annotator.inputs
        expected = annotator.logits + inputs @ prior.mean
        rows = np.hstack([inputs * np.sqrt(prior.variance), inputs @ prior.factors.T])
        kernel = (rows @ rows.T + annotator.extra_covariance).astype(np.float64)
        losses.append(_loss(annotator, _cross_fitted(annotator, kernel, expected, duals)))
    return losses


def _devices_loss(annotator: Annotator) -> float:
    """The loss of a device's fit without a population prior: centred inputs of unit length."""
    inputs = annotator.inputs[:, :-1].astype(np.float64)
    inputs -= inputs.mean(axis=0)
    products = inputs @ inputs.T
    length = float(np.trace(products)) / len(products)
    kernel = DENSE_SCALE * products / (length or 1.0) + BIAS_SCALE * BIAS_DEVIATION**2
    kernel = annotator.link.spread**2 * kernel + annotator.extra_covariance
    return _loss(annotator, _cross_fitted(annotator, kernel, annotator.logits, [None, None]))


def _cross_fitted(
    annotator: Annotator, kernel: Floats, expected: Floats, duals: list[Floats | None]
) -> Floats:
    """Each half's logits, by the personal head fitted to the other half.

    Args:
        annotator: The annotator.
        kernel: The covariance of the rows' logits, shape (n, n).
        expected: Their mean, shape (n,).
        duals: The starts of the two halves' fits; replaced by their results.
    """
    logits = expected.copy()
    halves = (slice(0, None, 2), slice(1, None, 2))
    for index, (half, other) in enumerate((halves, halves[::-1])):
        mode = find_mode(
            kernel[half, half], expected[half], annotator.labels[half], duals[index], annotator.link
        )
        duals[index] = mode.dual
        logits[other] += kernel[other, half] @ mode.dual
    return logits


def _loss(annotator: Annotator, logits: Floats) -> float:
    """The mean loss of an annotator's labels by logits (n,)."""
    return float(annotator.link.losses(annotator.labels[:, None], logits[:, None]).mean())
