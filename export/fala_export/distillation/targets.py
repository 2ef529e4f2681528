"""What the student should say: the teacher's embeddings in fewer dimensions; and how near it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def projection(embeddings: Floats, dimension: int) -> Floats:
    """Find the subspace that keeps most of the embeddings' squared length.

    Principal directions about the origin, not about the mean: cosines are what is kept.

    Args:
        embeddings: Shape (n, wide).
        dimension: Directions wanted.

    Returns:
        Shape (wide, dimension), orthonormal columns, the strongest direction first; the identity
        where every direction is wanted.
    """
    wide = embeddings.shape[1]
    if dimension == wide:
        return np.eye(wide, dtype=np.float32)
    _, directions = np.linalg.eigh(embeddings.T.astype(np.float64) @ embeddings)
    return directions[:, ::-1][:, :dimension].astype(np.float32)


def figures(student: Floats, targets: Floats, teacher: Floats) -> dict[str, float]:
    """Compare the student with the teacher on held-out texts.

    Args:
        student: Shape (n, dim).
        targets: The teacher's projected embeddings, same shape.
        teacher: The teacher's own embeddings, shape (n, wide).

    Returns:
        Mean cosine to the target, and Spearman's correlation of the cosines of all pairs
        of texts, student against unprojected teacher.
    """
    from scipy import stats

    upper = np.triu_indices(len(student), 1)
    student, targets, teacher = unit(student), unit(targets), unit(teacher)
    ranks = stats.spearmanr((student @ student.T)[upper], (teacher @ teacher.T)[upper])
    return {
        "held_out_cosine": round(float((student * targets).sum(1).mean()), 4),
        "held_out_pair_spearman": round(float(ranks.statistic), 4),
    }


def unit(rows: Floats) -> Floats:
    """Scale every row to length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
