"""Public annotators: each one's rows as inputs of a personal head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.model.heads import Vectors
from fala.model.links import LABELS, Link
from fala.model.losses import Floats
from fala_export.fitting.device_fit import (
    LEXICAL_SCALE,
    SLOPE_DEVIATION,
    SLOPE_SCALE,
    Block,
    SparseRows,
    whiten,
)
from fala_export.fitting.samples import drawn

LEAST_ROWS = 10
LEAST_ANNOTATORS = 20
#: A solve costs the cube of an annotator's rows, and the prior is for people with few labels.
MOST_ROWS = 500
#: More annotators do not improve a prior: see ``docs/tried.md``.
MOST_ANNOTATORS = 200

_CHUNK_ROWS = 2048


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Map(Protocol):
    """The built-in ``map``, or one that uses several processes."""

    def __call__(
        self, function: Callable[[_Item], _Result], of: Iterable[_Item], /
    ) -> Iterable[_Result]:
        """A function's results for arguments, in their order."""


@dataclass(frozen=True)
class Annotator:
    """One annotator's rows, in the order of the vendor's logits.

    Attributes:
        name: The annotator's name.
        inputs: The head's inputs with a last column of ones, shape (n, d + 1).
        logits: The vendor's logits, shape (n,).
        labels: 1 for the head's second label, else 0; or ratings; shape (n,).
        extra_covariance: Covariance of the logits by the parameters that a device fits besides
            those of the prior: the slope and the n-grams' weights, shape (n, n).
        link: The meaning of the logits.
    """

    name: str
    inputs: Vectors
    logits: Floats
    labels: Floats
    extra_covariance: Vectors
    link: Link = LABELS


@dataclass(frozen=True, eq=False)
class Annotators(Sequence[Annotator]):
    """Annotators, by rising number of rows; their rows in a few arrays.

    Processes share these arrays: joblib passes a large array as a file that they map.

    Attributes:
        names: Their names.
        starts: The rows of annotator i are from starts[i] to starts[i + 1].
        inputs: See ``Annotator``, shape (n, d + 1).
        logits: Shape (n,).
        labels: Shape (n,).
        extra_covariances: One annotator's matrix after another, as numbers.
        link: The meaning of the logits.
    """

    names: tuple[str, ...]
    starts: NDArray[np.int64]
    inputs: Vectors
    logits: Floats
    labels: Floats
    extra_covariances: Vectors
    link: Link

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, position: int) -> Annotator: ...

    @overload
    def __getitem__(self, position: slice) -> list[Annotator]: ...

    def __getitem__(self, position: int | slice) -> Annotator | list[Annotator]:
        if isinstance(position, slice):
            return [self[each] for each in range(len(self))[position]]
        number = range(len(self))[position]
        rows = slice(*self.starts[number : number + 2])
        extra = self.extra_covariances[slice(*self._ends[number : number + 2])]
        return Annotator(
            self.names[number], self.inputs[rows], self.logits[rows], self.labels[rows],
            extra.reshape((rows.stop - rows.start,) * 2), self.link,
        )  # fmt: skip

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """The starts of the annotators' matrices."""
        return np.append(0, np.cumsum(np.diff(self.starts) ** 2))


def gather_annotators(
    inputs: Vectors,
    words: SparseRows | None,
    logits: Floats,
    labels: Floats,
    names: Sequence[str | None],
    link: Link = LABELS,
) -> Annotators:
    """Divide public rows by annotator; the rows' order does not matter.

    Annotators with fewer than ``LEAST_ROWS`` rows, and rows without a name, are not used. Of more
    than ``MOST_ANNOTATORS`` some are drawn.

    Args:
        inputs: The head's inputs, shape (n, d).
        words: The n-grams; None if the head has no lexical view.
        logits: The vendor's logits, shape (n,).
        labels: 1 for the head's second label, else 0; or ratings; shape (n,).
        names: Each row's annotator; None if unknown.
        link: The meaning of the logits.

    Raises:
        DataError: See ``check_enough``.
    """
    check_enough(names)
    enough = rows_by_name(names, LEAST_ROWS)
    chosen = sorted(drawn(enough, MOST_ANNOTATORS), key=lambda name: (len(enough[name]), name))
    orders = []
    for name in chosen:
        rows = enough[name]
        orders.append(rows[np.lexsort((labels[rows], logits[rows]))])
    together = np.concatenate(orders)
    extended = np.ones((len(together), inputs.shape[1] + 1), dtype=np.float32)
    extended[:, :-1] = inputs[together]
    extra = [
        _kernel(None if words is None else words.take(order), logits[order], link.spread).ravel()
        for order in orders
    ]
    return Annotators(
        tuple(chosen), np.cumsum([0, *map(len, orders)]), extended, logits[together],
        labels[together], np.concatenate(extra), link,
    )  # fmt: skip


def _kernel(words: SparseRows | None, logits: Floats, spread: float) -> Vectors:
    """As in ``fala.solver.fit``, with the default scales."""
    centred = logits - logits.mean()
    covariance = SLOPE_DEVIATION**2 * SLOPE_SCALE * np.outer(centred, centred)
    if words is not None:
        block = Block(words, np.zeros((1, words.width), dtype=np.float32))
        covariance += LEXICAL_SCALE * whiten(block, spread)[0].rows(words).gram()
    return np.asarray(covariance, dtype=np.float32)


def check_enough(names: Iterable[str | None]) -> None:
    """Check that there are ``LEAST_ANNOTATORS`` annotators of ``LEAST_ROWS`` rows or more.

    Args:
        names: Each row's annotator; None if unknown.

    Raises:
        DataError: There are fewer.
    """
    counts = Counter(name for name in names if name is not None)
    enough = sum(count >= LEAST_ROWS for count in counts.values())
    if enough < LEAST_ANNOTATORS:
        raise DataError(
            f"{enough} of {len(counts)} public annotators have {LEAST_ROWS} rows or more (what a "
            "backbone was trained on does not count); a population prior needs "
            f"{LEAST_ANNOTATORS} of them. Leave it out: devices then use the SDK's isotropic prior"
        )


def rows_by_name(names: Sequence[str | None], least: int) -> dict[str, NDArray[np.int64]]:
    """Positions of the rows of every annotator with at least that many."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, []).append(position)
    return {
        name: np.array(rows, dtype=np.int64)
        for name, rows in positions.items()
        if len(rows) >= least
    }


def chunks(annotators: Sequence[Annotator]) -> Iterator[range]:
    """Ranges of annotators with a few thousand rows together, for one product each."""
    first, rows = 0, 0
    for position, annotator in enumerate(annotators):
        rows += len(annotator.labels)
        if rows >= _CHUNK_ROWS or position == len(annotators) - 1:
            yield range(first, position + 1)
            first, rows = position + 1, 0
