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
        value: Number of bytes, or of cores.
        source: Publisher, and place of the publication.
    """

    value: float
    source: str


@dataclass(frozen=True)
class Profile:
    """A class of devices, represented by one device.

    Attributes:
        name: Name on the command line and in records.
        title: Title in tables.
        cores: Number of the processor's cores, of all kinds.
        memory: Memory limit of an app, in bytes.
        storage: Storage for the app's files, in bytes; None if no figure was published, as for
            boards with a memory card.
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
        device: Folder of the device.
        cores: Number of cores.
        memory: Memory in bytes.
        storage: Storage of the device's folder, in bytes; None means no limit.
        trains: Whether a transformer is trained; its libraries then count as loaded beforehand.
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
        examples: Examples of the user.
        labels: Labels of the examples.
        transformer: Hugging Face folder of the new backbone, for training.
        seed: Seed of every random choice.
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


#: Profiles by name, sorted by rising memory.
PROFILES = tuple(_profiles())
