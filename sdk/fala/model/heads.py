"""The vendor's head, and the personal model that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleFormatError, DataError, DimensionError
from fala.examples import MATCHING, Example, Match
from fala.model.losses import label_probabilities, softmax

Vectors = NDArray[np.float32]


class Head:
    """Turns embeddings into inputs, features and logits.

    An example's *input* x is its embedding h for a classifier, and u * v for a matcher: u is the
    attention-weighted sum of the embeddings of the user's history, v the candidate's embedding.
    Its features are e = w * x, its logit z = theta . e + b; theta = 1 and the vendor's b is the
    vendor's own model. Two labels have one logit, the second label's; C > 2 labels have C.

    Args:
        task: ``"classification"`` or ``"matching"``.
        labels: The labels' names.
        weight: w, shape (C, d), C = 1 for two labels.
        bias: The vendor's b, shape (C,).
        query: The matcher's attention query, shape (d,); None takes the mean of the history.

    Raises:
        BundleFormatError: If the arrays do not fit the labels, or a number is not finite.
        DimensionError: If the query's dimension is not the weight's.
    """

    def __init__(
        self,
        task: str,
        labels: Sequence[str],
        weight: NDArray[Any],
        bias: NDArray[Any],
        query: NDArray[Any] | None = None,
    ) -> None:
        self.task = task
        self.labels = tuple(labels)
        logits = 1 if len(self.labels) == 2 else len(self.labels)
        if len(self.labels) < 2 or len(set(self.labels)) != len(self.labels):
            raise BundleFormatError(f"a head has two or more distinct labels, not {self.labels}")
        if task == MATCHING and logits != 1:
            raise BundleFormatError("a matcher has two labels")
        if weight.ndim != 2 or weight.shape[0] != logits or bias.shape != (logits,):
            raise BundleFormatError(
                f"{len(self.labels)} labels need a weight of shape ({logits}, d) and {logits} "
                f"biases, not {weight.shape} and {bias.shape}"
            )
        if query is not None and query.shape != weight.shape[1:]:
            raise DimensionError(f"a query of shape {weight.shape[1:]} expected, not {query.shape}")
        self.weight = _finite(weight)
        self.bias = _finite(bias)
        self.query = None if query is None else _finite(query)

    @property
    def dimension(self) -> int:
        """Length of the embeddings that it takes."""
        return int(self.weight.shape[1])

    def inputs(self, examples: Sequence[Example], embeddings: Mapping[str, Vectors]) -> Vectors:
        """The inputs of some examples.

        Args:
            examples: n examples of the head's task.
            embeddings: The embedding (d,) of every text in them.

        Returns:
            x, shape (n, d).
        """
        return example_inputs(examples, embeddings, self.dimension, self.query)

    def features(self, inputs: Vectors) -> NDArray[np.float64]:
        """E = w * x, shape (n, C, d), in float64 for the solvers."""
        return inputs[:, None, :].astype(np.float64) * self.weight

    def vendor_model(self) -> PersonalModel:
        """The vendor's own model: theta = 1 and the vendor's bias."""
        return PersonalModel(self, np.ones_like(self.weight), self.bias)

    def label_shares(self, labels: Sequence[str | int | None]) -> NDArray[np.float64]:
        """Labels as class shares, shape (n, C); NaN where a label is None.

        Raises:
            DataError: If a label is not one of the head's; names its position.
        """
        index = {label: position for position, label in enumerate(self.labels)}
        shares = np.zeros((len(labels), len(self.labels)))
        for position, label in enumerate(labels):
            if label is None:
                shares[position] = np.nan
            elif str(label) not in index:
                raise DataError(
                    f"label {label!r} of example {position} is not one of {', '.join(self.labels)}"
                )
            else:
                shares[position, index[str(label)]] = 1.0
        return shares[:, 1:] if len(self.labels) == 2 else shares


class PersonalModel:
    """A head with a user's personal matrix diag(theta) and bias b.

    theta is folded into the head's weights once, so a personal logit costs what the vendor's does.

    Args:
        head: The vendor's head.
        theta: Shape (C, d).
        bias: Shape (C,).

    Raises:
        DataError: If a shape does not fit the head, or a number is not finite.
    """

    def __init__(self, head: Head, theta: NDArray[Any], bias: NDArray[Any]) -> None:
        if theta.shape != head.weight.shape or bias.shape != head.bias.shape:
            raise DataError(f"theta {theta.shape} and b {bias.shape} do not fit the head")
        self.head = head
        with np.errstate(over="ignore", invalid="ignore"):
            self.theta: Vectors = theta.astype(np.float32)
            self.bias: Vectors = bias.astype(np.float32)
            self._folded = self.theta * head.weight
        if not all(np.isfinite(part).all() for part in (self.theta, self.bias, self._folded)):
            raise DataError("the personal matrix is not finite in float32")

    @property
    def is_vendor(self) -> bool:
        """Whether it is the vendor's own model: theta = 1 and the vendor's bias."""
        return bool((self.theta == 1).all() and (self.bias == self.head.bias).all())

    @classmethod
    def of_weights(cls, head: Head, weight: NDArray[Any], bias: NDArray[Any]) -> PersonalModel:
        """The personal model whose folded weights theta * w are given, shape (C, d).

        Where w is 0 theta * w stays 0: a diagonal matrix cannot move it.

        Raises:
            DataError: If a shape does not fit the head, or a number is not finite.
        """
        with np.errstate(over="ignore"):
            theta = np.divide(
                weight, head.weight, out=np.ones(weight.shape), where=head.weight != 0
            )
        return cls(head, theta, bias)

    def logits(self, inputs: Vectors) -> Vectors:
        """Z of inputs (n, d), shape (n, C)."""
        return inputs @ self._folded.T + self.bias

    def probabilities(self, inputs: Vectors) -> NDArray[np.float64]:
        """Probability of every label, shape (n, number of labels), for inputs (n, d)."""
        return label_probabilities(self.logits(inputs))


def example_inputs(
    examples: Sequence[Example],
    embeddings: Mapping[str, Vectors],
    dimension: int,
    query: Vectors | None = None,
) -> Vectors:
    """X of some examples, shape (n, dimension): h, or u * v. See ``Head``."""
    # A user without a history has u = 0, and so the bias for every candidate.
    result = np.zeros((len(examples), dimension), dtype=np.float32)
    histories: dict[tuple[str, ...], Vectors] = {}
    for position, example in enumerate(examples):
        if not isinstance(example, Match):
            result[position] = embeddings[example]
        elif example.history:
            if example.history not in histories:
                rows = np.stack([embeddings[text] for text in example.history])
                user = rows.mean(axis=0) if query is None else softmax(rows @ query) @ rows
                histories[example.history] = user.astype(np.float32)
            result[position] = histories[example.history] * embeddings[example.candidate]
    return result


def _finite(array: NDArray[Any]) -> Vectors:
    if not np.issubdtype(array.dtype, np.floating):
        raise BundleFormatError(f"a head is of floats, not {array.dtype}")
    with np.errstate(over="ignore"):
        result: Vectors = array.astype(np.float32)
    if not np.isfinite(result).all():
        raise BundleFormatError("the head holds a number that is not finite in float32")
    return result
