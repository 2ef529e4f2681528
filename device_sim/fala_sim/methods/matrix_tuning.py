"""Gradient tuning of the personal matrix, or of the head, on a frozen backbone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.model.heads import Vectors
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import logits_flops

#: Number of examples in a training batch.
BATCH = 32

# Operations per parameter and step: 7 for both moments, 2 for their corrections, 5 for the step
# itself.
_ADAM_FLOPS = 14


def tune_head(
    situation: Situation,
    inputs: Vectors,
    *,
    theta: NDArray[Any],
    bias: NDArray[Any],
    weight: NDArray[Any] | float,
    learning_rate: float,
    epochs: int,
    tune_bias: bool = False,
) -> tuple[Floats, Floats]:
    """Minimize the loss of the user's train labels with Adam, over shuffled batches.

    The logits are ``z = (theta * weight) . x + bias``. With the vendor's w as the weight, theta is
    the personal matrix; with weight 1, theta is a head's w itself. The backbone gets no gradient.
    The meter's stage ``"tune"`` counts products as forward, and gradients and Adam's steps as
    backward.

    Args:
        situation: The situation of the user, with the head to which these logits belong.
        inputs: x of the train examples, shape (n, d); see ``fala_export.Head``.
        theta: Start of theta, shape (C, d).
        bias: Start of b, shape (C,).
        weight: Weight, shape (C, d), or a number.
        learning_rate: Learning rate of Adam.
        epochs: Number of passes over all examples.
        tune_bias: Whether b is also tuned.

    Returns:
        theta and b.
    """
    import torch  # imported late, because it is slow to load

    head, shares = situation.new.head, situation.label_shares()
    x = np.asarray(inputs, dtype=np.float64)
    order = np.random.default_rng(situation.seed)
    start = np.asarray(theta, np.float64), np.asarray(bias, np.float64)
    point = [torch.nn.Parameter(torch.tensor(part)) for part in start]
    adam = torch.optim.Adam(point if tune_bias else point[:1], lr=learning_rate)
    # the arrays share the parameters' memory
    now_theta, now_bias = (parameter.detach().numpy() for parameter in point)
    steps = 0
    with situation.meter.stage("tune") as stage:
        for _ in range(epochs):
            shuffled = order.permutation(len(x))
            for begin in range(0, len(x), BATCH):
                batch = shuffled[begin : begin + BATCH]
                z = x[batch] @ (now_theta * weight).T + now_bias
                slope = head.link.residual(head.link.mean(z), shares[batch]) / len(batch)
                point[0].grad = torch.from_numpy(slope.T @ x[batch] * weight)
                point[1].grad = torch.from_numpy(slope.sum(axis=0))
                adam.step()
                steps += 1
        classes, dimension = np.shape(theta)
        stage.forward_flops += logits_flops(epochs * len(x), classes, dimension)
        stage.backward_flops += gradient_flops(epochs * len(x), steps, classes, dimension)
    return now_theta, now_bias


def gradient_flops(examples: int, steps: int, classes: int, dimension: int) -> float:
    """Return the FLOPs of C rows' gradients and Adam's steps: 2 n C d + 14 steps C d."""
    return logits_flops(examples, classes, dimension) + _ADAM_FLOPS * steps * classes * dimension
