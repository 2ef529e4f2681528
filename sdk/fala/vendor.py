"""What a vendor does with the SDK alone: fit a global head on public rows, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.blas_threads import one_blas_thread
from fala.errors import DataError
from fala.examples import CLASSIFICATION, MATCHING, Example, Match, check_examples, unique_texts
from fala.heads import Head, Vectors, example_inputs
from fala.objective import Evidence, Fit, fit

# As multiples of the inputs' mean squared length. Public rows are many: the best penalties are
# smaller than a device's.
_GRID = np.logspace(-6, 1, 15)


def fit_head(
    backbone: Backbone,
    examples: Sequence[Example],
    labels: Sequence[str | int],
    *,
    label_names: Sequence[str] | None = None,
    embeddings: Mapping[str, Vectors] | None = None,
) -> Head:
    """Fit a global head on public rows.

    A classifier's w and b minimize the penalised cross-entropy (``fala.objective`` with prior 0);
    a matcher's shrink to a multiple of the plain inner product instead, itself fitted first. The
    penalty is chosen by leave-one-out over documents: rows of the same example are one fold.

    Args:
        backbone: What embeds the texts.
        examples: n texts, or n ``Match`` objects.
        labels: n labels (names, or integers that spell them).
        label_names: The labels in the order wanted; None takes those seen, sorted.
        embeddings: Embeddings by text, if they are already known.

    Raises:
        DataError: If there are fewer than two labels, or an example or label cannot be used.
    """
    task = MATCHING if examples and isinstance(examples[0], Match) else CLASSIFICATION
    examples = check_examples(examples, task)
    if len(labels) != len(examples):
        raise DataError(f"{len(examples)} examples, but {len(labels)} labels")
    seen = {str(label) for label in labels}
    names = tuple(label_names or sorted(seen))
    if len(names) < 2 or len(seen) < 2:
        raise DataError("a head needs rows of two labels or more")
    if task == MATCHING and len(names) != 2:
        raise DataError("a matcher has two labels")
    if embeddings is None:
        texts = unique_texts(examples)
        embeddings = dict(zip(texts, backbone.encode(texts), strict=True))
    distinct = list(dict.fromkeys(examples))
    shares, counts = _counted(examples, labels, distinct, names)
    inputs = example_inputs(distinct, embeddings, backbone.dimension)
    if len(names) == 2:
        shares = shares[:, 1:]
    start = 0.0
    if task == MATCHING:
        product = _fit(inputs.sum(axis=1, keepdims=True), shares, counts, 0.0)
        start = float(product.theta[0, 0])
    fitted = _fit(inputs, shares, counts, start)
    return Head(task, names, fitted.theta, fitted.bias)


def _fit(
    inputs: Vectors, shares: NDArray[np.float64], counts: NDArray[np.float64], prior_mean: float
) -> Fit:
    features = np.repeat(inputs[:, None, :], shares.shape[1], axis=1).astype(np.float64)
    scale = float(np.mean(inputs.astype(np.float64) ** 2)) * inputs.shape[1] or 1.0
    with one_blas_thread():
        return fit(
            Evidence.of(features, labels=shares, weights=counts),
            prior_mean=prior_mean,
            lambdas=_GRID * scale,
        )


def _counted(
    examples: Sequence[Example],
    labels: Sequence[str | int],
    distinct: Sequence[Example],
    names: Sequence[str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Label shares (m, number of labels) and rows (m,) of each distinct example."""
    column = {name: position for position, name in enumerate(names)}
    row = {example: position for position, example in enumerate(distinct)}
    counts = np.zeros((len(distinct), len(names)))
    for position, (example, label) in enumerate(zip(examples, labels, strict=True)):
        if str(label) not in column:
            raise DataError(
                f"label {label!r} of example {position} is not one of {', '.join(names)}"
            )
        counts[row[example], column[str(label)]] += 1
    total = counts.sum(axis=1)
    return counts / total[:, None], total
