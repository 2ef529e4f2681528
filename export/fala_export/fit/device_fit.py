"""Run the devices' fit on given embeddings, without a device; see ``fala.solver.fit``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fala.base.errors import DataError, counted, type_of
from fala.base.products import Floats
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.losses import check_arrays
from fala.solver.fit import fit
from fala.solver.training import TrainingSet, blocks_of, personal_of
from fala.text.sparse_rows import SparseRows


def fit_personal(
    head: Head,
    inputs: Vectors,
    *,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    ngrams: SparseRows | None = None,
) -> PersonalModel:
    """Fit a personal model to given embeddings, with the device's fit but without a device.

    Args:
        head: The vendor's head.
        inputs: The head's inputs for n examples, shape (n, D); see ``Head.inputs``.
        logits: Target logits, shape (n, C); NaN if there is no target. If an example also has a
            label, the label counts.
        labels: Class shares or numbers, shape (n, C); NaN if there is no label. See
            ``Head.label_shares``.
        ngrams: The examples' n-grams, if the head has a lexical view; see ``Head.ngrams``.

    Raises:
        DataError: There is neither a logit nor a label, a shape does not fit, or a number is not
            finite.

    Examples:
        >>> vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.8]], np.float32)
        >>> head = fala_export.fit_head(vectors, ["fine", "fine", "rude", "rude"])
        >>> shares = head.label_shares(["rude", "rude", "fine", "fine"])  # this user's
        >>> personal = fit_personal(head, vectors, labels=shares)
        >>> bool(personal.logits(vectors)[0, 0] > head.vendor_model().logits(vectors)[0, 0])
        True
    """
    if not isinstance(head, Head):
        raise DataError(f"head must be a fala_export.Head, not {type_of(head)}")
    check_arrays(inputs=inputs)
    shape = (len(inputs), len(head.bias))
    columns = head.weight.shape[1]
    if inputs.ndim != 2 or inputs.shape[1] != columns:
        raise DataError(f"inputs must be of shape (n, {columns}), not {inputs.shape}")
    if (ngrams is None) != (head.lexical is None):
        raise DataError(
            "ngrams must be given if, and only if, the head has a lexical view; see Head.ngrams"
        )
    if ngrams is not None and len(ngrams) != len(inputs):
        raise DataError(
            f"there are {counted(len(inputs), 'input')}, but the n-grams of {len(ngrams)} examples"
        )
    blocks = blocks_of(head, inputs, ngrams)
    training = TrainingSet(
        blocks, head.bias, _array(labels, shape, "labels"), _array(logits, shape, "logits"),
        head.link,
    )  # fmt: skip
    if not training.used.any():
        raise DataError("there is neither an old logit nor a label to fit; pass logits or labels")
    personal = fit(training).full
    return personal_of(head, personal.weights, personal.bias)


def _array(values: ArrayLike | None, shape: tuple[int, int], name: str) -> Floats:
    if values is None:
        return np.full(shape, np.nan)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers: {error}") from error
    if array.shape == shape[:1] and shape[1] == 1:
        array = array[:, None]
    if array.shape != shape:
        raise DataError(f"{name} must be of shape {shape}, not {array.shape}")
    return array
