"""Sums of squares and products: all that learning a linear map needs to know of its documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
