"""The minimum of the one objective over as many numbers as there are examples; for one logit.

z = offset + R R' a; a Newton step solves 1 + W^1/2 K W^1/2 for the rows' Gram matrix K = R R'
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 3.1), which
rounding cannot spoil. Of many examples K is in float32, and a step goes by conjugate gradients: K
says only where to go, while the logits and J are the rows' own. One factor is left to take, at the
minimum, for what each example left out would say.
"""

from __future__ import annotations

import numpy as np

from fala.model.losses import Floats, probabilities
from fala.solver.inverses import one_plus, positive
from fala.solver.newton import (
    DESCENT,
    MAX_HALVINGS,
    MAX_STEPS,
    Minimum,
    Problem,
    curvature,
)

#: Examples from which on K is in float32.
SINGLE = 512

# After a step that moved logits by this share the next would move them by its square.
_TOLERANCE = 1e-4
# Conjugate gradients end at this share of what a step is to solve.
_RESIDUAL = 1e-4
_MAX_DIRECTIONS = 200
# Below this, what an example's curvature and leverage leave of it is rounding.
_NO_CURVATURE = 1e-8


def minimize_dual(problem: Problem, gram: Floats) -> Minimum:
    """Minimize J.

    Args:
        problem: J, of one logit.
        gram: R R', shape (n, n), without the logit's own column; overwritten. In float32 steps are
            less exact, and the minimum is the same.
    """
    evidence, own = problem.evidence, problem.own
    if own.any():
        gram += (own * own[:, 0]).astype(gram.dtype, copy=False)
    numbers, z, steps, directions = _newton(problem, gram)
    logits = z[:, None]
    shares = probabilities(logits)
    weights = curvature(evidence, shares)[:, 0]
    roots = np.sqrt(weights)
    lower = one_plus(gram, roots)
    kept = lower.inverse_diagonal()  # 1 - W_i leverage_i
    diagonal = np.diagonal(gram)
    told = weights * diagonal > _NO_CURVATURE
    leverage = np.where(told, (1.0 - kept) / np.where(told, weights, 1.0), diagonal)
    slope = evidence.slope(logits, shares)
    left_out = logits + slope * (leverage / positive(kept))[:, None]
    column = numbers[:, None]

    def solve(vector: Floats) -> Floats:  # (R'WR + 1)^-1 by Woodbury's identity
        inner = lower.solve_both(roots * problem.move(vector)[:, 0])
        return vector - problem.gather((roots * inner)[:, None])

    delta, eta = problem.rows.gather(column), (own * column).sum(axis=0)
    count = float(len(z))
    flops = 2 * count**3 / 3 + 2 * count**2 * directions
    flops += 2 * steps * problem.rows.product_flops
    return Minimum(delta, eta, logits, left_out, solve, steps, flops)


def _newton(problem: Problem, gram: Floats) -> tuple[Floats, Floats, int, int]:
    """Damped Newton steps.

    Returns:
        a (n,), the logits (n,), the number of steps, and the conjugate directions of all of them.
    """
    evidence, offset = problem.evidence, problem.offset[:, 0]
    a = np.zeros(len(offset))
    z = offset
    value = evidence.loss(problem.offset)
    taken = directions = 0
    while taken < MAX_STEPS:
        taken += 1
        shares = probabilities(z[:, None])
        roots = np.sqrt(curvature(evidence, shares)[:, 0])
        # J's gradient is K times this.
        left = a + evidence.slope(z[:, None], shares)[:, 0]
        inner, further = _solved(gram, roots, roots * _times(gram, left))
        directions += further
        direction, share = roots * inner - left, 1.0
        move = problem.move(problem.gather(direction[:, None]))[:, 0]
        promised = float(move @ left)
        for _ in range(MAX_HALVINGS):
            there, reached = a + share * direction, z + share * move
            now = evidence.loss(reached[:, None]) + float(there @ (reached - offset)) / 2
            if now <= value + DESCENT * share * promised:
                break
            share /= 2
        else:  # J no longer falls by more than rounding
            break
        moved = float(np.abs(reached - z).max(initial=0.0))
        a, z, value = there, reached, now
        if moved <= _TOLERANCE * (1 + float(np.abs(z).max(initial=0.0))):
            break
    return a, z, taken, directions


def _solved(gram: Floats, roots: Floats, wanted: Floats) -> tuple[Floats, int]:
    """(1 + D K D)^-1 times a vector (n,), for a diagonal D, and how many directions it took."""
    if gram.dtype == np.float64:
        return one_plus(gram, roots).solve_both(wanted), 0
    found = np.zeros_like(wanted)
    residual, direction = wanted.copy(), wanted
    before = float(residual @ residual)
    enough = _RESIDUAL**2 * before
    taken = 0
    while before > enough and taken < _MAX_DIRECTIONS:
        taken += 1
        turned = direction + roots * _times(gram, roots * direction)
        length = before / float(direction @ turned)
        found += length * direction
        residual -= length * turned
        now = float(residual @ residual)
        direction = residual + now / before * direction
        before = now
    return found, taken


def _times(gram: Floats, vector: Floats) -> Floats:
    """A matrix times a vector (n,), in the matrix's own precision."""
    return np.asarray(gram @ vector.astype(gram.dtype, copy=False), dtype=np.float64)
