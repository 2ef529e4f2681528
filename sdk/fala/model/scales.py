"""How far people differ from a vendor's model, by the number of their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: The largest scale of a release.
LARGEST_SCALE = 10_000


@dataclass(frozen=True)
class Scales:
    """The expected size of a user's differences, from a number of labels on.

    Each scale multiplies a variance of the fit's Gaussian. 0 fixes the vendor's value.

    Attributes:
        blocks: The scales of the weights, one for each block of features.
        slope: The scale of the slope.
        bias: The scale of the bias.
        mixing: The personal model's share of the full fit where the user's own labels do not
            contradict, from 0 (the calibrated model) to 1.
        labels: The number of labels from which on these scales are used.
    """

    blocks: tuple[float, ...]
    slope: float
    bias: float
    mixing: float = 1.0
    labels: int = 0

    @property
    def numbers(self) -> tuple[float, ...]:
        """All scales in one sequence: those of the blocks, of the slope, and of the bias."""
        return (*self.blocks, self.slope, self.bias)

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Scales:
        """Return the scales of ``numbers``."""
        *blocks, slope, bias = numbers
        return cls(tuple(blocks), slope, bias)

    def to_details(self) -> dict[str, Any]:
        """Return the scales as an object of a manifest."""
        return {
            "labels": self.labels, "blocks": [*self.blocks], "slope": self.slope,
            "bias": self.bias, "mixing": self.mixing,
        }  # fmt: skip


def scales_at(table: Sequence[Scales], labels: int) -> Scales:
    """Return the scales for a number of labels; fewer than the table's least take its first row.

    Args:
        table: One row or more, in ascending order of the number of labels.
        labels: The user's number of labels.
    """
    return [table[0], *(row for row in table if row.labels <= labels)][-1]


def scales_of(details: object) -> tuple[Scales, ...] | None:
    """Return the table in a manifest, or None if it is not a table of scales.

    Args:
        details: A list of objects with the attributes of ``Scales``, in ascending order of the
            number of labels.
    """
    if not isinstance(details, list) or not all(map(_is_row, details)):
        return None
    table = tuple(
        Scales(
            tuple(map(float, row["blocks"])), float(row["slope"]), float(row["bias"]),
            float(row["mixing"]), row["labels"],
        )
        for row in details
    )  # fmt: skip
    rising = all(row.labels < following.labels for row, following in pairwise(table))
    return table if rising and len({len(row.blocks) for row in table}) <= 1 else None


def _is_row(details: object) -> bool:
    names = {"labels", "blocks", "slope", "bias", "mixing"}
    if not isinstance(details, dict) or set(details) != names:
        return False
    blocks, labels, mixing = details["blocks"], details["labels"], details["mixing"]
    if not isinstance(blocks, list) or not isinstance(labels, int):
        return False
    scales = [*blocks, details["slope"], details["bias"]]
    within = all(_is_number(scale, LARGEST_SCALE) for scale in scales)
    return within and _is_number(mixing, 1) and _is_number(labels, 2**31 - 1)


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
