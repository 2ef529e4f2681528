"""The scales of the fit's blocks that serve public annotators best: for a device's first answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fala import Head, PopulationPrior
from fala.vendor import cross_entropy, one_fit
from fala.vendor.one_fit import Block, SparseRows, TrainingSet
from fala_export.population.annotators import Floats, Inputs, evenly, rows_by_name

#: Scales that are compared; a device searches fewer, nearer to what is noted here.
GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: Annotators with fewer rows tell little of a scale.
LEAST_ROWS = 30

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
    """What a device would know of every annotator with ``LEAST_ROWS`` rows or more.

    Args:
        head: The release's head.
        inputs: ``Head.inputs`` of all rows, shape (n, D).
        words: ``Head.words`` of them.
        labels: ``Head.label_shares`` of them, shape (n, C).
        names: Who labelled each row; None where that is not known.
        priors: The population prior of every annotator's device, by name.
    """
    sets = []
    for name, every in rows_by_name(names, LEAST_ROWS).items():
        rows = evenly(every)
        blocks = [
            Block(one_fit.Inputs(inputs[rows][:, part]), head.weight[:, part], prior)
            for part, prior in zip(head.parts, [priors[name], None], strict=False)
        ]
        if head.lexical is not None and words is not None:
            blocks.append(Block(words.take(rows), head.lexical.weight))
        known = labels[rows]
        sets.append(TrainingSet(tuple(blocks), head.bias, known, np.full(known.shape, np.nan)))
    return sets


def trials(blocks: int) -> int:
    """How often ``choose_scales`` calls ``tick`` for every training set."""
    return _SWEEPS * blocks * len(GRID)


def choose_scales(
    people: Sequence[TrainingSet], tick: Callable[[int], None] = lambda _: None
) -> tuple[float, ...]:
    """The scales with the least leave-one-out cross-entropy of all people's rows together.

    One block after the other, as the fit itself searches for one person; a second time where the
    other blocks' scales have moved.

    Args:
        people: One training set or more, of the same blocks.
        tick: Called with the fits that are done, ``trials`` of each training set.
    """
    found: dict[tuple[float, ...], float] = {}
    best = (1.0,) * len(people[0].blocks)
    for _ in range(_SWEEPS):
        for block in range(len(best)):
            tried = [(*best[:block], scale, *best[block + 1 :]) for scale in GRID]
            for scales in tried:
                if scales not in found:
                    found[scales] = 0.0
                    for person in people:
                        found[scales] += _loss(person, scales)
                        tick(1)
                else:
                    tick(len(people))
            # Of losses that differ by rounding alone the smaller scale is the safer one.
            least = min(found[scales] for scales in tried) * (1 + 1e-9)
            best = next(scales for scales in tried if found[scales] <= least)
    return best


def _loss(person: TrainingSet, scales: tuple[float, ...]) -> float:
    labelled = person.labelled
    left_out = one_fit.fit(person, scales).left_out[labelled]
    return float(cross_entropy(person.labels[labelled], left_out).sum())
