"""A clock that a test moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fala.base.errors import DataError


class Clock:
    """Time that only moves when a test moves it.

    The device reads two clocks: ``time.time`` for the times of examples and labels, and
    ``time.perf_counter`` for a budget's seconds. Both are this clock while it is ``ticking``. A
    budget of seconds ends when a ``progress`` function calls ``forward``.

    Args:
        start: The first time, in seconds since 1970; None is now.
    """

    def __init__(self, start: float | None = None) -> None:
        self.now = time.time() if start is None else float(start)
        self._passed = 0.0

    def forward(self, seconds: float = 0.0, *, minutes: float = 0.0, days: float = 0.0) -> None:
        """Move the time forward.

        Raises:
            DataError: The time is negative; use ``set`` to go back.
        """
        passed = seconds + 60 * minutes + 86_400 * days
        if not passed >= 0:
            raise DataError(f"time goes forward, not by {passed:g} s; use Clock.set")
        self.now += passed
        self._passed += passed

    def set(self, now: float) -> None:
        """Set the time of day (s since 1970), as a user may; no time passes."""
        self.now = float(now)

    @contextmanager
    def ticking(self) -> Iterator[Clock]:
        """Replace the process's clock."""
        with (
            mock.patch("time.time", lambda: self.now),
            mock.patch("time.time_ns", lambda: int(1e9 * self.now)),
            mock.patch("time.perf_counter", lambda: self._passed),
            mock.patch("time.perf_counter_ns", lambda: int(1e9 * self._passed)),
        ):
            yield self
