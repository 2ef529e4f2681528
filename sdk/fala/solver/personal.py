"""A personal model without a device, for those who compare."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fala.errors import DataError
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.losses import Floats
from fala.model.prior import PopulationPrior
from fala.solver.blocks import blocks_of, personal_of
from fala.solver.fit import fit
from fala.solver.training import Inputs, TrainingSet
from fala.text.sparse_rows import SparseRows


def fit_personal(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    prior: PopulationPrior | None = None,
    words: SparseRows | None = None,
) -> PersonalModel:
    """Fit a personal model to embeddings that are there already: the one fit of the device.

    Args:
        head: The vendor's head.
        inputs: The head's inputs of n examples, shape (n, D); see ``Head.inputs``.
        logits: Targets, shape (n, C); NaN where there is none. Where an example has a label, too,
            the label counts.
        labels: Class shares, shape (n, C), NaN where there is none; see ``Head.label_shares``.
        prior: How people differ from the head; None takes an isotropic Gaussian around it.
        words: Their n-grams, where the head has a lexical view; see ``Head.words``.

    Raises:
        DataError: If there is neither a logit nor a label, a shape does not fit, or a number is
            not finite.
    """
    shape = (len(inputs), len(head.bias))
    columns = head.weight.shape[1]
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise DataError(f"inputs of shape (n, {columns}) expected, not {inputs.shape}")
    if (words is None) != (head.lexical is None):
        raise DataError(
            "words go with a head that has a lexical view, and with no other: see Head.words"
        )
    if words is not None and len(words) != len(inputs):
        raise DataError(f"{len(inputs)} inputs, but the words of {len(words)} examples")
    blocks = blocks_of(head, Inputs(inputs), words, prior)
    training = TrainingSet(
        blocks, head.bias, _given(labels, shape, "labels"), _given(logits, shape, "logits")
    )
    if not training.telling.any():
        raise DataError("neither an old logit nor a label to fit")
    found = fit(training)
    personal = found.full
    return personal_of(head, personal.weights, personal.bias)


def _given(values: ArrayLike | None, shape: tuple[int, int], name: str) -> Floats:
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
