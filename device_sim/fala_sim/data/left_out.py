"""Counts of what a converter left out of a data set."""

from __future__ import annotations

from collections import Counter


class LeftOut:
    """Counts by reason; the reason of damaged data also has the position of its first case.

    A reason is a plural after a number: ``"damaged rows of ratings.csv"``.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, reason: str, first: str | None = None, *, count: int = 1) -> None:
        """Count cases.

        Args:
            reason: What was left out.
            first: Position and description of damaged data. Only the first one of a reason is
                stored.
            count: Number of cases; 0 does nothing.
        """
        if count:
            self._counts[reason] += count
            if first is not None:
                self._first.setdefault(reason, first)

    def copy(self) -> LeftOut:
        """Return a copy of the counts."""
        copied = LeftOut()
        copied._counts, copied._first = self._counts.copy(), self._first.copy()
        return copied

    def counts(self) -> dict[str, int]:
        """Return the counts by reason, in order of first appearance."""
        return dict(self._counts)

    def lines(self) -> list[str]:
        """Return a line for each reason; damaged data is a warning."""
        return [
            f"warning: left out {count} {reason}; the first: {self._first[reason]}"
            if reason in self._first
            else f"left out {count} {reason}"
            for reason, count in self._counts.items()
        ]
