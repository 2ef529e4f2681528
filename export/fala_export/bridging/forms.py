"""Forms of a linear map from old embeddings to new ones, both less their means.

They need only sums of squares and products over the documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from fala.model.heads import Vectors

Matrix: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]

_BLOCK = 4_096  # documents that are converted to float64 at a time


@dataclass(frozen=True)
class Centre:
    """Mean embeddings of some documents.

    Attributes:
        old: Shape (d_old,).
        new: Shape (d_new,).
    """

    old: Matrix
    new: Matrix

    @classmethod
    def of(cls, old: Vectors, new: Vectors, rows: Rows) -> Centre:
        """The means over some rows of two arrays of embeddings."""
        totals = np.zeros(old.shape[1]), np.zeros(new.shape[1])
        for block in _blocks(rows):
            totals[0][:] += old[block].sum(axis=0, dtype=np.float64)
            totals[1][:] += new[block].sum(axis=0, dtype=np.float64)
        return cls(totals[0] / len(rows), totals[1] / len(rows))


@dataclass(frozen=True)
class Moments:
    """Sums over documents of products of coordinates, each less its centre.

    Attributes:
        documents: Number of documents.
        old: Old by old, shape (d_old, d_old).
        cross: Old by new, shape (d_old, d_new).
        new: Squares of the new, shape (d_new,).
    """

    documents: int
    old: Matrix
    cross: Matrix
    new: Matrix

    @classmethod
    def of(cls, old: Vectors, new: Vectors, rows: Rows, centre: Centre) -> Moments:
        """The moments of some rows of two arrays of embeddings, about any centre."""
        size, width = old.shape[1], new.shape[1]
        sums = cls(len(rows), np.zeros((size, size)), np.zeros((size, width)), np.zeros(width))
        for block in _blocks(rows):
            left, right = old[block] - centre.old, new[block] - centre.new
            sums.old[:] += left.T @ left
            sums.cross[:] += left.T @ right
            sums.new[:] += (right**2).sum(axis=0)
        return sums

    def errors(self, matrix: Matrix) -> Matrix:
        """Sums of squared errors (d_new,) of a map (d_old, d_new) of centred embeddings."""
        errors = self.new - 2 * (matrix * self.cross).sum(axis=0)
        # The difference of near equals may fall below zero by rounding.
        return np.maximum(errors + (matrix * (self.old @ matrix)).sum(axis=0), 0.0)


def _blocks(rows: Rows) -> list[Rows]:
    return [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]


class Ridge:
    """Ridge regression at any strength, from one eigendecomposition.

    Args:
        moments: Moments of the training documents.
    """

    def __init__(self, moments: Moments) -> None:
        self._values, self._vectors = linalg.eigh(moments.old)
        self._rotated = self._vectors.T @ moments.cross
        self._unit = moments.old.trace() / len(moments.old) / moments.documents

    def fit(self, strength: float) -> Matrix:
        """The map (d_old, d_new) with the least squared error plus penalty.

        Args:
            strength: Weight of the penalty, in documents of mean variance.
        """
        return self._vectors @ (self._rotated / self._penalized(strength))

    def directions(self, strength: float) -> Matrix:
        """Orthonormal directions of the new space, shape (d_new, min(d_old, d_new)).

        Those that the fit explains most of come first. ``fit @ first @ first.T``, with the first r
        of them, is the best map of rank r under the same penalty (Mukherjee and Zhu, "Reduced rank
        ridge regression and its kernel extensions", Statistical Analysis and Data Mining 2011).
        """
        fitted = self._rotated / np.sqrt(self._penalized(strength))
        return linalg.svd(fitted, full_matrices=False)[2].T

    def _penalized(self, strength: float) -> Matrix:
        # Eigenvalues without variance may fall below zero by rounding.
        return (np.maximum(self._values, 0.0) + strength * self._unit)[:, None]


def procrustes(moments: Moments) -> Matrix:
    """The rotation times a scale (d_old, d_new) that brings old nearest to new.

    Schönemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.
    Where dimensions differ, the smaller space is padded with zeros, and the rotation is cut to the
    existing dimensions; the scale is the best one for the cut rotation.
    """
    left, values, right = linalg.svd(moments.cross, full_matrices=False)
    rotation: Matrix = left @ right
    return rotation * (values.sum() / (rotation * (moments.old @ rotation)).sum())


def errors_by_rank(moments: Moments, fit: Matrix, directions: Matrix) -> Matrix:
    """Squared errors of a ridge fit by rank: projected on its first 1, 2, ... directions.

    Args:
        moments: Moments of the held-out documents.
        fit: The map of full rank, (d_old, d_new).
        directions: From ``Ridge.directions``, (d_new, ranks).
    """
    projected = fit @ directions
    # Directions are orthonormal, so their reductions of the error add up.
    reductions = 2 * ((moments.cross @ directions) * projected).sum(axis=0)
    reductions -= (projected * (moments.old @ projected)).sum(axis=0)
    return np.maximum(moments.new.sum() - np.cumsum(reductions), 0.0)
