"""Fit a bridge to public texts in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError, be, counted
from fala.base.threads import one_blas_thread
from fala.model.bridge import Bridge
from fala.model.heads import Vectors
from fala.model.losses import check_arrays

# Penalties, in units of the mean variance of a text.
_STRENGTHS = np.logspace(-2, 4, 13)
HELD_OUT = 0.2  # Share of the texts with which the penalty is chosen.
_SPARE = 2  # With fewer spare training texts, a matrix and an offset could map all of them exactly.
_MOST = 10_000  # Most texts that the bridge is fitted to; see ``device_sim/results/README.md``.
_ALIKE = 1e-12  # Variance that equal texts have by rounding, as a share of the mean square.


def least_documents(dimension: int) -> int:
    """Return the number of distinct documents that a map from a space of this dimension needs."""
    return math.ceil((dimension + _SPARE) / (1 - HELD_OUT))


def most_documents(dimension: int) -> int:
    """Return the number of documents beyond which a map from this dimension gains little."""
    return max(_MOST, 2 * least_documents(dimension))


def check_enough(documents: int, dimension: int) -> None:
    """Check that there are enough documents for a map from a space of this dimension.

    Raises:
        DataError: There are too few documents.
    """
    fewest = least_documents(dimension)
    if documents < fewest:
        raise DataError(
            f"{counted(documents, 'distinct public text')} {be(documents)} too few: a bridge from "
            f"{counted(dimension, 'dimension')} needs {fewest}, and a good one needs thousands"
        )


def fit_bridge(source: str, old: Vectors, new: Vectors) -> Bridge:
    """Fit the map from an earlier backbone's embeddings to a new backbone's; see ``learn_bridge``.

    Args:
        source: The earlier backbone's ``Bundle.backbone_digest``.
        old: The earlier backbone's embeddings of n distinct public texts, shape (n, d_old); they
            may be memory-mapped.
        new: The new backbone's embeddings of the same texts, shape (n, d_new).

    Raises:
        DataError: The embeddings are unusable; see ``learn_bridge``.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> old = rng.normal(size=(50, 3)).astype(np.float32)
        >>> bridge = fala_export.fit_bridge("0" * 64, old, old @ [[2, 0], [0, 1], [1, 1]])
        >>> bridge.matrix.round(2).tolist()
        [[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    return learn_bridge(source, old, new)[0]


def learn_bridge(
    source: str, old: Vectors, new: Vectors, seed: int = 0
) -> tuple[Bridge, dict[str, Any]]:
    """Fit the map from an earlier backbone's embeddings to a new backbone's, by ridge regression.

    At most 10,000 texts, or twice the fewest if that is more, are drawn. A fifth of the drawn texts
    determines the penalty and the residual variance. The map is then fitted to all of them.

    Args:
        source: The earlier backbone's ``Bundle.backbone_digest``.
        old: The earlier backbone's embeddings, as for ``fit_bridge``.
        new: The new backbone's embeddings, as for ``fit_bridge``.
        seed: Seed with which the texts and the held-out texts are drawn.

    Returns:
        The bridge, and its details for a manifest: ``strength``, the weight of the penalty, in
        documents of mean variance; ``explained``, the share of the held-out documents' variance
        that a map fitted to the others explains, where predicting their mean explains 0; and the
        numbers of ``documents`` and of ``held_out`` ones.

    Raises:
        DataError: There are too few texts for the dimensions, the arrays do not match, a number is
            not finite, or a backbone gives all texts the same embedding.
    """
    check_arrays(old=old, new=new)
    if old.ndim != 2 or new.ndim != 2 or len(old) != len(new):
        raise DataError(
            f"the embeddings must be of the same texts, not of shapes {old.shape} and {new.shape}"
        )
    n, dimension = old.shape
    check_enough(n, dimension)
    random = np.random.default_rng(seed)
    most = most_documents(dimension)
    drawn = np.sort(random.permutation(n)[:most]) if n > most else slice(None)
    x, y = old[drawn].astype(np.float64), new[drawn].astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("an embedding is not finite; remove its text, or repair the encoder")
    for age, values in (("earlier", x), ("new", y)):
        if values.var(axis=0).mean() <= _ALIKE * np.mean(values**2):
            raise DataError(
                f"the {age} backbone gives all public texts the same embedding; check that they "
                "are in one of its languages"
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
    return bridge, {
        "strength": float(_STRENGTHS[best]),
        "explained": round(explained, 4),
        "documents": len(x),
        "held_out": len(held_out),
    }


def _ridge(
    x: NDArray[np.float64], y: NDArray[np.float64], strengths: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return a matrix (d_old, d_new) and offset (d_new,) for every strength.

    All of them are computed from one eigendecomposition.
    """
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    unit = np.mean(centred**2)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    projected = vectors.T @ (centred.T @ (y - y_mean))
    fits = []
    for strength in strengths:
        # By rounding, an eigenvalue without variance may be negative.
        matrix = vectors @ (projected / (np.maximum(values, 0.0) + strength * unit)[:, None])
        fits.append((matrix, y_mean - x_mean @ matrix))
    return fits
