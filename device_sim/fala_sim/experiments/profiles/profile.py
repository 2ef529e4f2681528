"""Real devices, from ``profiles.csv``: each figure with its published source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from fala_sim.data.tables import csv_rows

if TYPE_CHECKING:
    from fala_sim.data.users import UserExample, UserLabel


@dataclass(frozen=True)
class Figure:
    """A published number.

    Attributes:
        value: In bytes, or cores.
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
    """

    name: str
    title: str
    cores: Figure
    memory: Figure
    storage: Figure | None = None


@dataclass(frozen=True)
class ProfileLimits:
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
class ProfileWork:
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
    examples: Sequence[UserExample]
    labels: Sequence[UserLabel]
    transformer: Path | None = None
    seed: int = 0


def _profiles() -> Iterator[Profile]:
    rows = csv_rows(__package__, "profiles.csv")
    for (name, title), figures in groupby(rows, key=lambda row: (row["name"], row["title"])):
        by_kind = {row["figure"]: Figure(int(row["value"]), row["source"]) for row in figures}
        yield Profile(name, title, by_kind["cores"], by_kind["memory"], by_kind.get("storage"))


#: By rising memory.
PROFILES = tuple(_profiles())
