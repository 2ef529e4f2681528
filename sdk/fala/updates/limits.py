"""The limits of an update, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fala.base.errors import BudgetError, shown


@dataclass(frozen=True)
class UpdateLimits:
    """The limits of an update's time and size.

    Attributes:
        connect_seconds: Seconds to open a connection, including its encryption.
        silent_seconds: Seconds without a byte.
        total_seconds: Seconds for all downloads of one call. The next call resumes where it
            stopped.
        attempts: Number of connections that may break, or restart, after next to no data.
        metadata_bytes: Bytes of the largest file of metadata; the repository also declares the
            length of each file.
        release_bytes: Bytes of the largest release, whatever the repository declares.

    Raises:
        BudgetError: If one of them is not a positive number.
    """

    connect_seconds: float = 15.0
    silent_seconds: float = 30.0
    total_seconds: float = 600.0
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
                raise BudgetError(f"{field.name} must be {kind} above 0, not {shown(value)}")
