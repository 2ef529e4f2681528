"""What a job gives back: records, which the driver alone writes, and what they make needless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fala_sim.records import Key


@dataclass(frozen=True)
class Made:
    """A record.

    Attributes:
        key: Of the record.
        content: Plain values.
    """

    key: Key
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Spent:
    """Something of the run's work that the records before it needed, and nothing else does.

    Attributes:
        path: A file or a folder, to be removed once these are written.
    """

    path: Path


#: What a job is: it gives each record as soon as there is one, so that none is lost with a later.
Giving: TypeAlias = "Iterator[Made | Spent]"
