"""Orthogonal Procrustes alignment of the new space to the old one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from fala.base.products import Floats
from fala_sim.methods.alignment import Alignment, SpaceMap, unit_rows
from fala_sim.methods.method import Look, MethodSettings
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import procrustes_flops
from fala_sim.records.meter import Stage


class Procrustes(Alignment):
    """The rotation R that maps new embeddings X closest to the old embeddings Y.

    R = U V' of the singular value decomposition X'Y = U S V' (Schönemann, "A generalized solution
    of the orthogonal Procrustes problem", Psychometrika 31, 1966). The smaller space is padded with
    zeros, which gives the thin decomposition: R then has orthonormal columns (or rows, if the old
    space is the larger one).
    """

    name = "procrustes"
    title = "Procrustes"
    row = 32
    look = Look("#008f68", "X")
    headline = False

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return settings with and without centring and unit length, with three scales each.

        ``"diagonal"`` scales each old coordinate, as Drift-Adapter does after its maps; ``"one"``
        scales all by the same factor.
        """
        return [
            {"centre": centre, "unit": unit, "scale": scale}
            for centre in (0, 1)
            for unit in (0, 1)
            for scale in ("none", "one", "diagonal")
        ]

    def fit_map(self, new: Floats, old: Floats, settings: MethodSettings, stage: Stage) -> SpaceMap:
        """Fit R, and then the scale by least squares."""
        if unit := bool(settings["unit"]):
            # The old head expects embeddings of the old length, so their mean length is used.
            new, old = unit_rows(new), unit_rows(old) * np.linalg.norm(old, axis=1).mean()
        new_mean, old_mean = np.zeros(new.shape[1]), np.zeros(old.shape[1])
        if settings["centre"]:
            new_mean, old_mean = new.mean(axis=0), old.mean(axis=0)
        x, y = new - new_mean, old - old_mean
        left, _, right = scipy.linalg.svd(x.T @ y, full_matrices=False)
        matrix = left @ right
        matrix = matrix * _scale(str(settings["scale"]), x @ matrix, y)
        stage.forward_flops += procrustes_flops(len(new), new.shape[1], old.shape[1])
        offset = old_mean - new_mean @ matrix
        return SpaceMap(matrix.astype(np.float32), offset.astype(np.float32), unit)


def _scale(kind: str, rotated: Floats, old: Floats) -> float | Floats:
    """Return least squares factors of rotated embeddings: 1, one for all, or one per coordinate."""
    if kind == "none":
        return 1.0
    axis = None if kind == "one" else 0
    squares = np.sum(rotated**2, axis=axis)
    # A constant coordinate needs no factor.
    fitted = np.sum(rotated * old, axis=axis) / np.where(squares > 0, squares, 1)
    return np.asarray(fitted)
