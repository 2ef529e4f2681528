"""The fit's scales (of its blocks, and the slope) with the least loss on public annotators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from fala.model.heads import Head, Vectors
from fala.model.losses import Floats
from fala.model.prior import PopulationPrior
from fala_export.fitting.device_fit import (
    Block,
    Inputs,
    LeftOut,
    SparseRows,
    TrainingSet,
    blocks_of,
    default_scales,
    one_blas_thread,
)
from fala_export.fitting.population.annotators import Map, rows_by_name
from fala_export.fitting.samples import drawn

#: The compared scales of a block. If a block has no information about people, 0 fixes the vendor's
#: weights.
GRID = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: The compared scales of the slope.
SLOPES = (0.0, 0.1, 0.4, 1.0)
#: Annotators with fewer rows have little information about scales.
LEAST_ROWS = 30

#: That many annotators are enough for a coarse grid; more would only cost time.
MOST_ANNOTATORS = 200
_GROUPS = 16  # groups of people that are tried side by side
# Each scale is chosen once with the others at their start, and again with the chosen ones.
_SWEEPS = 2

#: Some people, and each one's last minimum.
_Group: TypeAlias = "tuple[list[LeftOut], list[Floats | None]]"


@dataclass(frozen=True)
class AnnotatedRows:
    """Public rows of named annotators, as inputs of a head.

    Attributes:
        head: The head.
        inputs: ``Head.inputs``, shape (n, D).
        words: ``Head.words``.
        logits: ``cross_fitted_logits``, shape (n, C).
        labels: ``Head.label_shares``, shape (n, C).
        names: Each row's annotator.
        available: How many annotators there are with a least number of rows, of whom these were
            drawn, by that number: ``annotators.LEAST_ROWS`` and ``LEAST_ROWS``.
    """

    head: Head
    inputs: Vectors
    words: SparseRows | None
    logits: Floats
    labels: Floats
    names: Sequence[str]
    available: Mapping[int, int] = field(default_factory=dict)


def training_sets(
    rows: AnnotatedRows, priors: Mapping[str, PopulationPrior | None]
) -> list[TrainingSet]:
    """A device's training data for annotators with ``LEAST_ROWS`` rows or more.

    Of more than ``MOST_ANNOTATORS`` some are drawn. The vendor's logits are a fixed first block, as
    they need not be the head's own.

    Args:
        rows: The annotators' rows.
        priors: The population prior of every annotator's device, by name.
    """
    head = rows.head
    enough = rows_by_name(rows.names, LEAST_ROWS)
    identity = np.eye(len(head.bias), dtype=np.float32)
    sets = []
    for name in sorted(drawn(enough, MOST_ANNOTATORS), key=lambda name: (len(enough[name]), name)):
        chosen = enough[name]
        user_words = None if rows.words is None else rows.words.take(chosen)
        head_logits = Block(Inputs(rows.logits[chosen].astype(np.float32)), identity)
        blocks = [
            Block(block.inputs, np.zeros_like(block.weight), block.prior)
            for block in blocks_of(head, Inputs(rows.inputs[chosen]), user_words, priors[name])
        ]
        shares, bias = rows.labels[chosen], np.zeros_like(head.bias)
        missing = np.full(shares.shape, np.nan)
        sets.append(TrainingSet((head_logits, *blocks), bias, shares, missing, head.link))
    return sets


def trials(blocks: int) -> int:
    """The most scales that ``choose_scales`` tries, for a head with that many blocks."""
    return _SWEEPS * (blocks * len(GRID) + len(SLOPES))


def choose_scales(
    people: Sequence[TrainingSet],
    tick: Callable[[int], None] = lambda _: None,
    run: Map = map,
) -> tuple[float, ...]:
    """The scales with the least leave-one-out loss of all people's rows together.

    The loss is that of the full fit. The scales are chosen one by one, from a device's default
    scales, in two sweeps. In a grid the search goes from the current scale to its neighbours: the
    loss has one minimum, as a too small and a too large scale are both worse.

    Args:
        people: One or more of ``training_sets``.
        tick: Called with the number of new trials, ``trials`` for each training set in all.
        run: Runs the trials of groups of people, which are independent of each other.

    Returns:
        A scale for each of the head's blocks, and the slope's.
    """
    left_out = [LeftOut.of(person) for person in people]
    groups: list[_Group] = [
        (left_out[first::_GROUPS], [None] * len(left_out[first::_GROUPS]))
        for first in range(min(_GROUPS, len(people)))
    ]
    losses: dict[tuple[float, ...], float] = {}

    def loss(scales: tuple[float, ...]) -> float:
        if scales not in losses:
            losses[scales] = 0.0
            for (part, minima), results in zip(
                groups, run(partial(_group_losses, scales), groups), strict=True
            ):
                minima[:] = [minimum for _, minimum in results]
                losses[scales] += sum(value for value, _ in results)
                tick(len(part))
        return losses[scales]

    blocks = people[0].blocks[1:]
    best = default_scales(blocks)
    for _ in range(_SWEEPS):
        for index in range(len(best)):
            best = _descend(best, index, SLOPES if index == len(blocks) else GRID, loss)
    tick((trials(len(blocks)) - len(losses)) * len(people))
    return best


def _group_losses(scales: tuple[float, ...], group: _Group) -> list[tuple[float, Floats]]:
    """The loss of each person of a group, and its minimum."""
    with one_blas_thread():
        return [person.loss((0.0, *scales), near) for person, near in zip(*group, strict=True)]


def _descend(
    scales: tuple[float, ...],
    index: int,
    grid: Sequence[float],
    loss: Callable[[tuple[float, ...]], float],
) -> tuple[float, ...]:
    """Descend one scale's grid from its current value."""
    line = [(*scales[:index], scale, *scales[index + 1 :]) for scale in grid]
    at = line.index(scales)
    for step in (-1, 1):
        while 0 <= at + step < len(line) and loss(line[at + step]) < loss(line[at]):
            at += step
    return line[at]
