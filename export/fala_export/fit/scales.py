"""Choose the fit's scales (prior variances) with the least loss on public annotators.

Scales are chosen by number of labels. Each annotator is a simulated user, whose device learns some
rows and is scored on others. People and documents are held out together: the vendor's logits are
those of a head that knows nothing of the user, and no document on which the user is scored.
Leave-one-out losses of the learned rows would choose other scales, because they count a step from
the minimum for a fit without the row, which is too pessimistic with ten labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.base.products import Floats
from fala.base.threads import one_blas_thread
from fala.model.heads import Head, Vectors
from fala.model.scales import Scales, scales_at
from fala.solver.fit import default_scales
from fala.solver.training import Block, TrainingSet, blocks_of
from fala.text.sparse_rows import SparseRows
from fala_export.fit.devices import Devices, Simulated
from fala_export.people.draw import LEAST_ROWS, drawn

#: Numbers of labels for which scales are chosen.
NUMBERS_OF_LABELS = (10, 20, 50, 100, 200)
#: The multiples of a default scale that are compared. 0 fixes the vendor's value, because a block
#: may have no information about people, or people may have the vendor's bias.
MULTIPLES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: The mixing weights (shares of the full fit) that are compared, in addition to the default one.
MIXING_SHARES = (0.0, 0.5, 1.0)
#: This many annotators are enough for a coarse grid; more would only cost time.
MOST_ANNOTATORS = 200
#: Fewest rows on which a simulated user is scored.
LEAST_SCORED = 5
# The most rows on which a simulated user is scored; more would only cost time.
_MOST_SCORED = 60
# The most groups of labels of one annotator, and the most rows in all, for one number of labels.
_MOST_GROUPS, _MOST_ROWS = 4, 20_000
# Each scale is chosen once with the others at their start, and again with the chosen ones.
_SWEEPS = 2
# A scale changes only if the loss falls by this many standard errors over people.
_CLEAR = 2.0


@dataclass(frozen=True, eq=False)
class Annotators:
    """The rows of public annotators, as a device learns them.

    Attributes:
        rows: The rows, with the vendor's logits as a fixed first block.
        names: The annotator of each row, n of them.
        held_out: Whether the row's document is held out, shape (n,): a simulated user is scored on
            these rows, and learns the others.
    """

    rows: TrainingSet
    names: Sequence[str]
    held_out: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        head: Head,
        inputs: Vectors,
        words: SparseRows | None,
        logits: Floats,
        labels: Floats,
        names: Sequence[str],
        held_out: NDArray[np.bool_],
    ) -> Annotators:
        """Build the rows, in an order that depends on neither the file's nor the labels' order.

        Args:
            head: The head.
            inputs: The inputs from ``Head.inputs``, shape (n, D).
            words: The n-grams from ``Head.ngrams``.
            logits: The vendor's logits, which need not be the head's own, shape (n, C).
            labels: The labels from ``Head.label_shares``, shape (n, C).
            names: The annotator of each row.
            held_out: See the attribute.
        """
        identity = np.eye(len(head.bias), dtype=np.float32)
        blocks = [
            Block(block.inputs, np.zeros_like(block.weight))
            for block in blocks_of(head, inputs, words)
        ]
        bias, missing = np.zeros_like(head.bias), np.full(labels.shape, np.nan)
        vendor = Block(logits.astype(np.float32), identity)
        rows = TrainingSet((vendor, *blocks), bias, labels, missing, head.link)
        keys = np.abs(logits).sum(axis=1), head.link.losses(labels, logits)
        order = np.lexsort([key.round(9) for key in keys])
        return cls(rows.take(order), [names[row] for row in order], held_out[order])

    def simulated(self, labels: int) -> list[list[Simulated]]:
        """Draw devices with a given number of labels, by annotator.

        The rows that an annotator learns are drawn into groups of this number, and each group is a
        device. If there are very many annotators, some are drawn.

        Args:
            labels: The number of labels.
        """
        enough = {
            name: rows
            for name, rows in rows_by_name(self.names, LEAST_ROWS).items()
            if (few := np.count_nonzero(self.held_out[rows])) >= LEAST_SCORED
            and len(rows) - few >= labels
        }
        most = min(MOST_ANNOTATORS, _MOST_ROWS // labels)
        chosen = sorted(drawn(enough, most), key=lambda name: (len(enough[name]), name))
        groups = max(1, min(_MOST_GROUPS, _MOST_ROWS // labels // max(1, len(chosen))))
        people = []
        for name in chosen:
            order = np.random.default_rng(0).permutation(enough[name])
            held_out = self.held_out[order]
            scored = self.rows.take(order[held_out][:_MOST_SCORED])
            order = order[~held_out]
            starts = range(0, min(groups * labels, len(order) - labels + 1), labels)
            people.append(
                [Simulated(self.rows.take(order[at : at + labels]), scored) for at in starts]
            )
        return people


def rows_by_name(names: Sequence[str | None], least: int) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the rows of every annotator with at least ``least`` rows."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, []).append(position)
    return {
        name: np.array(rows, dtype=np.int64)
        for name, rows in positions.items()
        if len(rows) >= least
    }


def trials(blocks: int) -> int:
    """Return the most fits that ``choose_scales`` tries for a head with this many blocks."""
    return _SWEEPS * (blocks + 2) * len(MULTIPLES)


def choose_scales(
    people: Sequence[Sequence[Simulated]],
    labels: int,
    tick: Callable[[int], None] = lambda _: None,
) -> Scales:
    """Choose the scales with the least held-out loss of people with a given number of labels.

    The loss is the full fit's, and people count equally. The scales are chosen one by one, from a
    device's default scales, in two sweeps. In a grid, the search goes from the current scale to its
    neighbours, because the loss has one minimum: a scale that is too small and one that is too
    large are both worse. A scale changes only if the loss falls by more than two standard errors
    over people. With few people, the defaults, which come from many data sets, are better than what
    these people show by chance. Finally, the mixing weight is chosen in the same way.

    Args:
        people: The simulated devices of at least two people.
        labels: The number of labels of each device.
        tick: A function called with the number of new trials, ``trials`` for each person in all.
    """
    minima: Floats | None = None
    devices = Devices.of(people)
    known: dict[tuple[float, ...], Floats] = {}
    blocks = people[0][0].training.blocks[1:]
    start = scales_at(default_scales(blocks), labels)

    def by_share(numbers: tuple[float, ...], shares: tuple[float, ...]) -> Floats:
        """Return each person's mean loss at each mixing weight, shape (people, shares)."""
        nonlocal minima
        with one_blas_thread():
            scales = beside_vendor(Scales.of_numbers(numbers))
            losses, minima = devices.losses(scales, shares, minima)
        return losses

    def losses(numbers: tuple[float, ...]) -> Floats:
        """Return each person's mean loss by the full fit."""
        if numbers not in known:
            known[numbers] = by_share(numbers, (1.0,))[:, 0]
            tick(len(people))
        return known[numbers]

    best = start.numbers
    for _ in range(_SWEEPS):
        before = best
        for index in reversed(range(len(best))):  # The bias comes first, because it matters most.
            best = _descend(best, index, start.numbers[index], losses)
        if best == before:
            break
    tick((trials(len(blocks)) - len(known)) * len(people))
    mixing, shares = start.mixing, tuple(sorted({*MIXING_SHARES, start.mixing}))
    of_shares = dict(zip(shares, by_share(best, shares).T, strict=True))
    for share, loss in of_shares.items():
        if _is_lower(loss, of_shares[mixing]):
            mixing = share
    return replace(Scales.of_numbers(best), mixing=mixing, labels=labels)


def beside_vendor(scales: Scales) -> Scales:
    """Add a scale of 0 for the fixed first block of ``Annotators``."""
    return replace(scales, blocks=(0.0, *scales.blocks))


def _is_lower(losses: Floats, than: Floats) -> bool:
    """Return whether the losses are lower by more than ``_CLEAR`` standard errors of the mean."""
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
