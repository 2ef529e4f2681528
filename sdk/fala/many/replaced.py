"""The result of a replacement for all: numbers of devices by outcome."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fala.base.errors import FalaError, counted
from fala.report import Plain, Report


@dataclass(frozen=True)
class Failure(Plain):
    """A device that could not be replaced.

    Attributes:
        path: The device's folder.
        error: The type of the error.
        message: The message of the error.
    """

    path: str
    error: str
    message: str


@dataclass(frozen=True)
class ReplacedAll(Plain):
    """The result of ``fala.replace_all``.

    Attributes:
        new: The new release, by product, version and backbone.
        devices: Number of all devices.
        replaced: Number of devices that were replaced now.
        refined: Number of devices that had the release, and were refined with the rest of the
            budget.
        already: Number of devices that had the release, with nothing left to do.
        went_back: Number of devices that went back from the release earlier, and keep their
            previous one.
        refused: Number of devices that keep their release because of ``accept``.
        personal: Number of replaced and refined devices that have a personal model now; see
            ``Report.decision``.
        calibrated: Number of those that have the recalibrated vendor model, with the user's slope
            and bias.
        vendor: Number of those that have the vendor's model as it is.
        better: Number of users who are better off, beyond noise; see ``Comparison.worse``.
        no_worse: Number of users who are no worse off.
        worse: Number of users who are worse off.
        unknown: Number of users for whom the comparison is inconclusive.
        forward_passes: Number of texts that the new backbone has encoded; see
            ``Report.forward_passes``.
        shared: Number of further texts whose embeddings were computed for another user.
        failures: The devices that could not be replaced.
        seconds: Wall time in seconds.
    """

    new: str = ""
    devices: int = 0
    replaced: int = 0
    refined: int = 0
    already: int = 0
    went_back: int = 0
    refused: int = 0
    personal: int = 0
    calibrated: int = 0
    vendor: int = 0
    better: int = 0
    no_worse: int = 0
    worse: int = 0
    unknown: int = 0
    forward_passes: int = 0
    shared: int = 0
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0

    _derived = "failed", "not_reached", "a_second"

    def __add__(self, further: ReplacedAll) -> ReplacedAll:
        """Add what was done with further devices."""
        names = {each.name for each in fields(self)} - {"new", "devices"}
        sums = {name: getattr(self, name) + getattr(further, name) for name in names}
        return replace(self, **sums)

    @classmethod
    def of(cls, kind: str, report: Report, encoded: int) -> ReplacedAll:
        """Return what was done with one device.

        Args:
            kind: ``"replaced"`` or ``"refined"``.
            report: The device's report.
            encoded: Number of texts that were encoded for it, not for another device.
        """
        further = sum(each.forward_passes for each in report.adapters.values())
        counts: dict[str, Any] = dict.fromkeys((kind, report.decision, report.judgement), 1)
        return cls(
            forward_passes=min(encoded, report.forward_passes) + further,
            shared=max(report.forward_passes - encoded, 0), **counts,
        )  # fmt: skip

    @classmethod
    def failing(cls, path: Path, error: Exception) -> ReplacedAll:
        """Return the result of a device that failed, with the type and message of the error.

        If the error is not FaLA's, its place replaces the message, which may quote a text.
        """
        kind, message = type(error).__name__, str(error)
        if not isinstance(error, FalaError):
            *_, frame = traceback.extract_tb(error.__traceback__)
            message = f"{kind} in line {frame.lineno} of {Path(frame.filename).name}"
        return cls(failures=(Failure(str(path), kind, message),))

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        left = self.devices - self.replaced - self.refined - self.failed
        return (
            f"{self.new} was installed on {self.replaced} of {counted(self.devices, 'device')}; "
            f"{self.refined} were refined, {left} left as they were, and {self.failed} failed. The "
            f"user is better off on {self.better}, no worse off on {self.no_worse} and worse off "
            f"on {self.worse}; on {self.unknown} the comparison is inconclusive."
        )

    @property
    def failed(self) -> int:
        """Number of devices that could not be replaced."""
        return len(self.failures)

    @property
    def reached(self) -> int:
        """Number of devices that are done."""
        done = self.replaced + self.refined + self.already + self.went_back + self.refused
        return done + self.failed

    @property
    def not_reached(self) -> int:
        """Number of devices that are left after a cancellation."""
        return self.devices - self.reached

    @property
    def a_second(self) -> float:
        """Number of devices per second."""
        return self.reached / self.seconds if self.seconds else 0.0
