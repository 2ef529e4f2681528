"""Representatives of k-means clusters, for the paper's ablation (section 5.1).

Sources:
    Drawing by distance: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding",
        SODA 2007.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fala.release import Vectors, representatives, unit_vectors

Indices = NDArray[np.int64]

_STEPS = 25
_LEAST_GAP = 1e-6  # so that vectors equal to a centre can still be drawn if no others are left


def select_by_means(inputs: Vectors, count: int, seed: int) -> Indices:
    """Choose min(count, n) examples, shape (count,): of each cluster of k-means the medoid first.

    Args:
        inputs: One row an example, (n, dim); only directions matter.
        count: How many.
        seed: Seed of every draw.
    """
    if count >= len(inputs):
        return np.arange(len(inputs))
    unit = unit_vectors(inputs)
    return representatives(unit, clusters_of_means(unit, count, seed), count, seed)


def clusters_of_means(unit: Vectors, count: int, seed: int) -> Indices:
    """Cluster directions by k-means into at most ``count`` clusters, numbered without gaps.

    Lloyd's algorithm; an empty cluster (equal vectors) keeps its centre, and is left out.
    """
    centres = _spread_centres(unit, count, np.random.default_rng(seed))
    assignment = _nearest_centres(unit, centres)
    for _ in range(_STEPS - 1):
        order = np.argsort(assignment, kind="stable")
        filled, starts, sizes = np.unique(assignment[order], return_index=True, return_counts=True)
        centres[filled] = np.add.reduceat(unit[order], starts, axis=0) / sizes[:, None]
        before, assignment = assignment, _nearest_centres(unit, centres)
        if np.array_equal(before, assignment):
            break
    return np.asarray(np.unique(assignment, return_inverse=True)[1], dtype=np.int64)


def _nearest_centres(unit: Vectors, centres: Vectors) -> Indices:
    """The nearest centre of each vector, (n,), by |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2)."""
    half = np.einsum("kd,kd->k", centres, centres) / 2
    return np.asarray((unit @ centres.T - half).argmax(axis=1))


def _spread_centres(unit: Vectors, count: int, random: np.random.Generator) -> Vectors:
    """Draw k-means++ centres, with probability proportional to 1 - cosine to the nearest centre."""
    gaps = np.ones(len(unit), dtype=np.float32)
    chosen: list[int] = []
    for _ in range(count):
        chances = gaps.astype(np.float64)
        chosen.append(int(random.choice(len(gaps), p=chances / chances.sum())))
        gap = 1 - unit @ unit[chosen[-1]]
        np.minimum(gaps, np.maximum(gap, _LEAST_GAP), out=gaps)
        gaps[chosen[-1]] = 0
    return unit[chosen]
