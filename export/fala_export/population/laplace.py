"""One annotator's personal logits under a Gaussian prior: Laplace's approximation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack
from scipy.special import expit

from fala_export.population.annotators import Floats, Inputs

_STEPS = 50
_HALVINGS = 20
# Of the objective, an annotator. Newton squares what is missing: after a whole step that gained
# this much, the next would gain its square.
_CLOSE = 1e-4


@dataclass(frozen=True)
class Mode:
    """The most probable difference f = K a between an annotator's logits and the expected ones.

    Attributes:
        dual: a, shape (n,); it is label - probability.
        curvature: p (1 - p) at each row, shape (n,).
    """

    dual: Floats
    curvature: Floats


def find_mode(kernel: Floats, expected: Floats, labels: Floats, start: Floats | None) -> Mode:
    """Newton's method in the space of the annotator's rows.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 3.1, with
    steps that are halved where the objective would fall.

    Args:
        kernel: K, the covariance of the rows' logits, shape (n, n).
        expected: Their mean, shape (n,).
        labels: 0 or 1, shape (n,).
        start: A first guess of a.
    """
    dual = np.zeros(len(labels)) if start is None else start
    shift = kernel @ dual
    value = _objective(dual, shift, expected, labels)
    for _ in range(_STEPS):
        chance = expit(expected + shift)
        root = np.sqrt(chance * (1 - chance))
        right = root**2 * shift + labels - chance
        # LAPACK reads one triangle, in Fortran's order: of a symmetric matrix that is either.
        system = _system(kernel, root).T
        _, solved, _ = lapack.dposv(system, root * (kernel @ right), lower=1, overwrite_a=1)
        step = right - root * solved - dual
        move = kernel @ step
        for _ in range(_HALVINGS):
            new = _objective(dual + step, shift + move, expected, labels)
            if new >= value:
                break
            step, move = step / 2, move / 2
        else:
            break
        dual, shift = dual + step, shift + move
        gain, value = new - value, new
        if gain < _CLOSE:
            break
    chance = expit(expected + shift)
    return Mode(dual, chance * (1 - chance))


def whiten(kernel: Floats, curvature: Floats, rows: Inputs) -> None:
    """Multiply rows (n, d) in place by R, where R'R = (K + diag(1 / curvature))^-1.

    With X = R rows the posterior covariance is S - S X'X S (the same, equation 3.27).
    """
    root = np.sqrt(curvature)
    rows *= root[:, None].astype(rows.dtype)
    lower, _ = lapack.dpotrf(_system(kernel, root).T, lower=1, overwrite_a=1)
    # X' = (root rows)' L'^-1: transposed, C's order is Fortran's, and nothing is copied.
    blas.strsm(1.0, lower.astype(rows.dtype), rows.T, side=1, lower=1, trans_a=1, overwrite_b=1)


def _system(kernel: Floats, root: Floats) -> Floats:
    system: Floats = kernel * root
    system *= root[:, None]
    system.flat[:: len(root) + 1] += 1
    return system


def _objective(dual: Floats, shift: Floats, expected: Floats, labels: Floats) -> float:
    logits = expected + shift
    return float(labels @ logits - np.logaddexp(0, logits).sum() - dual @ shift / 2)
