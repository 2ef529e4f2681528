"""The paper's objectives of Table 5: old logits, labels, or both.

    J(theta) = 1/n [ sum_i t |z_i - z_hat_i|^2  +  sum_i CE(y_i, z_i) ] + lambda |theta|^2

z = theta . e + b with e = w * x and the vendor's b. The second term is the paper's cross-entropy;
together with it an old logit has the weight of a label, t = 1/8.
"""

from __future__ import annotations

import numpy as np

from fala.base.products import Floats
from fala.model.heads import Head, Vectors
from fala.solver.gaussian import LOGIT_WEIGHT
from fala_sim.methods.matrix import Matrix

#: Number of folds, and values of lambda times the features' mean squared length, of
#: ``fit_left_out``.
FOLDS, GRID = 5, np.logspace(-4, 2, 13)


def fit_objective(
    head: Head, inputs: Vectors, logits: Floats | None, shares: Floats | None, lambda_: float
) -> Matrix:
    """Minimize J from theta = 0.

    Args:
        head: The vendor's head, with w and b.
        inputs: x of n examples, shape (n, d); see ``Head.inputs``.
        logits: z_hat, shape (n, C); None leaves the first term out.
        shares: y, class shares (n, C); None leaves the second term out.
        lambda_: The penalty, above 0.
    """
    from scipy.optimize import minimize  # imported late, because it is slow to load

    if shares is None and logits is not None:
        return Matrix.solved(head, inputs, logits, lambda_)
    features: Floats = head.features(inputs).astype(np.float64)
    n, classes, _ = features.shape
    labels = np.zeros((n, classes)) if shares is None else shares
    targets = np.zeros((n, classes)) if logits is None else logits
    weight, link = 0.0 if logits is None else LOGIT_WEIGHT, head.link

    def z_of(point: Floats) -> Floats:
        return np.asarray(np.einsum("ncd,cd->nc", features, point.reshape(classes, -1)))

    def back(slope: Floats, point: Floats) -> Floats:
        return np.asarray(
            np.einsum("ncd,nc->cd", features, slope).ravel() / n + 2 * lambda_ * point
        )

    def value(point: Floats) -> tuple[float, Floats]:
        z = z_of(point) + head.bias
        gap = z - targets
        loss = link.losses(labels, z).sum() + weight * (gap**2).sum()
        slope = link.residual(link.mean(z), labels) + 2 * weight * gap
        return float(loss / n + lambda_ * point @ point), back(slope, point)

    def curved(point: Floats, step: Floats) -> Floats:
        moved = z_of(step)
        curvature = link.curved(link.mean(z_of(point) + head.bias), moved) + 2 * weight * moved
        return back(curvature, step)

    start = np.zeros(classes * features.shape[2])
    found = minimize(value, start, jac=True, hessp=curved, method="Newton-CG", tol=1e-9)
    return Matrix(head, found.x.reshape(classes, -1), head.bias)


def fit_left_out(head: Head, inputs: Vectors, shares: Floats, seed: int) -> Matrix:
    """Fit labels alone, with the penalty that predicts left-out folds best.

    Args:
        head: The vendor's head; see ``fit_objective``.
        inputs: x of n examples, shape (n, d).
        shares: y, class shares (n, C).
        seed: Seed of the folds.
    """
    n = len(inputs)
    length = float(np.mean(np.sum(head.features(inputs) ** 2, axis=2))) or 1.0
    fold = np.random.default_rng(seed).permutation(n) % FOLDS

    def left_out(lambda_: float) -> float:
        total = 0.0
        for held in (fold == number for number in range(min(FOLDS, n))):
            if held.all():
                continue
            model = fit_objective(head, inputs[~held], None, shares[~held], lambda_)
            z = model.logits(inputs[held]).astype(np.float64)
            total += float(head.link.losses(shares[held], z).sum())
        return total

    # If several penalties are equally good, the strongest one is used.
    return fit_objective(head, inputs, None, shares, min(GRID[::-1] * length, key=left_out))
