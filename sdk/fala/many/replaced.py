"""What a replacement for all has done: a count of devices by what became of them."""

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
        path: Its folder.
        error: The type of the error.
        message: Its message.
    """

    path: str
    error: str
    message: str


@dataclass(frozen=True)
class ReplacedAll(Plain):
    """What ``fala.replace_all`` has done.

    Attributes:
        new: The new release, by product, version and backbone.
        devices: All devices.
        replaced: Those that were replaced now.
        refined: Those that had the release, and were refined with what was left of the budget.
        already: Those that had the release, with nothing left to do.
        went_back: Those that went back from the release earlier, and keep their previous one.
        refused: Those that keep their release by ``accept``.
        personal: How many of the replaced and refined ones have a personal model now; see
            ``Report.decision``.
        calibrated: How many have the vendor's with the user's slope and bias.
        vendor: How many have the vendor's as it is.
        better: How many users are better off, beyond noise; see ``Comparison.worse``.
        no_worse: How many are no worse off.
        worse: How many are worse off.
        unknown: Of how many it is not known.
        forward_passes: Texts that the new backbone has encoded; see ``Report.forward_passes``.
        shared: Further texts, whose embeddings were computed for another user.
        failures: The devices that could not be replaced.
        seconds: Wall time.
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
        """Add what was done with further ones of the devices."""
        names = {each.name for each in fields(self)} - {"new", "devices"}
        sums = {name: getattr(self, name) + getattr(further, name) for name in names}
        return replace(self, **sums)

    @classmethod
    def of(cls, kind: str, report: Report, encoded: int) -> ReplacedAll:
        """Return what was done with one device.

        Args:
            kind: ``"replaced"`` or ``"refined"``.
            report: The device's.
            encoded: Texts of its budget that were encoded for it, and not for another device.
        """
        further = sum(each.forward_passes for each in report.adapters.values())
        counts: dict[str, Any] = dict.fromkeys((kind, report.decision, report.judgement), 1)
        return cls(
            forward_passes=min(encoded, report.forward_passes) + further,
            shared=max(report.forward_passes - encoded, 0), **counts,
        )  # fmt: skip

    @classmethod
    def failing(cls, path: Path, error: Exception) -> ReplacedAll:
        """Return what was done with a device that failed: an error's type and message.

        An error that is not FaLA's is told by its place, because its message may quote a text.
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
            f"on {self.worse}; on {self.unknown} it is not known."
        )

    @property
    def failed(self) -> int:
        """How many devices could not be replaced."""
        return len(self.failures)

    @property
    def reached(self) -> int:
        """How many devices are done."""
        done = self.replaced + self.refined + self.already + self.went_back + self.refused
        return done + self.failed

    @property
    def not_reached(self) -> int:
        """How many devices are left after a cancellation."""
        return self.devices - self.reached

    @property
    def a_second(self) -> float:
        """Devices a second."""
        return self.reached / self.seconds if self.seconds else 0.0
