"""Real devices, of ``profiles.csv``: each figure with the place where it was published."""

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

#: High-Performance LINPACK: a dense system solved in float64 on all cores, measured on the device.
LINPACK = "LINPACK fp64"
#: Fused multiply-adds in float32 on all cores, measured on the device: no program is faster.
PEAK = "peak fp32"


@dataclass(frozen=True)
class Figure:
    """A published number.

    Attributes:
        value: In bytes, cores or GFLOP/s.
        source: Who published it, and where.
    """

    value: float
    source: str


@dataclass(frozen=True)
class Profile:
    """A class of devices, by one that stands for it.

    Attributes:
        name: On the command line and in records.
        title: In tables.
        cores: The processor's cores, of all kinds.
        memory: What an app may take, in bytes.
        storage: Room for the app's files, in bytes; None where none was published, as on boards
            with a memory card of the owner's choice.
        speeds: GFLOP/s by kind (``LINPACK``, ``PEAK``), the more telling first; may be empty.
    """

    name: str
    title: str
    cores: Figure
    memory: Figure
    storage: Figure | None = None
    speeds: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What a device's process may take.

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
    """What a device's process does.

    Attributes:
        name: ``"replace"``, or a trained method's: one epoch over a few documents.
        old: The release that it has.
        new: The one that comes.
        examples: The user's.
        labels: Their names.
        transformer: The new backbone as Hugging Face has it, for what trains it.
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
        found = {one["figure"]: Figure(_number(one["value"]), one["source"]) for one in figures}
        cores, memory = found.pop("cores"), found.pop("memory")
        yield Profile(name, title, cores, memory, found.pop("storage", None), found)


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


#: From the least memory to the most. The Raspberry Pi Compute Module Zero has no speed: the LINPACK
#: figure published of its chip (Zero 2 W, 0.370 GFLOP/s) is of a matrix that nearly fills the
#: memory.
PROFILES = tuple(_profiles())
