"""Who has a prompt, and how writers are numbered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fala import DataError
from fala.release import Row

UNKNOWN = 0
"""The number of a writer whom the training has not seen."""

PLAIN = -1
"""The number that asks for no prompt at all."""

FEWEST_ROWS = 5
"""Rows below which a writer is an unknown one: a prompt of their own would learn rows by heart."""

_FEWEST_WRITERS = 2


@dataclass(frozen=True)
class Writers:
    """The writers of a training, numbered from 1 on; see ``UNKNOWN`` and ``PLAIN``.

    Attributes:
        names: The busiest first.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Writers:
        """Find the writers of training rows.

        Raises:
            DataError: Fewer than two have rows enough.
        """
        counts = Counter(row.user for row in rows if row.user is not None)
        names = tuple(user for user, count in counts.most_common() if count >= FEWEST_ROWS)
        if len(names) < _FEWEST_WRITERS:
            raise DataError(
                f"the training rows have {len(names)} users of {FEWEST_ROWS} rows or more, and "
                f"writers' prompts need {_FEWEST_WRITERS}; give public rows that name their user"
            )
        return cls(names)

    def numbers(self, users: Sequence[str | None]) -> list[int]:
        """The numbers of users."""
        place = {name: number for number, name in enumerate(self.names, start=1)}
        return [UNKNOWN if user is None else place.get(user, UNKNOWN) for user in users]
