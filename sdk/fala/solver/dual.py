"""The minimum of the one objective over as many numbers as there are examples; for one logit.

z = offset + K a for the rows' Gram matrix K; a Newton step is a Cholesky factor of
1 + W^1/2 K W^1/2 (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
algorithm 3.1), which rounding cannot spoil.
"""

from __future__ import annotations

import numpy as np

from fala.model.losses import Floats, probabilities
from fala.solver.inverses import cho_solve, inverse_diagonal, one_plus, positive
from fala.solver.newton import (
    DESCENT,
    MAX_HALVINGS,
    MAX_STEPS,
    Minimum,
    Problem,
    curvature,
)
from fala.solver.whitening import product

# After a step that moved logits by this share the next would move them by its square, and the last
# factor is as good as one at the minimum.
_TOLERANCE = 1e-3
# Below this, what an example's curvature and leverage leave of it is rounding.
_NO_CURVATURE = 1e-8


def minimize_dual(problem: Problem, gram: Floats) -> Minimum:
    """Minimize J.

    Args:
        problem: J, of one logit.
        gram: R R', shape (n, n), without the logit's own column; overwritten.
    """
    evidence, own = problem.evidence, problem.own
    if own.any():
        gram += own * own[:, 0]
    numbers, z, steps, roots, lower = _newton(problem, gram)
    logits, weights = z[:, None], roots**2
    shares = probabilities(logits)
    kept = inverse_diagonal(lower)  # 1 - W_i leverage_i
    diagonal = np.diagonal(gram)
    told = weights * diagonal > _NO_CURVATURE
    leverage = np.where(told, (1.0 - kept) / np.where(told, weights, 1.0), diagonal)
    slope = evidence.slope(logits, shares)
    left_out = logits + slope * (leverage / positive(kept))[:, None]
    column = numbers[:, None]

    def solve(vector: Floats) -> Floats:  # (R'WR + 1)^-1 by Woodbury's identity
        inner = cho_solve(lower, roots * problem.move(vector)[:, 0])
        return vector - problem.gather((roots * inner)[:, None])

    delta, eta = problem.rows.gather(column), (own * column).sum(axis=0)
    flops = (steps + 1) * len(z) ** 3 / 3 + 4.0 * steps * len(z) ** 2
    return Minimum(delta, eta, logits, left_out, solve, steps, flops)


def _newton(problem: Problem, gram: Floats) -> tuple[Floats, Floats, int, Floats, Floats]:
    """Damped Newton steps.

    Returns:
        a (n,), the logits (n,), the number of steps, and W^1/2 (n,) with the factor of the last.
    """
    evidence, offset = problem.evidence, problem.offset[:, 0]
    a = np.zeros(len(offset))
    z = offset
    value = evidence.loss(problem.offset)
    taken = 0
    while taken < MAX_STEPS:
        taken += 1
        shares = probabilities(z[:, None])
        weights = curvature(evidence, shares)[:, 0]
        roots = np.sqrt(weights)
        lower = one_plus(gram, roots)
        wanted = weights * (z - offset) - evidence.slope(z[:, None], shares)[:, 0]
        there = wanted - roots * cho_solve(lower, roots * product(gram, wanted))
        reached = offset + product(gram, there)
        now = _value(problem, there, reached)
        direction, move, share = there - a, reached - z, 1.0
        # J's slope along the step is the gradient K (a + slope) times its direction.
        promised = float(move @ (a + evidence.slope(z[:, None], shares)[:, 0]))
        for _ in range(MAX_HALVINGS):
            if now <= value + DESCENT * share * promised:
                break
            share /= 2
            there, reached = a + share * direction, z + share * move
            now = _value(problem, there, reached)
        else:  # J no longer falls by more than rounding
            break
        moved = float(np.abs(reached - z).max(initial=0.0))
        a, z, value = there, reached, now
        if moved <= _TOLERANCE * (1 + float(np.abs(z).max(initial=0.0))):
            break
    return a, z, taken, roots, lower


def _value(problem: Problem, numbers: Floats, z: Floats) -> float:
    """J."""
    penalty = float(numbers @ (z - problem.offset[:, 0])) / 2
    return problem.evidence.loss(z[:, None]) + penalty
