"""Steps that make a bundle one after another; a finished step does not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala_export.writing import digest_of, write_file, writing


@dataclass(frozen=True)
class Step:
    """A step, which makes a bundle from the previous one; a choice before it is a file, too.

    Attributes:
        name: For messages.
        part: Key of its summary in the release's summary; "" merges its summary there.
        make: Takes the previous step's bundle (the first step its own) and the output path;
            returns a summary.
        bundle: The file of its bundle, named by the digest.
        before: The bundle of the previous step.
        digest: Digest of everything that its result depends on.
    """

    name: str
    part: str
    make: Callable[[Path, Path], Mapping[str, Any]]
    bundle: Path
    before: Path
    digest: str

    @property
    def summary_file(self) -> Path:
        """The file of the step's summary, with a digest of it and of the bundle; written last."""
        return self.bundle.with_suffix(".json")

    @property
    def done(self) -> bool:
        """Whether it has run, and its files are whole."""
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
        """The summary of a finished step; None if it has not run, or one of its files is damaged.

        Raises:
            ExportError: The bundle cannot be read.
        """
        if not self.bundle.is_file() or not self.summary_file.is_file():
            return None
        try:
            content = json.loads(self.summary_file.read_bytes())
            summary: dict[str, Any] = content["summary"]
            whole = content["digest"] == self._digest_with(summary)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return summary if whole else None

    def _digest_with(self, summary: object) -> str:
        """SHA-256 of the bundle and its summary."""
        content = f"{digest_of(self.bundle)}{json.dumps(summary)}"
        return hashlib.sha256(content.encode()).hexdigest()


class Steps(list[Step]):
    """Steps in order.

    Args:
        folder: Folder of their bundles.
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
        """Append a step; ``inputs`` is all that it depends on besides the previous step."""
        previous = self[-1] if self else None
        content = json.dumps([previous.digest if previous else "", name, inputs])
        digest = hashlib.sha256(content.encode()).hexdigest()
        bundle = self._folder / f"{digest[:32]}.fala"
        self.append(Step(name, part, make, bundle, previous.bundle if previous else bundle, digest))
