"""Forms of a linear map from old embeddings to new ones, both less their means."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from fala_export.bridging.moments import Matrix, Moments


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
