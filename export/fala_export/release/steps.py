"""Run steps that make bundles one after another; a finished step does not run again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import fala
import fala_export
from fala_export.base.files import digest_of_file, write_file, writing

_TICK = 1_000_000_000  # Nanoseconds of a tick of the clock, with a margin.


@dataclass(frozen=True)
class Step:
    """A step, which makes a bundle from the previous bundle.

    Attributes:
        name: Name of the step, for messages.
        part: Key of the step's summary in the release's summary; "" merges it into the latter.
        make: A function that takes the previous step's bundle (for the first step, its own) and the
            output path, and returns a summary.
        bundle: File of the step's bundle, named by the digest.
        before: The bundle of the previous step.
        digest: Digest of everything that the step's result depends on.
        _read: What was read from the step's files, by their state, because a bundle has hundreds of
            megabytes.
    """

    name: str
    part: str
    make: Callable[[Path, Path], Mapping[str, Any]]
    bundle: Path
    before: Path
    digest: str
    _read: dict[object, dict[str, Any] | None] = field(default_factory=dict, compare=False)

    @property
    def summary_file(self) -> Path:
        """The file of the step's summary, with a digest of it and of the bundle; written last."""
        return self.bundle.with_suffix(".json")

    def is_done(self) -> bool:
        """Return whether the step has run and its files are intact; they are read once."""
        return self._stored() is not None

    def run(self) -> dict[str, Any]:
        """Run the step unless it is done, and return its summary.

        Raises:
            ExportError: The step fails, or its folder cannot be read or written.
        """
        if (stored := self._stored()) is not None:
            return stored
        with writing(self.bundle.parent):
            self.bundle.parent.mkdir(parents=True, exist_ok=True)
        summary: dict[str, Any] = json.loads(json.dumps(self.make(self.before, self.bundle)))
        content = {"digest": self._digest_with(summary), "summary": summary}
        write_file(self.summary_file, json.dumps(content).encode())
        return summary

    def _stored(self) -> dict[str, Any] | None:
        """Return the summary of a finished step, or None if it has not run or a file is damaged.

        Raises:
            ExportError: The bundle cannot be read.
        """
        try:
            files = tuple(_state_of(file) for file in (self.bundle, self.summary_file))
        except FileNotFoundError:
            return None
        if files not in self._read:
            summary = self._whole_summary()
            self._read.clear()
            # A file that is written again within a tick of the clock has the same state.
            if max(written for *_, written in files) < time.time_ns() - _TICK:
                self._read[files] = summary
            return summary
        return self._read[files]

    def _whole_summary(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self.summary_file.read_bytes())
            summary: dict[str, Any] = content["summary"]
            whole = content["digest"] == self._digest_with(summary)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return summary if whole else None

    def _digest_with(self, summary: object) -> str:
        """Return the SHA-256 digest of the bundle and its summary."""
        content = f"{digest_of_file(self.bundle)}{json.dumps(summary)}"
        return hashlib.sha256(content.encode()).hexdigest()


class ReleaseSteps(list[Step]):
    """Steps in the order in which they run.

    Args:
        folder: Folder of the steps' bundles.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def add(
        self,
        name: str,
        part: str,
        inputs: Sequence[Any],
        make: Callable[[Path, Path], Mapping[str, Any]],
    ) -> None:
        """Append a step; ``inputs`` is everything that it depends on except the previous step."""
        previous = self[-1] if self else None
        content = json.dumps([previous.digest if previous else "", name, inputs])
        digest = hashlib.sha256(content.encode()).hexdigest()
        bundle = self._folder / f"{digest[:32]}.fala"
        self.append(Step(name, part, make, bundle, previous.bundle if previous else bundle, digest))


@cache
def code_digest() -> str:
    """Return the SHA-256 digest of the code of ``fala`` and ``fala_export``.

    Every step depends on this code, and in a checkout the version alone does not identify it.
    """
    digest = hashlib.sha256(fala.__version__.encode())
    for package in (fala, fala_export):
        folder = Path(str(package.__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _state_of(file: Path) -> tuple[int, ...]:
    """Return the attributes of a file that change when it is written again."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
