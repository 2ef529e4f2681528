"""What an update may take, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fala.errors import BudgetError


@dataclass(frozen=True)
class UpdateLimits:
    """What a device waits for, and how much it takes, before it gives an update up.

    Attributes:
        connect_seconds: For a connection, with its encryption.
        silent_seconds: Without a byte.
        window_seconds: Waited for data, in all, over which ``least_rate`` is measured.
        least_rate: Bytes a second; a server that gives less is as good as one that gives nothing.
        attempts: Connections that may break off, or begin anew, with next to nothing gained.
        metadata_bytes: The largest file of metadata; the repository tells each one's length, too.
        release_bytes: The largest release, whatever the repository tells.

    Raises:
        BudgetError: One of them is not a positive number.
    """

    connect_seconds: float = 15.0
    silent_seconds: float = 30.0
    window_seconds: float = 30.0
    least_rate: float = 1_000.0
    attempts: int = 5
    metadata_bytes: int = 5_000_000
    release_bytes: int = 4_000_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type == "int"
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not 0 < value < math.inf
            ):
                kind = "a whole number" if whole else "a number"
                raise BudgetError(f"{field.name} is {kind} above 0, not {value!r:.40}")
