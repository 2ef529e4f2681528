"""The Gaussian of annotators' differences, by EM with Laplace's approximation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fala.model.heads import Vectors
from fala.model.links import LABELS, Link
from fala.model.losses import Floats
from fala.solver.design import GramRows
from fala.solver.factors import Solve
from fala.solver.newton import Evidence, Problem, newton
from fala_export.fitting.population.annotators import Annotator, chunks

# A mode is found where the next step would move logits by this share.
_CLOSE = 1e-4


@dataclass(frozen=True)
class Mode:
    """The most probable difference f = K a between an annotator's logits and the expected ones.

    Attributes:
        dual: a, shape (n,); it is minus the loss's derivative by the logit: label - probability.
        curvature: The loss's second derivative at each row, shape (n,): p (1 - p).
    """

    dual: Floats
    curvature: Floats


def find_mode(
    kernel: Floats, expected: Floats, labels: Floats, start: Floats | None, link: Link = LABELS
) -> Mode:
    """The mode, by the solver's Newton method over the annotator's rows.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 3.1.

    Args:
        kernel: K, the covariance of the rows' logits, shape (n, n).
        expected: Their mean, shape (n,).
        labels: 0 or 1, or ratings, shape (n,).
        start: A first guess of a.
        link: The meaning of the logits.
    """
    from scipy.linalg import lapack

    y = labels[:, None]
    zeros = np.zeros_like(y)
    evidence = Evidence(y, np.ones(len(y)), zeros, np.zeros(len(y)), link)
    problem = Problem(GramRows(kernel), zeros, expected[:, None], evidence)

    def precondition(mean: Floats) -> Solve:
        root = np.sqrt(link.curvature(mean))
        # LAPACK reads one triangle in Fortran's order; the matrix is symmetric.
        lower, _ = lapack.dpotrf(_system(kernel, root).T, lower=1, overwrite_a=1)

        def solve(point: Floats) -> Floats:
            parts = point[:, :-1].T
            inner, _ = lapack.dpotrs(lower, root[:, None] * (kernel @ parts), lower=1)
            return np.hstack([(parts - root[:, None] * inner).T, point[:, -1:]])

        return solve

    point = problem.start
    if start is not None:
        point[0, :-1] = start
    steps = newton(problem, point, precondition, tolerance=_CLOSE, exact=True)
    return Mode(steps.point[0, :-1], link.curvature(link.mean(steps.z)))


def whiten(kernel: Floats, curvature: Floats, rows: Vectors) -> None:
    """Multiply rows (n, d) in place by R, where R'R = (K + diag(1 / curvature))^-1.

    With X = R rows the posterior covariance is S - S X'X S (the same, equation 3.27).
    """
    from scipy.linalg import blas, lapack

    root = np.sqrt(curvature)
    rows *= root[:, None].astype(rows.dtype)
    lower, _ = lapack.dpotrf(_system(kernel, root).T, lower=1, overwrite_a=1)
    # X' = (root rows)' L'^-1: transposed, C's order is Fortran's, so nothing is copied.
    blas.strsm(1.0, lower.astype(rows.dtype), rows.T, side=1, lower=1, trans_a=1, overwrite_b=1)


def _system(kernel: Floats, root: Floats) -> Floats:
    system: Floats = kernel * root
    system *= root[:, None]
    system.flat[:: len(root) + 1] += 1
    return system


# The start is also a prior: without information from annotators, more rounds only fit noise.
ROUNDS = 12

_WEIGHTS = 0.8  # variance of the logits by differences of the weights
_BIAS = 1.0


@dataclass(frozen=True)
class Gaussian:
    """The distribution of (omega - w, b - the vendor's b) over people.

    Attributes:
        mean: Shape (d + 1,).
        covariance: Shape (d + 1, d + 1).
    """

    mean: Floats
    covariance: Floats

    @cached_property
    def directions(self) -> tuple[Floats, Floats]:
        """The covariance's eigenvalues, rising, and its eigenvectors, in columns."""
        values, vectors = np.linalg.eigh(self.covariance)
        return values, vectors


def isotropic(annotators: Sequence[Annotator]) -> Gaussian:
    """The start, without data of people: equal variances of all weights, and one of the bias.

    The weights' differences alone give logits on the annotators' inputs a variance of 0.8 around
    their mean, in units of the link's spread.
    """
    count = sum(len(annotator.inputs) for annotator in annotators)
    total = sum(annotator.inputs.sum(axis=0, dtype=np.float64) for annotator in annotators)
    # Differences in float32, summed in float64: ten times faster than ``var``.
    centre = (total / count).astype(np.float32)
    squares = (np.square(each.inputs - centre).sum(dtype=np.float64) for each in annotators)
    variance = np.full(len(centre), _WEIGHTS / (float(sum(squares)) / count or 1.0))
    variance[-1] = _BIAS
    variance *= annotators[0].link.spread ** 2
    return Gaussian(np.zeros(len(variance)), np.diag(variance))


def estimate(annotators: Sequence[Annotator], start: Gaussian) -> Gaussian:
    """Fit the mean and covariance to annotators, with Laplace's approximation of each posterior.

    With m_a and V_a an annotator's posterior mean and covariance around the mean, a round changes
    the mean to mean + avg m_a and the covariance to avg (m_a m_a' + V_a) - avg m_a avg m_a'
    (Dempster, Laird and Rubin, 1977). In coordinates in which the covariance S = L L' is the
    identity, annotators' rows are Y = X L, m_a = Y'a and V_a = I - Y'R'R Y: the new covariance is
    L (I + C) L', where C is summed in single precision, and I + C is never nearly singular. The
    other parameters of a device are in the covariance of the annotators' logits, not in Y.

    Args:
        annotators: The annotators.
        start: The start.
    """
    from scipy.linalg import blas

    mean, root = start.mean, np.linalg.cholesky(start.covariance)
    duals: list[Floats | None] = [None] * len(annotators)
    for _ in range(ROUNDS):
        turn = root.astype(np.float32)
        pull, squares = np.zeros_like(mean), np.zeros_like(root)
        for chunk in chunks(annotators):
            inputs = np.concatenate([annotators[index].inputs for index in chunk])
            expected = inputs @ mean.astype(np.float32)
            # L' X': the transposes are in Fortran's order, and L is triangular.
            blas.strmm(1.0, turn.T, inputs.T, side=0, lower=0, overwrite_b=1)
            first, pulls = 0, np.zeros((len(chunk), len(mean)))
            for number, index in enumerate(chunk):
                annotator = annotators[index]
                rows = inputs[first : first + len(annotator.labels)]
                logits = annotator.logits + expected[first : first + len(rows)]
                first += len(rows)
                kernel = (rows @ rows.T + annotator.extra_covariance).astype(np.float64)
                mode = find_mode(kernel, logits, annotator.labels, duals[index], annotator.link)
                duals[index] = mode.dual
                pulls[number] = mode.dual.astype(np.float32) @ rows
                whiten(kernel, mode.curvature, rows)
            pull += pulls.sum(axis=0) / len(annotators)
            squares += pulls.T @ pulls
            squares -= inputs.T @ inputs
        change = squares / len(annotators) - np.outer(pull, pull)
        change.flat[:: len(change) + 1] += 1
        mean = mean + root @ pull
        root = root @ np.linalg.cholesky(change)
    return Gaussian(mean, root @ root.T)
