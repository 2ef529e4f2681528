"""Equation 1 in whitened coordinates: weights, precision and free biases taken out.

With W = R'R, P = L L' and theta = theta0 + L'^(-1) delta, equation 1 is plain ridge regression of
R (z - E theta0) on the rows R E L'^(-1). A bias without a penalty is taken out by projection:
rows and targets lose the span of its columns R 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.errors import DataError
from fala.solver.design import product
from fala.solver.triangles import Triangle

Floats = NDArray[np.float64]


def finite(values: ArrayLike, name: str) -> Floats:
    """Values in float64.

    Raises:
        DataError: If they are not numbers, or one is NaN or infinite.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error
    if not np.isfinite(array).all():
        raise DataError(f"{name} hold NaN or infinity")
    return array


def broadcast(value: ArrayLike, shape: tuple[int, ...], name: str) -> Floats:
    """Finite values, repeated to a shape.

    Raises:
        DataError: If they are not finite or do not fit the shape.
    """
    array = finite(value, name)
    try:
        return np.broadcast_to(array, shape)
    except ValueError as error:
        raise DataError(f"{name} of shape {array.shape} does not fit shape {shape}") from error


def stacked_features(features: ArrayLike) -> Floats:
    """Features as (n, C, d) in float64.

    Raises:
        DataError: If there are none, the shape is another, or a number is NaN or infinite.
    """
    array = finite(features, "features")
    if array.ndim == 2:
        array = array[:, None, :]
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(f"features of shape (n, d) or (n, C, d) expected, not {array.shape}")
    return array


def products(features: Floats, theta: Floats) -> Floats:
    """Logits without a bias, theta . e: (n, C, d) and (C, d) to (n, C)."""
    classes = range(len(theta))
    return np.stack([product(features[:, c], theta[c]) for c in classes], axis=1)


class Precision:
    """P as a change of variables: theta = theta0 + L'^(-1) delta, with P = L L'.

    Args:
        precision: A number, a diagonal of shape (d,), or a matrix of shape (d, d).
        dimension: d.

    Raises:
        DataError: If the shape does not fit, or P is not symmetric positive definite.
    """

    def __init__(self, precision: ArrayLike, dimension: int) -> None:
        value = finite(precision, "precision")
        self._lower: Floats | None = None
        self._root: Floats | None = None
        if value.ndim == 2:
            if value.shape != (dimension, dimension):
                raise DataError(f"a precision matrix of {dimension} x {dimension} expected")
            self._lower = np.swapaxes(_upper_root(value, "the precision"), 0, 1)
        elif not (value > 0).all():
            raise DataError("the precision is not positive")
        elif (value != 1).any():
            self._root = np.sqrt(broadcast(value, (dimension,), "precision"))
        else:
            broadcast(value, (dimension,), "precision")

    def whiten(self, features: Floats) -> Floats:
        """E L'^(-1), over the last axis; the same array where P is the identity."""
        if self._lower is not None:
            flat = features.reshape(-1, features.shape[-1])
            solved = Triangle(self._lower).solve(flat.T)
            return np.ascontiguousarray(solved.T).reshape(features.shape)
        return features if self._root is None else features / self._root

    def unwhiten(self, delta: Floats) -> Floats:
        """L'^(-1) delta, over the last axis."""
        if self._lower is not None:
            return Triangle(self._lower).solve_transposed(delta.T).T
        return delta if self._root is None else delta / self._root


def weight_roots(weights: ArrayLike | None, n: int, classes: int) -> Floats | None:
    """R with R'R = W: None for ones, (n,), or upper triangular (n, C, C).

    Raises:
        DataError: If the shape does not fit, a weight is negative, all are 0, or a block is not
            symmetric positive definite.
    """
    if weights is None:
        return None
    array = finite(weights, "weights")
    if array.shape == (n,):
        if (array < 0).any() or not array.any():
            raise DataError("weights are not negative, and not all zero")
        return np.sqrt(array)
    if array.shape != (n, classes, classes):
        raise DataError(f"weights of shape ({n},) or ({n}, {classes}, {classes}) expected")
    return _upper_root(array, "a block of weights")


def _upper_root(array: Floats, name: str) -> Floats:
    transposed = np.swapaxes(array, -1, -2)
    # Cholesky reads one triangle only, and would take any other for its mirror image.
    if not np.allclose(array, transposed, rtol=1e-6, atol=1e-9 * float(np.abs(array).max())):
        raise DataError(f"{name} is not symmetric")
    try:
        return np.swapaxes(np.linalg.cholesky(array), -1, -2)
    except np.linalg.LinAlgError as error:
        raise DataError(f"{name} is not positive definite") from error


@dataclass(frozen=True)
class Block:
    """A plain ridge regression: m rows of p features, in folds of ``size`` rows.

    Attributes:
        rows: Whitened features, shape (m, p), orthogonal to the bias.
        targets: Whitened targets, shape (m,), orthogonal to the bias.
        size: Rows of one document.
        bias_basis: Orthonormal columns that span the bias, shape (m, q); q = 0 where b is fixed.
        mean_rows: What the bias columns took from the rows, shape (q, p).
        mean_targets: What they took from the targets, shape (q,).
        squares: Squared length of all rows: the trace of X X'; 0 where it is rounding.
        raw_squares: The same before the bias was taken out.
    """

    rows: Floats
    targets: Floats
    size: int
    bias_basis: Floats
    mean_rows: Floats
    mean_targets: Floats
    squares: float
    raw_squares: float

    @classmethod
    def centred(cls, rows: Floats, targets: Floats, roots: Floats | None, free: bool) -> Block:
        """One logit a document, with weights roots^2: a free bias takes out weighted means."""
        shares = np.ones(len(rows)) if roots is None else roots**2
        total = float(shares.sum())
        mean_rows = product(rows.T, shares)[None] / total if free else rows[:0]
        mean_targets = (shares @ targets)[None] / total if free else targets[:0]
        if free:
            # Before weighing, the bias is one number a column: no outer product, one copy.
            rows = rows - mean_rows
            targets = targets - mean_targets
        if roots is not None:
            rows = np.multiply(rows, roots[:, None], out=rows if free else None)
            targets = targets * roots
        basis = np.sqrt(shares / total)[:, None] if free else np.empty((len(rows), 0))
        squares = _squared_length(rows)
        raw = squares + total * float(np.vdot(mean_rows, mean_rows))
        return cls(rows, targets, 1, basis, mean_rows, mean_targets, _clear(squares, raw), raw)

    @classmethod
    def projected(cls, rows: Floats, targets: Floats, size: int, columns: Floats) -> Block:
        """Any bias columns, shape (m, q): a free bias takes out their least squares fit."""
        raw = _squared_length(rows)
        basis, factor = np.linalg.qr(columns)
        mean_rows = np.linalg.solve(factor, basis.T @ rows)  # substitution: it is triangular
        mean_targets = np.linalg.solve(factor, basis.T @ targets)
        rows = rows - columns @ mean_rows
        targets = targets - columns @ mean_targets
        squares = _clear(_squared_length(rows), raw)
        return cls(rows, targets, size, basis, mean_rows, mean_targets, squares, raw)

    @property
    def dual(self) -> bool:
        """Whether the m x m system is the smaller one."""
        rows, columns = self.rows.shape
        return bool(rows <= columns)

    @property
    def shift(self) -> float:
        """What the dual Gram matrix has along the bias: above all its other eigenvalues."""
        return 2.0 * self.squares or 1.0

    def gram(self, dual: bool) -> Floats:
        """X X' + shift Q Q' (m x m, dual) or X'X (p x p), to overwrite.

        The second term moves the bias, which X lacks, from the lower end of the spectrum to the
        upper: there nothing has to be subtracted to take it out of I - H. Solutions do not change.
        """
        rows, basis = self.rows, self.bias_basis
        gram = product(rows, rows.T) if dual else product(rows.T, rows)
        if dual and basis.shape[1]:
            gram += self.shift * product(basis, basis.T)
        if not np.isfinite(gram).all():
            raise DataError("the features are too large: their products overflow")
        return gram

    def bias(self, delta: Floats) -> Floats:
        """The bias (q,) that belongs to whitened coefficients (p,)."""
        return self.mean_targets - self.mean_rows @ delta


def _squared_length(rows: Floats) -> float:
    flat = rows.ravel(order="K")
    return float(np.vdot(flat, flat))


def _clear(squares: float, raw: float) -> float:
    # What is left of constant features is the rounding of their mean.
    return squares if squares > 1e-24 * raw else 0.0
