"""Real devices, from ``profiles.csv``: each figure with its published source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from fala_sim.csv_rows import csv_rows

if TYPE_CHECKING:
    from fala_sim.situation import Example, UserLabel

MIB = 1024**2

#: High-Performance LINPACK: a dense float64 system solved on all cores, measured on the device.
LINPACK = "LINPACK fp64"
#: Fused multiply-adds in float32 on all cores, measured on the device: the upper limit.
PEAK = "peak fp32"


@dataclass(frozen=True)
class Figure:
    """A published number.

    Attributes:
        value: In bytes, cores or GFLOP/s.
        source: Publisher and place.
    """

    value: float
    source: str


@dataclass(frozen=True)
class Profile:
    """A class of devices, represented by one.

    Attributes:
        name: On the command line and in records.
        title: In tables.
        cores: The processor's cores, of all kinds.
        memory: Memory limit of an app, in bytes.
        storage: Storage for the app's files, in bytes; None if none was published, as for boards
            with a memory card.
        speeds: GFLOP/s by kind (``LINPACK``, ``PEAK``), the more realistic first; may be empty.
    """

    name: str
    title: str
    cores: Figure
    memory: Figure
    storage: Figure | None = None
    speeds: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """The limits of a device's process.

    Attributes:
        device: The device's folder.
        cores: How many.
        memory: In bytes.
        storage: Of the device's folder, in bytes; None has no limit.
        trains: Whether a transformer is trained: its libraries count as loaded before.
    """

    device: Path
    cores: int
    memory: int
    storage: int | None
    trains: bool


@dataclass(frozen=True)
class Work:
    """The work of a device's process.

    Attributes:
        name: ``"replace"``, or ``"full"``: one epoch of fine-tuning over a few documents.
        old: The release on the device.
        new: The new release.
        examples: The user's.
        labels: Their labels.
        transformer: Hugging Face folder of the new backbone, for training.
        seed: Of every random choice.
    """

    name: str
    old: Path
    new: Path
    examples: Sequence[Example]
    labels: Sequence[UserLabel]
    transformer: Path | None = None
    seed: int = 0


def _profiles() -> Iterator[Profile]:
    rows = csv_rows(__package__, "profiles.csv")
    for (name, title), figures in groupby(rows, key=lambda row: (row["name"], row["title"])):
        by_kind = {row["figure"]: Figure(_number(row["value"]), row["source"]) for row in figures}
        cores, memory = by_kind.pop("cores"), by_kind.pop("memory")
        yield Profile(name, title, cores, memory, by_kind.pop("storage", None), by_kind)


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


#: By rising memory. The Raspberry Pi Compute Module Zero has no speed: the published LINPACK figure
#: of its chip (Zero 2 W, 0.370 GFLOP/s) is for a matrix that nearly fills the memory.
PROFILES = tuple(_profiles())
