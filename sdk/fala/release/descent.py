"""The minimum of a smooth convex function of many numbers, by its gradient alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from fala.model.losses import Floats

#: A function and its gradient at a point.
Objective = Callable[[Floats], tuple[float, Floats]]

# Armijo's share of the promised descent, and the share of the slope that a step must take away.
_DESCENT, _SLOPE = 1e-4, 0.9
_MAX_TRIALS = 40


def minimize(
    objective: Objective, start: Floats, *, tolerance: float, most: int, history: int = 6
) -> Floats:
    """Minimize by L-BFGS (Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.5).

    Args:
        objective: The function and its gradient, shape (p,).
        start: Where to begin, shape (p,).
        tolerance: It ends when a step lowers the function by a smaller share than this.
        most: Steps, at most.
        history: How many steps tell of the curvature.
    """
    point = start.copy()
    value, gradient = objective(point)
    steps: deque[tuple[Floats, Floats, float]] = deque(maxlen=history)
    for _ in range(most):
        direction = -_turned(gradient, steps)
        promised = float(gradient @ direction)
        if not promised < 0:  # nothing is left but rounding
            break
        first = 1.0 if steps else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
        found = _searched(objective, point, value, direction, promised, first)
        if found is None:
            break
        there, reached, slope = found
        change, turn = there - point, slope - gradient
        curvature = float(change @ turn)
        if curvature > 0:
            steps.append((change, turn, 1.0 / curvature))
        fell = value - reached
        scale = max(abs(value), abs(reached), 1.0)
        point, value, gradient = there, reached, slope
        if fell <= tolerance * scale:
            break
    return point


def _turned(gradient: Floats, steps: deque[tuple[Floats, Floats, float]]) -> Floats:
    """The gradient times what the last steps tell of the inverse Hessian (algorithm 7.4)."""
    turned = gradient.copy()
    shares = []
    for change, turn, inverse in reversed(steps):
        shares.append(inverse * float(change @ turned))
        turned -= shares[-1] * turn
    if steps:
        _, turn, inverse = steps[-1]
        turned /= inverse * float(turn @ turn)
    for (change, turn, inverse), share in zip(steps, reversed(shares), strict=True):
        turned += (share - inverse * float(turn @ turned)) * change
    return turned


def _searched(
    objective: Objective,
    point: Floats,
    value: float,
    direction: Floats,
    promised: float,
    share: float,
) -> tuple[Floats, float, Floats] | None:
    """A step of the weak Wolfe conditions, by halving and doubling (Lewis and Overton, 2013)."""
    low, high = 0.0, np.inf
    for _ in range(_MAX_TRIALS):
        there = point + share * direction
        reached, gradient = objective(there)
        if not reached <= value + _DESCENT * share * promised:
            high = share
        elif float(gradient @ direction) < _SLOPE * promised:
            low = share
        else:
            return there, reached, gradient
        share = (low + high) / 2 if np.isfinite(high) else 2 * low
    return None
