"""Run steps that make bundles one after another; a finished step does not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fala
import fala_export
from fala_export.base.files import digest_of_file, write_file, writing


@dataclass
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
        summary: What ``make`` returned; None if the step is not done.
    """

    name: str
    part: str
    make: Callable[[Path, Path], Mapping[str, Any]]
    bundle: Path
    before: Path
    digest: str
    summary: dict[str, Any] | None

    def is_done(self) -> bool:
        """Return whether the step has run and its files were intact when the steps were listed."""
        return self.summary is not None

    def run(self) -> dict[str, Any]:
        """Run the step unless it is done, and return its summary.

        Raises:
            ExportError: The step fails, or its folder cannot be read or written.
        """
        if self.summary is None:
            with writing(self.bundle.parent):
                self.bundle.parent.mkdir(parents=True, exist_ok=True)
            summary = json.loads(json.dumps(self.make(self.before, self.bundle)))
            content = {"digest": _digest_of(self.bundle, summary), "summary": summary}
            write_file(_summary_file(self.bundle), json.dumps(content).encode())
            self.summary = summary
        return self.summary


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
        before = previous.bundle if previous else bundle
        self.append(Step(name, part, make, bundle, before, digest, _finished(bundle)))


def _finished(bundle: Path) -> dict[str, Any] | None:
    """Return the summary of a finished step, or None if it has not run or a file is damaged.

    Raises:
        ExportError: The bundle cannot be read.
    """
    if not bundle.exists():
        return None
    try:
        content = json.loads(_summary_file(bundle).read_bytes())
        summary: dict[str, Any] = content["summary"]
        is_whole = content["digest"] == _digest_of(bundle, summary)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return summary if is_whole else None


def _summary_file(bundle: Path) -> Path:
    """Return the file of a step's summary, with a digest of it and of the bundle; written last."""
    return bundle.with_suffix(".json")


def _digest_of(bundle: Path, summary: object) -> str:
    """Return the SHA-256 digest of a bundle and its summary."""
    content = f"{digest_of_file(bundle)}{json.dumps(summary)}"
    return hashlib.sha256(content.encode()).hexdigest()


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
