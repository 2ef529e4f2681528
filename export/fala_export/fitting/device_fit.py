"""The devices' fit, for a vendor's studies of public annotators; see ``fala.solver.fit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.model.losses import Floats
from fala.solver.design import GramRows, JointRows
from fala.solver.fit import (
    DENSE_SCALE,
    LEXICAL_SCALE,
    SLOPE_SCALE,
    default_scales,
)
from fala.solver.fit import fit as fit_device
from fala.solver.forms import ExampleForm, Work, minimize
from fala.solver.gaussian import SLOPE_DEVIATION, evidence_of, gaussian_around, whiten
from fala.solver.judge import judge
from fala.solver.newton import Problem
from fala.solver.threads import one_blas_thread
from fala.solver.training import Block, Inputs, TrainingSet, blocks_of
from fala.text.sparse_rows import SparseRows

__all__ = [
    "DENSE_SCALE",
    "LEXICAL_SCALE",
    "SLOPE_DEVIATION",
    "SLOPE_SCALE",
    "Block",
    "Inputs",
    "LeftOut",
    "SparseRows",
    "TrainingSet",
    "Work",
    "blocks_of",
    "default_scales",
    "fit_device",
    "judge",
    "one_blas_thread",
    "whiten",
]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The leave-one-out loss of the full fit at any scales, faster than by ``fit_device``.

    Attributes:
        problem: The objective with all scales 1.
        grams: The Gram matrix of every block's rows, shape (n, n), in float32.
    """

    problem: Problem[JointRows]
    grams: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, training: TrainingSet) -> LeftOut:
        """For examples that all have a label."""
        vendor, ones = training.vendor_logits(), [1.0] * (len(training.blocks) + 1)
        gaussian = gaussian_around(training, vendor, ones)
        evidence = evidence_of(training, beside_labels=True)
        problem = gaussian.problem(training, vendor, evidence)
        return cls(problem, tuple(part.gram().astype(np.float32) for part in problem.rows.parts))

    def loss(self, scales: Sequence[float], near: Floats | None = None) -> tuple[float, Floats]:
        """The sum of the examples' losses, in nats.

        Args:
            scales: See ``fit_device``.
            near: The start, such as the minimum at other scales; None starts at 0.

        Returns:
            The loss, and the minimum.
        """
        *block_scales, slope_scale = scales
        gram = np.full(self.grams[0].shape, self.problem.rows.bias**2)
        for block, scale in zip(self.grams, block_scales, strict=True):
            if scale:
                gram += scale * block
        problem = self.problem.over(GramRows(gram))
        scaled = replace(problem, slope_column=np.sqrt(slope_scale) * problem.slope_column)
        minimum = minimize(ExampleForm(scaled, scaled.rows.gram), near)
        losses = problem.evidence.link.losses(problem.evidence.labels, minimum.left_out)
        return float(losses.sum()), minimum.start
