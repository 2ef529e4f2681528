"""What the models say of the same posts, and who is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.device import Device
from fala.release.metrics import auc, f1


@dataclass(frozen=True)
class Column:
    """One model's answers.

    Attributes:
        backbone: Its backbone's name.
        unwelcome: Probabilities that a post is unwelcome, shape (n,).
        threshold: The probability above which the model decides that it is.
    """

    backbone: str
    unwelcome: NDArray[np.float64]
    threshold: float

    @property
    def decided(self) -> NDArray[np.bool_]:
        """What it decides, shape (n,); as ``Device.decide`` does."""
        return self.unwelcome > self.threshold


def column_of(device: Device, texts: Sequence[str]) -> Column:
    """Ask a device about posts."""
    unwelcome = device.predict(texts)[:, 1]
    return Column(device.name, unwelcome, 1 / (1 + math.exp(-device.threshold)))


def quality(column: Column, truth: Mapping[int, int]) -> dict[str, Any]:
    """How good a model is.

    Args:
        column: Its answers.
        truth: What the reader or the visitor says, by a post's position.

    Returns:
        How many of its decisions are ``right`` ``of`` how many; ``auc``, None where it is not
        defined; and ``f1`` of its decisions, which is what a threshold is fitted for.
    """
    at = np.array(sorted(truth), dtype=np.int64)
    labels = np.array([truth[int(place)] for place in at], dtype=np.int64) == 1
    decided = column.decided[at]
    return {
        "right": int((decided == labels).sum()),
        "of": len(at),
        "auc": auc(labels, column.unwelcome[at]),
        "f1": f1(labels, decided),
    }


def compared(columns: Mapping[str, Column], truth: Mapping[int, int]) -> dict[str, Any]:
    """Where the user's new model does worse than the old one, and where better.

    Args:
        columns: All answers.
        truth: See ``quality``.

    Returns:
        ``of`` how many posts the old one decides rightly and the new one wrongly (``lost``), or the
        other way round (``gained``); and the columns that are ``better`` than the user's: by AUC,
        and by right decisions where that is not defined.
    """
    old, new = columns["old"].decided, columns["mine"].decided
    wrong = [place for place in sorted(truth) if bool(old[place]) != bool(new[place])]
    lost = [place for place in wrong if bool(old[place]) == bool(truth[place])]

    def worth(name: str) -> float:
        figures = quality(columns[name], truth)
        return float(figures["right"] if figures["auc"] is None else figures["auc"])

    better = [name for name in ("old", "vendor") if worth(name) > worth("mine")]
    return {
        "of": len(truth),
        "lost": len(lost),
        "gained": len(wrong) - len(lost),
        "better": better,
    }
