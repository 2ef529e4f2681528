"""The Gaussian of annotators' differences, by expectation maximization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fala_export.population.annotators import Annotator, Floats, chunks
from fala_export.population.laplace import find_mode, whiten

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
    annotators: Sequence[Annotator], start: Gaussian, tick: Callable[[int], None]
) -> Gaussian:
    """Fit the mean and covariance to annotators, each of whose posteriors is Laplace's.

    With m_a and V_a an annotator's posterior mean and covariance around the mean, a round takes
    the mean to mean + avg m_a and the covariance to avg (m_a m_a' + V_a) - avg m_a avg m_a'
    (Dempster, Laird and Rubin, 1977). In coordinates in which the covariance S = L L' is the
    identity, annotators' rows are Y = X L, m_a = Y'a and V_a = I - Y'R'R Y: the new covariance is
    L (I + C) L', where C is summed in single precision, and I + C is never near singular. What a
    device fits beside the prior is in the covariance of the annotators' logits, and not in Y.

    Args:
        annotators: The annotators.
        start: Where to start.
        tick: Called with the number of annotators seen; each is in each of the ``ROUNDS`` rounds.
    """
    mean, root = start.mean, np.linalg.cholesky(start.covariance)
    duals: list[Floats | None] = [None] * len(annotators)
    for _ in range(ROUNDS):
        turn = root.astype(np.float32)
        pulls = np.zeros((len(annotators), len(mean)))
        known = np.zeros_like(root)
        for chunk in chunks(annotators):
            inputs = np.concatenate([annotators[index].inputs for index in chunk])
            expected = inputs @ mean
            inputs = inputs @ turn
            first = 0
            for index in chunk:
                annotator = annotators[index]
                rows = inputs[first : first + len(annotator.labels)]
                logits = annotator.logits + expected[first : first + len(rows)]
                first += len(rows)
                kernel = (rows @ rows.T + annotator.beside).astype(np.float64)
                mode = find_mode(kernel, logits, annotator.labels, duals[index])
                duals[index] = mode.dual
                pulls[index] = mode.dual.astype(np.float32) @ rows
                whiten(kernel, mode.curvature, rows)
            known += inputs.T @ inputs
            tick(len(chunk))
        pull = pulls.mean(axis=0)
        change = (pulls.T @ pulls - known) / len(annotators) - np.outer(pull, pull)
        change.flat[:: len(change) + 1] += 1
        mean = mean + root @ pull
        root = root @ np.linalg.cholesky(change)
    return Gaussian(mean, root @ root.T)
