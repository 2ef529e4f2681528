"""One annotator's personal logits under a Gaussian prior: Laplace's approximation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit

from fala_export.population.annotators import Floats

_STEPS = 50
_HALVINGS = 20
_CLOSE = 1e-7  # of the objective, an annotator


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
        solved = np.linalg.solve(_system(kernel, root), root * (kernel @ right))
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


def precision_root(kernel: Floats, curvature: Floats) -> Floats:
    """R with R'R = (K + diag(1 / curvature))^-1, shape (n, n).

    With it the posterior covariance is S - S X' R'R X S (the same, equation 3.27).
    """
    root = np.sqrt(curvature)
    lower = np.linalg.cholesky(_system(kernel, root))
    inverse: Floats = solve_triangular(lower, np.diag(root), lower=True, check_finite=False)
    return inverse


def _system(kernel: Floats, root: Floats) -> Floats:
    system: Floats = root[:, None] * kernel * root
    system.flat[:: len(root) + 1] += 1
    return system


def _objective(dual: Floats, shift: Floats, expected: Floats, labels: Floats) -> float:
    logits = expected + shift
    return float(labels @ logits - np.logaddexp(0, logits).sum() - dual @ shift / 2)
