"""A block's Gaussian as rows: features in which the prior is the identity.

With omega = m + A delta and delta ~ Normal(0, I), a block adds m . x + (A' x) . delta to a logit:
A' x is a row. The population prior has A = [diag(variance)^1/2, factors']; the isotropic one
A = v^1/2 I, and is meant at the user's mean input, so that omega alone does not move the mean
logit. Its v is such that a row's mean square is 1, for embeddings and for n-grams, whatever their
lengths; the rest is the block's scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fala.model.losses import Floats
from fala.solver.design import CentredRows, DenseRows, Rows
from fala.solver.training import Block, Features, Inputs
from fala.solver.triangles import Triangle
from fala.text.sparse_rows import SparseRows

#: Standard deviation of people's bias, without a population prior.
BIAS_DEVIATION = 1.0

# Share of the mean variance that is added to a covariance that need not have full rank.
_JITTER = 1e-9
# Texts whose n-grams differ by less than this are all the same.
_ALIKE = 1e-9
# And what is added at least: a bridge that says nothing of a text has a covariance of 0.
_LEAST = 1e-30


class Whitened(Protocol):
    """One block of one logit, in coordinates delta."""

    @property
    def size(self) -> int:
        """How many coordinates."""

    def rows(self, inputs: Features) -> Rows:
        """Rows of n examples."""

    def offset(self, inputs: Features) -> Floats:
        """What the Gaussian's mean adds to the vendor's logits, shape (n,)."""

    def lift(self, delta: Floats) -> tuple[Floats, float]:
        """(omega - w, its share of b - the vendor's b) of whitened numbers (p,)."""


@dataclass(frozen=True, eq=False)
class WhitenedWords:
    """N-grams.

    Attributes:
        centre: The user's mean row, shape (p,).
        root: Square root of a coordinate's variance.
    """

    centre: Floats
    root: float

    @property
    def size(self) -> int:
        """How many coordinates."""
        return len(self.centre)

    def rows(self, inputs: Features) -> CentredRows:
        """Rows of n examples."""
        if not isinstance(inputs, SparseRows):
            raise TypeError("n-grams expected")
        return CentredRows(inputs, self.centre, self.root)

    def offset(self, inputs: Features) -> Floats:
        """Nothing: the mean is the vendor's own."""
        return np.zeros(len(inputs))

    def lift(self, delta: Floats) -> tuple[Floats, float]:
        """(v - the vendor's v, its share of b - the vendor's b) of whitened numbers (p,)."""
        weights = self.root * delta
        return weights, -float(self.centre @ weights)


@dataclass(frozen=True, eq=False)
class WhitenedInputs:
    """One block of one logit, in coordinates delta.

    Attributes:
        centre: What is taken from the coordinates, shape (q,).
        turn: L, lower, of the coordinates' covariance B V B' = L L', shape (q, q): centred
            coordinates times L are the first rows. None where the coordinates are x: times
            ``root`` then.
        root: Square roots of the variances, shape (d,), where the coordinates are x.
        factors: Further rows [x, 1] @ factors', shape (k, d + 1).
        mean: The Gaussian's mean of (omega - w, b - the vendor's b), shape (d + 1,).
        basis: The inputs' basis B, shape (q, d), where they have one.
    """

    centre: Floats
    turn: Floats | None
    root: Floats
    factors: Floats
    mean: Floats
    basis: Floats | None

    @property
    def size(self) -> int:
        """How many coordinates."""
        return len(self.root if self.turn is None else self.turn) + len(self.factors)

    def rows(self, inputs: Features) -> DenseRows:
        """Rows of n examples."""
        if not isinstance(inputs, Inputs):
            raise TypeError("embeddings expected")
        centred = inputs.coordinates - self.centre
        first = centred * self.root if self.turn is None else centred @ self.turn
        if not len(self.factors):
            return DenseRows(np.asarray(first, dtype=np.float64))
        return DenseRows(np.hstack([first, self._products(inputs, self.factors)]))

    def offset(self, inputs: Features) -> Floats:
        """What the Gaussian's mean adds to the vendor's logits, shape (n,)."""
        if not isinstance(inputs, Inputs) or not self.mean.any():
            return np.zeros(len(inputs))
        return self._products(inputs, self.mean[None])[:, 0]

    def lift(self, delta: Floats) -> tuple[Floats, float]:
        """(omega - w, its share of b - the vendor's b) of whitened numbers (p,)."""
        count = len(delta) - len(self.factors)
        part = delta[:count]
        if self.turn is None or self.basis is None:
            omega = self.root * part
            at_centre = float(self.centre @ omega)
        else:  # B V B' = L L', so L delta are the coordinates' numbers of omega = V B' L'^-1 delta
            inner = Triangle(self.turn).solve_transposed(part)
            omega = self.root**2 * (self.basis.T @ inner)
            at_centre = float(self.centre @ (self.basis @ omega))
        moved = self.factors.T @ delta[count:] + self.mean
        return omega + moved[:-1], float(moved[-1]) - at_centre

    def _products(self, inputs: Inputs, numbers: Floats) -> Floats:
        """[x, 1] times rows of d + 1 numbers (k, d + 1), shape (n, k)."""
        return inputs.logits(numbers[:, :-1]) + numbers[:, -1]


def whiten(block: Block) -> tuple[Whitened, float]:
    """The maker of a block's rows, the same for all logits, and the bias's standard deviation."""
    inputs = block.inputs
    if isinstance(inputs, SparseRows):
        return _words(inputs), BIAS_DEVIATION
    basis = None if inputs.basis is None else inputs.basis.astype(np.float64)
    d = block.weight.shape[1]
    if block.prior is None:
        centre = _mean(inputs)
        length = _length(inputs, centre, basis)
        variance = np.full(d, 1.0 / length if length > _ALIKE else 1.0)
        factors, mean, deviation = np.empty((0, d + 1)), np.zeros(d + 1), BIAS_DEVIATION
    else:
        prior = block.prior
        centre = np.zeros(inputs.coordinates.shape[1])
        variance = prior.variance[:-1].astype(np.float64)
        factors, mean = prior.factors.astype(np.float64), prior.mean.astype(np.float64)
        deviation = float(np.sqrt(prior.variance[-1]))
    root = np.sqrt(variance)
    turn = None
    if basis is not None:
        inner = (basis * variance) @ basis.T
        inner.flat[:: len(inner) + 1] += max(_JITTER * np.trace(inner) / len(inner), _LEAST)
        turn = np.linalg.cholesky(inner)
    return WhitenedInputs(centre, turn, root, factors, mean, basis), deviation


def _mean(inputs: Inputs) -> Floats:
    if not len(inputs.coordinates):
        return np.zeros(inputs.coordinates.shape[1])
    return np.asarray(inputs.coordinates.mean(axis=0, dtype=np.float64))


def _words(rows: SparseRows) -> WhitenedWords:
    centre = rows.mean()
    square = float(rows.squared_lengths().mean() - centre @ centre) if len(rows) else 0.0
    return WhitenedWords(centre, 1.0 / np.sqrt(square) if square > _ALIKE else 1.0)


def _length(inputs: Inputs, centre: Floats, basis: Floats | None) -> float:
    """Mean squared length of the centred features, with what a bridge does not show of them."""
    centred = inputs.coordinates - centre
    if basis is not None:
        # |x|^2 = c B B' c without x itself.
        length = float(np.einsum("ij,jk,ik->", centred, basis @ basis.T, centred, optimize=True))
    else:
        length = float(np.einsum("ij,ij->", centred, centred, dtype=np.float64))
    return length / max(len(centred), 1) + inputs.unseen
