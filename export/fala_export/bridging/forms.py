"""Forms of a linear map from old embeddings to new ones, both less their means.

Sums of squares and products are all that they need to know of the documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from fala.release import Vectors

Matrix: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]

_BLOCK = 4_096  # documents that are in float64 at a time


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
        documents: How many they are.
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
        """What a map (d_old, d_new) of centred embeddings leaves: sums of squares, (d_new,)."""
        left = self.new - 2 * (matrix * self.cross).sum(axis=0)
        # The difference of near equals may fall below zero by rounding.
        return np.maximum(left + (matrix * (self.old @ matrix)).sum(axis=0), 0.0)


def _blocks(rows: Rows) -> list[Rows]:
    return [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]


class Ridge:
    """Least squares with a penalty, at any strength from one eigendecomposition.

    Args:
        moments: Of the documents to learn from.
    """

    def __init__(self, moments: Moments) -> None:
        self._values, self._vectors = linalg.eigh(moments.old)
        self._turned = self._vectors.T @ moments.cross
        self._unit = moments.old.trace() / len(moments.old) / moments.documents

    def fit(self, strength: float) -> Matrix:
        """The map (d_old, d_new) with the least squared error plus penalty.

        Args:
            strength: How many documents of mean variance the pull to zero weighs.
        """
        return self._vectors @ (self._turned / self._penalized(strength))

    def directions(self, strength: float) -> Matrix:
        """Orthonormal directions of the new space, shape (d_new, min(d_old, d_new)).

        Those that the fit explains most of come first. ``fit @ first @ first.T``, with the first r
        of them, is the best map of rank r under the same penalty (Mukherjee and Zhu, "Reduced rank
        ridge regression and its kernel extensions", Statistical Analysis and Data Mining 2011).
        """
        fitted = self._turned / np.sqrt(self._penalized(strength))
        return linalg.svd(fitted, full_matrices=False)[2].T

    def _penalized(self, strength: float) -> Matrix:
        # Values of what has no variance may fall below zero by rounding.
        return (np.maximum(self._values, 0.0) + strength * self._unit)[:, None]


def procrustes(moments: Moments) -> Matrix:
    """The rotation times a scale (d_old, d_new) that brings old nearest to new.

    Schönemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.
    Where dimensions differ, the smaller space is filled up with zeros, and what a rotation makes
    of it is cut to the dimensions that there are; the scale is the best one for what is left.
    """
    left, values, right = linalg.svd(moments.cross, full_matrices=False)
    rotation: Matrix = left @ right
    return rotation * (values.sum() / (rotation * (moments.old @ rotation)).sum())


def errors_by_rank(moments: Moments, fit: Matrix, directions: Matrix) -> Matrix:
    """Squared errors of a ridge fit kept in its first directions, one for each number of them.

    Args:
        moments: Of the documents to measure on.
        fit: The map of full rank, (d_old, d_new).
        directions: As of ``Ridge.directions``, (d_new, ranks).
    """
    kept = fit @ directions
    # Directions are orthonormal, so what each takes off the error adds up.
    taken = 2 * ((moments.cross @ directions) * kept).sum(axis=0)
    taken -= (kept * (moments.old @ kept)).sum(axis=0)
    return np.maximum(moments.new.sum() - np.cumsum(taken), 0.0)
