"""Probabilities by logits, and their losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import UsageError, type_of
from fala.base.products import Floats


def check_arrays(**values: object) -> None:
    """Check that arguments are arrays of numbers; the caller checks their shapes.

    Args:
        values: The arguments, by name.

    Raises:
        UsageError: An argument is not an array of numbers.
    """
    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            raise UsageError(f"{name} must be a NumPy array of numbers, not {type_of(value)}")


def logistic(z: NDArray[np.floating]) -> Floats:
    """Compute the logistic function of each logit."""
    # The form exp(-log(1 + exp(-z))) neither overflows nor loses digits at either end.
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)), dtype=np.float64)


def probabilities(z: NDArray[np.floating]) -> Floats:
    """Return the class shares of logits (n, C): the logistic function of one, else the softmax."""
    return logistic(z) if z.shape[1] == 1 else np.asarray(softmax(z), dtype=np.float64)


def label_probabilities(z: NDArray[np.floating]) -> Floats:
    """Return the probability of every label, (n, number of labels), by logits (n, C)."""
    shares = probabilities(z.astype(np.float64))
    return np.hstack([1 - shares, shares]) if shares.shape[1] == 1 else shares


def binary_cross_entropy(labels: Floats, z: Floats) -> Floats:
    """Return the cross-entropy of each logit against its own share, in nats."""
    return np.asarray(labels * np.logaddexp(0.0, -z) + (1 - labels) * np.logaddexp(0.0, z))


def cross_entropy(labels: Floats, z: Floats) -> Floats:
    """Return the cross-entropy of logits (n, C) against class shares (n, C), in nats, (n,)."""
    if z.shape[1] == 1:
        return binary_cross_entropy(labels, z)[:, 0]
    return np.asarray(-(labels * _log_softmax(z)).sum(axis=1))


def softmax(z: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the softmax over the last axis."""
    # SciPy has a softmax, but importing scipy.special takes longer than the rest of `import fala`.
    return np.asarray(np.exp(_log_softmax(z)))


def _log_softmax(z: NDArray[np.floating]) -> NDArray[np.floating]:
    shifted = z - z.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
