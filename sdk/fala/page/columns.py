"""What the models say of the same posts, and who is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.device import Device
from fala.vendor.metrics import auc


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
    """How often a model is right.

    Args:
        column: Its answers.
        truth: What the reader or the visitor says, by a post's position.

    Returns:
        ``right`` of ``of``, and ``auc``, None where it is not defined.
    """
    at = np.array(sorted(truth), dtype=np.int64)
    labels = np.array([truth[int(place)] for place in at], dtype=np.int64) == 1
    right = int((column.decided[at] == labels).sum())
    return {"right": right, "of": len(at), "auc": auc(labels, column.unwelcome[at])}


def compared(old: Column, new: Column, truth: Mapping[int, int]) -> dict[str, Any]:
    """Where the new model does worse than the old one, and where better.

    Returns:
        The posts that the old one decides rightly and the new one wrongly (``lost``), those of the
        other way round (``gained``), and whether the new one is ``worse`` by AUC; by right
        decisions where that is not defined.
    """
    lost = [
        place
        for place, label in truth.items()
        if bool(old.decided[place]) == bool(label) != bool(new.decided[place])
    ]
    gained = [
        place
        for place, label in truth.items()
        if bool(new.decided[place]) == bool(label) != bool(old.decided[place])
    ]
    before, after = quality(old, truth)["auc"], quality(new, truth)["auc"]
    worse = len(lost) > len(gained) if before is None or after is None else after < before
    return {"lost": sorted(lost), "gained": sorted(gained), "worse": worse}
