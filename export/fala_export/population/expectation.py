"""The Gaussian of annotators' differences, by expectation maximization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fala_export.population.annotators import Annotator, Floats, chunks
from fala_export.population.laplace import find_mode, precision_root

# The start is a prior too: where annotators say nothing, more rounds only fit their noise.
ROUNDS = 12

_WEIGHTS = 0.8  # variance of the logits, by the weights' differences
_BIAS = 1.0


@dataclass(frozen=True)
class Gaussian:
    """Of (omega - w, b - the vendor's b) among people.

    Attributes:
        mean: Shape (d + 1,).
        covariance: Shape (d + 1, d + 1).
    """

    mean: Floats
    covariance: Floats


def isotropic(annotators: Sequence[Annotator]) -> Gaussian:
    """Without knowledge of people: equal variances of all weights, and one of the bias.

    The weights' differences alone give logits on the annotators' inputs a variance of 0.8 around
    their mean.
    """
    inputs = np.concatenate([annotator.inputs[:, :-1] for annotator in annotators])
    length = float(inputs.var(axis=0, dtype=np.float64).sum())
    variance = np.full(inputs.shape[1] + 1, _WEIGHTS / (length or 1.0))
    variance[-1] = _BIAS
    return Gaussian(np.zeros(len(variance)), np.diag(variance))


def estimate(
    annotators: Sequence[Annotator], start: Gaussian, tick: Callable[[], None]
) -> Gaussian:
    """Fit the mean and covariance to annotators, each of whose posteriors is Laplace's.

    With m_a and V_a an annotator's posterior mean and covariance around the mean, a round takes
    the mean to mean + avg m_a and the covariance to avg (m_a m_a' + V_a) - avg m_a avg m_a'
    (Dempster, Laird and Rubin, 1977). As m_a = S X_a' a_a, everything is summed before the two
    multiplications by S.

    Args:
        annotators: The annotators.
        start: Where to start.
        tick: Called after each of the ``ROUNDS`` rounds.
    """
    mean, covariance = start.mean, start.covariance
    duals: list[Floats | None] = [None] * len(annotators)
    for _ in range(ROUNDS):
        pulls = np.zeros((len(annotators), len(mean)))
        known = np.zeros_like(covariance)
        for chunk in chunks(annotators):
            inputs = np.concatenate([annotators[index].inputs for index in chunk], dtype=np.float64)
            spread = inputs @ covariance
            expected = inputs @ mean
            first = 0
            for index in chunk:
                annotator = annotators[index]
                rows = slice(first, first + len(annotator.labels))
                first = rows.stop
                kernel = spread[rows] @ inputs[rows].T
                logits = annotator.logits + expected[rows]
                mode = find_mode(kernel, logits, annotator.labels, duals[index])
                duals[index] = mode.dual
                pulls[index] = mode.dual @ inputs[rows]
                inputs[rows] = precision_root(kernel, mode.curvature) @ inputs[rows]
            known += inputs.T @ inputs
        pull = pulls.mean(axis=0)
        change = (pulls.T @ pulls - known) / len(annotators) - np.outer(pull, pull)
        mean = mean + covariance @ pull
        covariance = covariance + covariance @ change @ covariance
        covariance = (covariance + covariance.T) / 2
        tick()
    return Gaussian(mean, covariance)
