"""The fit's scales with the least loss on public annotators, by number of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.model.heads import Head, Vectors
from fala.model.losses import Floats
from fala.model.scales import Scales, scales_at
from fala_export.fit.device_fit import (
    Block,
    Inputs,
    SparseRows,
    TrainingSet,
    blocks_of,
    default_scales,
    one_blas_thread,
)
from fala_export.fit.devices import Devices
from fala_export.people.draw import LEAST_ROWS, drawn

#: The numbers of labels for which scales are chosen.
NUMBERS_OF_LABELS = (10, 20, 50, 100, 200)
#: The compared multiples of a default scale. 0 fixes the vendor's value: a block may have no
#: information about people, or people the vendor's bias.
MULTIPLES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: The compared shares of the full fit, beside the default one.
MIXING_SHARES = (0.0, 0.5, 1.0)
#: That many annotators are enough for a coarse grid; more would only cost time.
MOST_ANNOTATORS = 200
# Of one annotator that many groups of labels, and rows of all, for one number of labels.
_MOST_GROUPS, _MOST_ROWS = 4, 20_000
# Each scale is chosen once with the others at their start, and again with the chosen ones.
_SWEEPS = 2
# A change of a scale lowers the loss by that many standard errors over people.
_CLEAR = 2.0


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
        available: How many annotators have ``LEAST_ROWS`` rows, of whom these were drawn.
    """

    head: Head
    inputs: Vectors
    words: SparseRows | None
    logits: Floats
    labels: Floats
    names: Sequence[str]
    available: int


def rows_by_name(names: Sequence[str | None], least: int) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the rows of every annotator with at least that many."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, []).append(position)
    return {
        name: np.array(rows, dtype=np.int64)
        for name, rows in positions.items()
        if len(rows) >= least
    }


def training_sets(rows: AnnotatedRows, labels: int) -> list[list[TrainingSet]]:
    """Devices' training data with some number of labels, by annotator.

    An annotator's rows are drawn into groups of this number. A group is a device. The vendor's
    logits are a fixed first block, as they need not be the head's own. Of very many annotators
    some are drawn.

    Args:
        rows: The annotators' rows.
        labels: The number of labels.
    """
    head = rows.head
    enough = rows_by_name(rows.names, max(labels, LEAST_ROWS))
    identity = np.eye(len(head.bias), dtype=np.float32)
    people = []
    most = min(MOST_ANNOTATORS, _MOST_ROWS // labels)
    names = sorted(drawn(enough, most), key=lambda name: (len(enough[name]), name))
    groups = max(1, min(_MOST_GROUPS, _MOST_ROWS // labels // max(1, len(names))))
    for name in names:
        ordered = np.random.default_rng(0).permutation(_in_order(rows, enough[name]))
        sets = []
        for start in range(0, min(groups * labels, len(ordered) - labels + 1), labels):
            chosen = ordered[start : start + labels]
            user_words = None if rows.words is None else rows.words.take(chosen)
            head_logits = Block(Inputs(rows.logits[chosen].astype(np.float32)), identity)
            blocks = [
                Block(block.inputs, np.zeros_like(block.weight))
                for block in blocks_of(head, Inputs(rows.inputs[chosen]), user_words)
            ]
            shares, bias = rows.labels[chosen], np.zeros_like(head.bias)
            missing = np.full(shares.shape, np.nan)
            sets.append(TrainingSet((head_logits, *blocks), bias, shares, missing, head.link))
        people.append(sets)
    return people


def _in_order(rows: AnnotatedRows, of_name: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rows in an order that depends neither on the file's nor on which label comes first."""
    labels, logits = rows.labels[of_name], rows.logits[of_name]
    losses = rows.head.link.losses(labels, logits)
    keys = np.abs(logits).sum(axis=1), losses
    return of_name[np.lexsort([key.round(9) for key in keys])]


def trials(blocks: int) -> int:
    """The most fits that ``choose_scales`` tries, for a head with that many blocks."""
    return _SWEEPS * (blocks + 2) * len(MULTIPLES)


def choose_scales(
    people: Sequence[Sequence[TrainingSet]],
    labels: int,
    tick: Callable[[int], None] = lambda _: None,
) -> Scales:
    """The scales with the least leave-one-out loss of people with some number of labels.

    The loss is that of the full fit; people count equally. The scales are chosen one by one, from
    a device's default scales, in two sweeps. In a grid the search goes from the current scale to
    its neighbours: the loss has one minimum, as a too small and a too large scale are both worse.
    A scale changes only if the loss falls by more than two standard errors over people: with few of
    them the defaults, which are from many data sets, are better than what these people show by
    chance. Last, the trust is chosen likewise.

    Args:
        people: ``training_sets``, of two people or more.
        labels: Their number of labels.
        tick: Called with the number of new trials, ``trials`` for each person in all.
    """
    minima: Floats | None = None
    devices = Devices.of(people)
    known: dict[tuple[float, ...], Floats] = {}
    blocks = people[0][0].blocks[1:]
    start = scales_at(default_scales(blocks), labels)

    def by_share(numbers: tuple[float, ...], shares: tuple[float, ...]) -> Floats:
        """The mean loss of each person at each share of the full fit, shape (people, shares)."""
        nonlocal minima
        with one_blas_thread():
            scales = beside_vendor(Scales.of_numbers(numbers))
            losses, minima = devices.losses(scales, shares, minima)
        return losses

    def losses(numbers: tuple[float, ...]) -> Floats:
        """The mean loss of each person by the full fit."""
        if numbers not in known:
            known[numbers] = by_share(numbers, (1.0,))[:, 0]
            tick(len(people))
        return known[numbers]

    best = start.numbers
    for _ in range(_SWEEPS):
        before = best
        for index in reversed(range(len(best))):  # the bias first: it matters most
            best = _descend(best, index, start.numbers[index], losses)
        if best == before:
            break
    tick((trials(len(blocks)) - len(known)) * len(people))
    trust, shares = start.trust, tuple(sorted({*MIXING_SHARES, start.trust}))
    of_shares = dict(zip(shares, by_share(best, shares).T, strict=True))
    for share, loss in of_shares.items():
        if _is_lower(loss, of_shares[trust]):
            trust = share
    return replace(Scales.of_numbers(best), trust=trust, labels=labels)


def beside_vendor(scales: Scales) -> Scales:
    """The scales with one of 0 for the fixed first block of ``training_sets``."""
    return replace(scales, blocks=(0.0, *scales.blocks))


def _is_lower(losses: Floats, than: Floats) -> bool:
    """Whether people's losses are lower by more than ``_CLEAR`` standard errors of the mean."""
    gains = than - losses
    return bool(gains.mean() > _CLEAR * gains.std(ddof=1) / np.sqrt(len(gains)))


def _descend(
    scales: tuple[float, ...],
    index: int,
    default: float,
    losses: Callable[[tuple[float, ...]], Floats],
) -> tuple[float, ...]:
    """Descend one scale's grid from its current value; see ``choose_scales``."""
    line = [(*scales[:index], each * default, *scales[index + 1 :]) for each in MULTIPLES]
    at = line.index(scales)
    for step in (-1, 1):
        while (
            0 <= at + step < len(line) and losses(line[at + step]).mean() < losses(line[at]).mean()
        ):
            at += step
    return line[at] if _is_lower(losses(line[at]), losses(scales)) else scales
