"""A mean over users, and the format of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class UserMean:
    """A mean over users.

    Attributes:
        mean: The mean.
        deviation: Standard deviation over users; None with one user.
        low: Lower end of the mean's interval; None if there is no interval.
        high: Upper end of the mean's interval; None if there is no interval.
        n: Number of users in the mean.
        missing: Number of users without the figure, such as an AUC with only one class.
    """

    mean: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 1
    missing: int = 0

    def __str__(self) -> str:
        parts = (self.mean, self.deviation, self.low, self.high)
        largest = max(abs(part) for part in parts if part is not None)

        def text(part: float) -> str:
            if largest >= 1e6 or 0 < largest < 1e-4:
                return number_text(part)
            return f"{part:,.{decimals}f}"

        # The largest number gets three digits, and the others get the same number of decimals.
        decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 3
        decimals = max(decimals, 3) if largest < 1 else decimals
        words = text(self.mean)
        if self.deviation is not None:
            words += f" ± {text(self.deviation)}"
        if self.low is not None and self.high is not None:
            words += f" [{text(self.low)}, {text(self.high)}]"
        if self.missing:
            words += f" ({self.n} of {self.n + self.missing} users)"
        return words


def number_text(value: float | int) -> str:
    """Return a number with three significant digits; whole ones below a million in full."""
    size = abs(value)
    if size >= 1e6:
        return f"{value:.2e}"
    if isinstance(value, int) or size >= 999.5:
        return f"{value:,.0f}"
    if size == 0:
        return "0"
    if size >= 1:
        return f"{value:#.3g}".rstrip(".")
    text = f"{value:.3g}"
    return text if "e" in text else text + "0" * (3 - len(text.partition(".")[2]))
