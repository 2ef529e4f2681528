"""Low-rank affine alignment of the new space to the old one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from fala.base.products import Floats
from fala_sim.methods.alignment import Alignment, SpaceMap
from fala_sim.methods.method import Look, MethodSettings
from fala_sim.methods.situation import Situation
from fala_sim.methods.solve_flops import affine_flops
from fala_sim.records.meter import Stage


class Affine(Alignment):
    """The map ``x A + t`` with A of rank r, by reduced-rank ridge regression.

    Drift-Adapter trains such a map on pairs by gradient, whereas this method uses the closed-form
    minimum of its squared error. With B = (X'X + a I)^-1 X'Y of centred pairs, A = B V V', where V
    are the first r eigenvectors of Y'X B (Mukherjee and Zhu, "Reduced rank ridge regression and its
    kernel extensions", Statistical Analysis and Data Mining 4, 2011).
    """

    name = "affine"
    title = "Low-rank affine"
    row = 33
    look = Look("#5a9a3a", "*")
    headline = False

    def grid(self, situation: Situation) -> Sequence[MethodSettings]:
        """Return four ranks, as shares of the old dimension, with three penalties each.

        A penalty is a multiple of the mean square of a centred new coordinate, summed over texts.
        """
        dimension = situation.old.head.dimension
        return [
            {"rank": max(1, dimension // share), "ridge": ridge}
            for share in (8, 4, 2, 1)
            for ridge in (0.1, 1.0, 10.0)
        ]

    def fit_map(self, new: Floats, old: Floats, settings: MethodSettings, stage: Stage) -> SpaceMap:
        """Fit A and t."""
        rank = min(int(settings["rank"]), new.shape[1], old.shape[1])
        new_mean, old_mean = new.mean(axis=0), old.mean(axis=0)
        x, y = new - new_mean, old - old_mean
        gram, cross = x.T @ x, x.T @ y
        # If the embeddings do not vary, any penalty gives A = 0.
        penalty = float(settings["ridge"]) * (float(np.trace(gram)) / len(gram) or 1.0)
        gram.flat[:: len(gram) + 1] += penalty
        full = scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, lower=True), cross)
        _, vectors = scipy.linalg.eigh(cross.T @ full)  # sorted by rising eigenvalue
        leading = vectors[:, -rank:]
        matrix = full @ leading @ leading.T
        stage.forward_flops += affine_flops(len(new), new.shape[1], old.shape[1], rank)
        offset = old_mean - new_mean @ matrix
        return SpaceMap(matrix.astype(np.float32), offset.astype(np.float32))
