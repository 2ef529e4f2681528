"""A bridge, fitted to public texts in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError, be, counted
from fala.base.threads import one_blas_thread
from fala.model.bridge import Bridge
from fala.model.heads import Vectors
from fala.model.losses import check_arrays

# Penalties, in units of the mean variance of a text.
_STRENGTHS = np.logspace(-2, 4, 13)
HELD_OUT = 0.2  # share of the texts that chooses the penalty
_SPARE = 2  # fewer training texts could all be mapped exactly, by matrix and offset
_MOST = 10_000  # texts that it is fitted to; see ``device_sim/results/README.md``
_ALIKE = 1e-12  # variance of equal texts by rounding, as a share of the mean square


def least_documents(dimension: int) -> int:
    """The number of distinct documents that a map from a space of some dimension needs."""
    return math.ceil((dimension + _SPARE) / (1 - HELD_OUT))


def most_documents(dimension: int) -> int:
    """The number of documents beyond which a map from a space of some dimension gains little."""
    return max(_MOST, 2 * least_documents(dimension))


def check_enough(documents: int, dimension: int) -> None:
    """Check that there are enough documents for a map from a space of some dimension.

    Raises:
        DataError: There are not.
    """
    fewest = least_documents(dimension)
    if documents < fewest:
        raise DataError(
            f"{counted(documents, 'distinct public text')} {be(documents)} too few: a bridge from "
            f"{counted(dimension, 'dimension')} takes {fewest}, and a good one thousands"
        )


@dataclass(frozen=True)
class FittedBridge:
    """A bridge, and what held-out documents say of it.

    Attributes:
        bridge: Fitted to all documents.
        strength: Weight of the penalty, in documents of mean variance.
        explained: Share of the held-out documents' variance that the map of the others explains;
            predicting their mean explains 0.
        documents: Number of documents.
        held_out: Number of those that chose the strength.
    """

    bridge: Bridge
    strength: float
    explained: float
    documents: int
    held_out: int


def fit_bridge(source: str, old: Vectors, new: Vectors) -> Bridge:
    """Fit the map from an earlier backbone's embeddings to a new one's; see ``learn_bridge``.

    Args:
        source: The earlier backbone's ``Bundle.backbone_digest``.
        old: Its embeddings of n distinct public texts, shape (n, d_old); maybe memory-mapped.
        new: The new backbone's embeddings of the same, shape (n, d_new).

    Raises:
        DataError: See ``learn_bridge``.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> old = rng.normal(size=(50, 3)).astype(np.float32)
        >>> bridge = fala_export.fit_bridge("0" * 64, old, old @ [[2, 0], [0, 1], [1, 1]])
        >>> bridge.matrix.round(2).tolist()
        [[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    return learn_bridge(source, old, new).bridge


def learn_bridge(source: str, old: Vectors, new: Vectors, seed: int = 0) -> FittedBridge:
    """Fit the map from an earlier backbone's embeddings to a new one's, by ridge regression.

    Of more than 10,000 texts, or than twice the fewest, that many are drawn. A fifth determines the
    penalty and the residual variance. The map is then fitted to all.

    Args:
        source: See ``fit_bridge``.
        old: See ``fit_bridge``.
        new: See ``fit_bridge``.
        seed: Draws the texts, and the held-out ones.

    Raises:
        DataError: There are too few texts for the dimensions, the arrays do not match, a number is
            not finite, or a backbone embeds all texts alike.
    """
    check_arrays(old=old, new=new)
    if old.ndim != 2 or new.ndim != 2 or len(old) != len(new):
        raise DataError(f"embeddings of the same texts expected, not {old.shape} and {new.shape}")
    n, dimension = old.shape
    check_enough(n, dimension)
    random = np.random.default_rng(seed)
    most = most_documents(dimension)
    drawn = np.sort(random.permutation(n)[:most]) if n > most else slice(None)
    x, y = old[drawn].astype(np.float64), new[drawn].astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("an embedding is not finite")
    for age, values in (("earlier", x), ("new", y)):
        if values.var(axis=0).mean() <= _ALIKE * np.mean(values**2):
            raise DataError(
                f"the {age} backbone embeds all public texts alike; is the text in one of its "
                "languages?"
            )
    held_out, training = np.split(random.permutation(len(x)), [math.floor(HELD_OUT * len(x))])
    with one_blas_thread():
        candidates = _ridge(x[training], y[training], _STRENGTHS)
        errors = [
            ((y[held_out] - x[held_out] @ matrix - offset) ** 2).mean(axis=0)
            for matrix, offset in candidates
        ]
        best = int(np.argmin([error.sum() for error in errors]))
        matrix, offset = _ridge(x, y, _STRENGTHS[best : best + 1])[0]
    about_mean = ((y[held_out] - y[training].mean(axis=0)) ** 2).mean(axis=0).sum()
    bridge = Bridge(
        source,
        matrix.astype(np.float32),
        offset.astype(np.float32),
        errors[best].astype(np.float32),
    )
    explained = 1 - float(errors[best].sum() / about_mean)
    return FittedBridge(bridge, float(_STRENGTHS[best]), explained, len(x), len(held_out))


def _ridge(
    x: NDArray[np.float64], y: NDArray[np.float64], strengths: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Matrix (d_old, d_new) and offset (d_new,) at every strength, from one eigendecomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    unit = np.mean(centred**2)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    projected = vectors.T @ (centred.T @ (y - y_mean))
    fits = []
    for strength in strengths:
        # By rounding, a value of no variance may be negative.
        matrix = vectors @ (projected / (np.maximum(values, 0.0) + strength * unit)[:, None])
        fits.append((matrix, y_mean - x_mean @ matrix))
    return fits
