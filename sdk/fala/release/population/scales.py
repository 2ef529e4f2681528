"""The scales of the fit that serve public annotators best: of its blocks, and of the slope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fala.model.heads import Head
from fala.model.prior import PopulationPrior
from fala.release.device_fit import (
    Block,
    LeftOut,
    SparseRows,
    TrainingSet,
    blocks_of,
    default_scales,
)
from fala.release.device_fit import Inputs as BlockInputs
from fala.release.population.annotators import MOST_ROWS, Floats, Inputs, evenly, rows_by_name

#: Scales of a block that are compared. Where a block says nothing of people, 0 leaves it to the
#: vendor.
GRID = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Scales of the slope that are compared.
SLOPES = (0.0, 0.1, 0.4, 1.0)
#: Annotators with fewer rows tell little of a scale.
LEAST_ROWS = 30

# So many tell scales apart that lie so wide apart; more only take their time.
_MOST = 200
# Each scale is chosen once beside the others' start, and again beside what was chosen.
_SWEEPS = 2


def training_sets(
    head: Head,
    inputs: Inputs,
    words: SparseRows | None,
    logits: Floats,
    labels: Floats,
    names: Sequence[str | None],
    priors: Mapping[str, PopulationPrior | None],
) -> list[TrainingSet]:
    """What a device would know of annotators with ``LEAST_ROWS`` rows or more.

    Of very many some are taken, at even steps of how much they labelled. What the vendor says of
    the rows is a first block of its own, which stays as it is: its logits need not be the head's.

    Args:
        head: The release's head.
        inputs: ``Head.inputs`` of all rows, shape (n, D).
        words: ``Head.words`` of them.
        logits: The vendor's logits of them, shape (n, C).
        labels: ``Head.label_shares`` of them, shape (n, C).
        names: Who labelled each row; None where that is not known.
        priors: The population prior of every annotator's device, by name.
    """
    enough = rows_by_name(names, LEAST_ROWS)
    order = sorted(enough, key=lambda name: (len(enough[name]), name))
    one_each = np.eye(len(head.bias), dtype=np.float32)
    sets = []
    for position in evenly(len(order), _MOST):
        name = order[position]
        rows = enough[name][evenly(len(enough[name]), MOST_ROWS)]
        own_words = None if words is None else words.take(rows)
        head_logits = Block(BlockInputs(logits[rows].astype(np.float32)), one_each)
        blocks = [
            Block(block.inputs, np.zeros_like(block.weight), block.prior)
            for block in blocks_of(head, BlockInputs(inputs[rows]), own_words, priors[name])
        ]
        shares, nothing = labels[rows], np.zeros_like(head.bias)
        missing = np.full(shares.shape, np.nan)
        sets.append(TrainingSet((head_logits, *blocks), nothing, shares, missing, head.link))
    return sets


def trials(blocks: int) -> int:
    """Scales that ``choose_scales`` tries at most, for a head of so many blocks."""
    return _SWEEPS * (blocks * len(GRID) + len(SLOPES))


def choose_scales(
    people: Sequence[TrainingSet], tick: Callable[[int], None] = lambda _: None
) -> tuple[float, ...]:
    """The scales with the least leave-one-out loss of all people's rows together.

    It is the full fit's, which the ladder of what answers ends at. One scale is chosen after the
    other, from those of a device that is told none; a second time beside what the others have got.
    Of a grid the neighbours of the best so far are tried: too little and too much of a scale both
    cost, and there is one valley between.

    Args:
        people: One set of ``training_sets`` or more.
        tick: Called with what is done, ``trials`` of each training set in all.

    Returns:
        A scale for each of the head's blocks, and the slope's.
    """
    left_out = [LeftOut.of(person) for person in people]
    minima: list[Floats | None] = [None] * len(people)
    losses: dict[tuple[float, ...], float] = {}

    def loss(scales: tuple[float, ...]) -> float:
        if scales not in losses:
            losses[scales] = 0.0
            for index, person in enumerate(left_out):
                lost, minima[index] = person.loss((0.0, *scales), minima[index])
                losses[scales] += lost
                tick(1)
        return losses[scales]

    blocks = people[0].blocks[1:]
    best = default_scales(blocks)
    for _ in range(_SWEEPS):
        for index in range(len(best)):
            best = _descend(best, index, SLOPES if index == len(blocks) else GRID, loss)
    tick((trials(len(blocks)) - len(losses)) * len(people))
    return best


def _descend(
    scales: tuple[float, ...],
    index: int,
    grid: Sequence[float],
    loss: Callable[[tuple[float, ...]], float],
) -> tuple[float, ...]:
    """Walk down one scale's grid from where it is."""
    line = [(*scales[:index], scale, *scales[index + 1 :]) for scale in grid]
    here = line.index(scales)
    for step in (-1, 1):
        while 0 <= here + step < len(line) and loss(line[here + step]) < loss(line[here]):
            here += step
    return line[here]
