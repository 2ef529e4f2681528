"""The budget of a replacement, and the app's progress function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fala.errors import BudgetError, shown

#: Default forward passes of a replacement: without a bridge, and with one.
PASSES, BRIDGED_PASSES = 100, 20
#: Upper bound for passes and seconds.
_MOST = 10**12

#: Called with a stage's name, the units done and their total; returning False cancels the work.
Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Budget:
    """Limits of the cost of a replacement.

    Attributes:
        forward_passes: Texts through the new backbone, at most; None is ``BRIDGED_PASSES`` where
            the release has a bridge from the old backbone, else ``PASSES``. Word vectors cost none.
        seconds: Wall time after which no more texts are encoded; None sets no limit. Encoding
            stops before the batch that would exceed it; the time to solve comes on top.

    Raises:
        BudgetError: If a number is negative or not a number.

    Examples:
        >>> fala.Budget(forward_passes=20, seconds=30)
        Budget(forward_passes=20, seconds=30)
    """

    forward_passes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        passes = self.forward_passes
        if isinstance(passes, bool) or not isinstance(passes, int | None):
            raise BudgetError(f"forward_passes is a whole number, not {shown(passes)}")
        if passes is not None and passes < 0:
            raise BudgetError(f"forward_passes is 0 or more, not {shown(passes)}")
        if passes is not None:
            object.__setattr__(self, "forward_passes", min(passes, _MOST))
        seconds = self.seconds
        if seconds is None:
            return
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BudgetError(f"seconds is a number, not {shown(seconds)}")
        if not seconds >= 0:
            raise BudgetError(f"seconds is 0 or more, not {shown(seconds)}")
        if isinstance(seconds, int) and seconds > _MOST:  # more than a float's clock can add
            object.__setattr__(self, "seconds", math.inf)

    def passes(self, bridged: bool) -> int:
        """Forward passes allowed, with or without a bridge."""
        if self.forward_passes is not None:
            return self.forward_passes
        return BRIDGED_PASSES if bridged else PASSES
