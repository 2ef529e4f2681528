"""The scales of the fit's blocks that serve public annotators best: for a device's first answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fala import Head, PopulationPrior
from fala.vendor import cross_entropy, one_fit
from fala.vendor.one_fit import SparseRows, TrainingSet
from fala_export.population.annotators import MOST_ROWS, Floats, Inputs, evenly, rows_by_name

#: Scales that are compared; a device searches fewer, nearer to what is noted here.
GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Annotators with fewer rows tell little of a scale.
LEAST_ROWS = 30

# So many tell scales apart that lie so wide apart; more only take their time.
_MOST = 200
# Each block's scale is chosen once beside the others' 1, and again beside what was chosen.
_SWEEPS = 2


def training_sets(
    head: Head,
    inputs: Inputs,
    words: SparseRows | None,
    labels: Floats,
    names: Sequence[str | None],
    priors: Mapping[str, PopulationPrior | None],
) -> list[TrainingSet]:
    """What a device would know of annotators with ``LEAST_ROWS`` rows or more.

    Of very many some are taken, at even steps of how much they labelled.

    Args:
        head: The release's head.
        inputs: ``Head.inputs`` of all rows, shape (n, D).
        words: ``Head.words`` of them.
        labels: ``Head.label_shares`` of them, shape (n, C).
        names: Who labelled each row; None where that is not known.
        priors: The population prior of every annotator's device, by name.
    """
    enough = rows_by_name(names, LEAST_ROWS)
    order = sorted(enough, key=lambda name: (len(enough[name]), name))
    sets = []
    for position in evenly(len(order), _MOST):
        name = order[position]
        rows = enough[name][evenly(len(enough[name]), MOST_ROWS)]
        own = None if words is None else words.take(rows)
        blocks = one_fit.blocks_of(head, one_fit.Inputs(inputs[rows]), own, priors[name])
        known = labels[rows]
        sets.append(TrainingSet(blocks, head.bias, known, np.full(known.shape, np.nan)))
    return sets


def trials(blocks: int) -> int:
    """Scales that ``choose_scales`` tries at most, of so many blocks and the slope."""
    return _SWEEPS * (blocks + 1) * len(GRID)


def choose_scales(
    people: Sequence[TrainingSet], tick: Callable[[int], None] = lambda _: None
) -> tuple[float, ...]:
    """The scales with the least leave-one-out cross-entropy of all people's rows together.

    One for every block, and the slope's at last.

    One block after the other, as the fit itself searches for one person; a second time beside the
    scales that the other blocks have got. Of a block's grid the neighbours of the best so far are
    tried: too little and too much of a scale both cost, and there is one valley between.

    Args:
        people: One training set or more, of the same blocks.
        tick: Called with what is done, ``trials`` of each training set in all.
    """
    found: dict[tuple[float, ...], float] = {}

    def loss(scales: tuple[float, ...]) -> float:
        if scales not in found:
            found[scales] = 0.0
            for person in people:
                found[scales] += _loss(person, scales)
                tick(1)
        return found[scales]

    blocks = len(people[0].blocks)
    best = (1.0,) * (blocks + 1)
    for _ in range(_SWEEPS):
        for block in range(len(best)):
            best = _descend(best, block, loss)
    tick((trials(blocks) - len(found)) * len(people))
    return best


def _descend(
    scales: tuple[float, ...], block: int, loss: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Walk down one block's grid from where its scale is."""
    line = [(*scales[:block], scale, *scales[block + 1 :]) for scale in GRID]
    here = line.index(scales)
    for step in (-1, 1):
        while 0 <= here + step < len(line) and loss(line[here + step]) < loss(line[here]):
            here += step
    return line[here]


def _loss(person: TrainingSet, scales: tuple[float, ...]) -> float:
    left_out = one_fit.fit(person, scales).full.left_out
    return float(cross_entropy(person.labels, left_out).sum())
