"""The devices' fit, for a vendor's studies of public annotators; see ``fala.solver.fit``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fala.base.errors import DataError, counted, type_of
from fala.base.threads import one_blas_thread
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.losses import Floats, check_arrays
from fala.model.scales import Scales
from fala.solver.design import GramRows
from fala.solver.fit import (
    BIAS_SCALE,
    DENSE_SCALE,
    LEXICAL_SCALE,
    SLOPE_SCALE,
    default_scales,
)
from fala.solver.fit import fit as fit_device
from fala.solver.forms import Form, Work, minimize
from fala.solver.gaussian import (
    SLOPE_DEVIATION,
    Gaussian,
    calibrate,
    evidence_of,
    gaussian_around,
    whiten,
)
from fala.solver.judge import judge
from fala.solver.newton import Problem
from fala.solver.training import Block, Inputs, TrainingSet, blocks_of, personal_of
from fala.text.sparse_rows import SparseRows

__all__ = [
    "BIAS_SCALE",
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
    "fit_personal",
    "judge",
    "one_blas_thread",
    "whiten",
]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Leave-one-out logits at any scales, faster than by ``fit_device``.

    Attributes:
        gaussian: The prior with all scales 1.
        vendor: The vendor's logits, shape (n, C).
        problem: The objective with all scales 1, without its rows.
        grams: The Gram matrix of each of k blocks' rows, shape (k, n, n), in float32.
    """

    gaussian: Gaussian
    vendor: Floats
    problem: Problem[GramRows]
    grams: NDArray[np.float32]

    @classmethod
    def of(cls, training: TrainingSet) -> LeftOut:
        """For examples that all have a label."""
        vendor = training.vendor_logits()
        gaussian = gaussian_around(
            training, vendor, Scales((1.0,) * len(training.blocks), 1.0, 1.0)
        )
        evidence = evidence_of(training, beside_labels=True)
        problem = gaussian.problem(training, vendor, evidence)
        grams = [part.gram().astype(np.float32) for part in problem.rows.parts]
        nothing = GramRows(np.empty((0, 0)))
        return cls(gaussian, vendor, problem.over(nothing), np.stack(grams))

    def full(self, scales: Scales, near: Floats | None = None) -> tuple[Floats, Floats]:
        """The full fit's leave-one-out logits (n, C), and its minimum.

        Args:
            scales: Of the Gaussian.
            near: The start, such as the minimum at other scales; None starts at 0.
        """
        gram = np.full(self.grams[0].shape, self.gaussian.deviation**2 * scales.bias)
        for block, scale in zip(self.grams, scales.blocks, strict=True):
            if scale:
                gram += scale * block
        problem = self.problem.over(GramRows(gram))
        column = np.sqrt(scales.slope) * problem.slope_column
        scaled = replace(problem, slope_column=column)
        minimum = minimize(Form(scaled, scaled.rows.gram), near)
        return minimum.left_out, minimum.start

    def calibrated(self, scales: Scales) -> Floats:
        """The calibrated model's leave-one-out logits (n, C)."""
        gaussian = replace(
            self.gaussian, slope=self.gaussian.slope * float(np.sqrt(scales.slope)),
            deviation=self.gaussian.deviation * float(np.sqrt(scales.bias)),
        )  # fmt: skip
        return calibrate(gaussian, self.vendor, self.problem.evidence).left_out

    def losses(self, logits: Floats) -> Floats:
        """The examples' losses by logits (n, C), in nats, shape (n,)."""
        evidence = self.problem.evidence
        return evidence.link.losses(evidence.labels, logits)


def fit_personal(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    words: SparseRows | None = None,
) -> PersonalModel:
    """Fit a personal model to given embeddings, without a device: the one fit of the device.

    Args:
        head: The vendor's head.
        inputs: The head's inputs of n examples, shape (n, D); see ``Head.inputs``.
        logits: Targets, shape (n, C); NaN where there is none. Where an example has a label, too,
            the label counts.
        labels: Class shares or numbers, shape (n, C), NaN where there is none; see
            ``Head.label_shares``.
        words: Their n-grams, where the head has a lexical view; see ``Head.words``.

    Raises:
        DataError: If there is neither a logit nor a label, a shape does not fit, or a number is
            not finite.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> head = fala_export.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        >>> shares = head.label_shares(["rude", "rude", "fine", "fine"])  # this user's
        >>> personal = fit_personal(head, vectors, labels=shares)
        >>> bool(personal.logits(vectors)[0, 0] > head.vendor_model().logits(vectors)[0, 0])
        True
    """
    if not isinstance(head, Head):
        raise DataError(f"head is a fala_export.Head, not {type_of(head)}")
    check_arrays(inputs=inputs)
    shape = (len(inputs), len(head.bias))
    columns = head.weight.shape[1]
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise DataError(f"inputs of shape (n, {columns}) expected, not {inputs.shape}")
    if (words is None) != (head.lexical is None):
        raise DataError(
            "words go with a head that has a lexical view, and with no other: see Head.words"
        )
    if words is not None and len(words) != len(inputs):
        raise DataError(f"{counted(len(inputs), 'input')}, but the words of {len(words)}")
    blocks = blocks_of(head, Inputs(inputs), words)
    training = TrainingSet(
        blocks, head.bias, _array(labels, shape, "labels"), _array(logits, shape, "logits"),
        head.link,
    )  # fmt: skip
    if not training.used.any():
        raise DataError("neither an old logit nor a label to fit")
    personal = fit_device(training).full
    return personal_of(head, personal.weights, personal.bias)


def _array(values: ArrayLike | None, shape: tuple[int, int], name: str) -> Floats:
    if values is None:
        return np.full(shape, np.nan)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} are not numbers: {error}") from error
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape:
        raise DataError(f"{name} of shape {shape} expected, not {array.shape}")
    return array
