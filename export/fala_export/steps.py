"""Steps that make a bundle one after another; what was done is not done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala import ExportError
from fala.release import write_atomically
from fala_export.writing import writing


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        name: For people.
        part: Of the release's summary that its own is; "" where it is that of the whole.
        inputs: All that its result depends on, beside the bundle before it, as JSON can hold it.
        run: Takes the bundle of the step before, and where to write its own; returns a summary.
    """

    name: str
    part: str
    inputs: Sequence[Any]
    run: Callable[[Path, Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A step in its place among others.

    Attributes:
        step: The step.
        bundle: The file of its bundle, named by the digest of all that it depends on.
        before: That of the step before; of the first its own.
    """

    step: Step
    bundle: Path
    before: Path

    @property
    def summary_file(self) -> Path:
        """Holds the step's summary; written last."""
        return self.bundle.with_suffix(".json")

    @property
    def done(self) -> bool:
        """Whether it need not run again."""
        return self.bundle.is_file() and self.summary_file.is_file()

    def run(self) -> dict[str, Any]:
        """The step's summary; the step runs unless it is done.

        Raises:
            ExportError: The step fails, or its folder cannot be written.
        """
        if not self.done:
            with writing(self.bundle.parent):
                self.bundle.parent.mkdir(parents=True, exist_ok=True)
            summary = json.dumps(self.step.run(self.before, self.bundle))
            with writing(self.summary_file):
                write_atomically(self.summary_file, lambda file: file.write_text(summary))
        loaded: dict[str, Any] = json.loads(self.summary_file.read_text(encoding="utf-8"))
        return loaded


def planned(steps: Sequence[Step], folder: Path) -> Iterator[Planned]:
    """Steps in their places.

    Args:
        steps: In order.
        folder: Where their bundles are kept.
    """
    digest, before = "", None
    for step in steps:
        digest = hashlib.sha256(json.dumps([digest, step.name, step.inputs]).encode()).hexdigest()
        bundle = folder / f"{digest[:32]}.fala"
        yield Planned(step, bundle, before or bundle)
        before = bundle


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of all files in a folder with their names.

    Raises:
        ExportError: It cannot be read.
    """
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    try:
        for file in files:
            name, size = file.relative_to(path).as_posix(), file.stat().st_size
            digest.update(f"{name}\n{size}\n".encode())
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
