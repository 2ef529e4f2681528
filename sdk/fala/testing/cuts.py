"""Power cuts: an app's code is killed at an operation on the disk, or at any instant."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala.base.errors import DataError
from fala.testing.disks import counted, watching
from fala.testing.layer import Operation, OperationKind, Unsynced
from fala.testing.processes import Say, die, run_apart

#: An app's code: its arguments are a copy of the prepared folder, and ``say``.
Work = Callable[[Path, Say], object]


@dataclass(frozen=True)
class Cut:
    """The result of a power cut.

    Attributes:
        folder: The folder after the cut.
        where: ``"12: sync store.sqlite3-wal"``, or ``"after 0.120 s"``.
        said: The values that the code had passed to ``say``.
        killed: Whether the code was killed; an instant may be after its end.
    """

    folder: Path
    where: str
    said: tuple[Any, ...]
    killed: bool


@dataclass(frozen=True)
class Course:
    """A run of some code without a power cut.

    Attributes:
        operations: Its operations on the disk, in order.
        said: The values that it passed to ``say``.
        seconds: How long it took.
    """

    operations: tuple[Operation, ...]
    said: tuple[Any, ...]
    seconds: float


class PowerCuts:
    """Cuts the power while some code runs, again and again.

    Args:
        work: The code; it runs in a process of its own (see ``run_apart``).
        start: The folder at the start, copied for every run; None for one that does not exist.
        scratch: The folder of the copies; None makes a temporary one. A copy is deleted before the
            next is made.
        limit: Seconds after which a run counts as hanging.
    """

    def __init__(
        self,
        work: Work,
        start: str | os.PathLike[str] | None = None,
        *,
        scratch: str | os.PathLike[str] | None = None,
        limit: float = 60.0,
    ) -> None:
        self._work = work
        self._start = None if start is None else Path(start)
        self._scratch = None if scratch is None else Path(scratch)
        self._limit = limit
        self._course: Course | None = None

    def course(self) -> Course:
        """Return the code's run without a power cut; it happens once."""
        if self._course is None:

            def count(say: Say) -> None:
                with counted(folder) as operations:
                    self._work(folder, say)
                say([[each.number, each.kind, str(each.path)] for each in operations])

            with self.copy() as folder:
                ended = run_apart(count, limit=self._limit)
            *said, rows = ended.said
            operations = tuple(Operation(number, kind, Path(path)) for number, kind, path in rows)
            self._course = Course(operations, tuple(said), ended.seconds)
        return self._course

    def at_operations(
        self,
        kinds: Collection[OperationKind] | None = None,
        *,
        count: int | None = None,
        unsynced: Unsynced = "kept",
        seed: int = 0,
    ) -> Iterator[Cut]:
        """Cut the power just before operations, one a run.

        Args:
            kinds: Kinds of operations; None for all.
            count: Number of operations, drawn without replacement; None for all.
            unsynced: What happens to bytes that no sync followed: they are ``"kept"`` (a killed
                process), ``"lost"``, or lost by chance, ``"some"``, with writes torn in two.
            seed: The seed of the draws.

        Yields:
            The result of each cut. Its folder is deleted before the next.

        Raises:
            DataError: The code has no operation of these ``kinds``.
            FalaError: The code failed by itself, or hangs.
        """
        operations = self.course().operations
        numbers = [each.number for each in operations if kinds is None or each.kind in kinds]
        if not numbers:
            raise DataError(f"the code has no operation of the kinds {sorted(kinds or ())}")
        if count is not None and count < len(numbers):
            numbers = sorted(random.Random(seed).sample(numbers, count))
        for number in numbers:
            with self.copy() as folder:
                yield self.cut(folder, number, unsynced, seed)

    def at_instants(self, count: int, *, seed: int = 0) -> Iterator[Cut]:
        """Kill the code at instants drawn from the time that it takes; see ``at_operations``."""
        seconds = self.course().seconds
        draw = random.Random(seed)
        for _ in range(count):
            with self.copy() as folder:
                yield self.kill(folder, draw.uniform(0, seconds))

    def cut(self, folder: Path, number: int, unsynced: Unsynced = "kept", seed: int = 0) -> Cut:
        """Run the code on a folder, and cut the power just before an operation."""

        def run_and_die(say: Say) -> None:
            def decide(operation: Operation) -> None:
                if operation.number == number:
                    # The operation is sent first: nothing can be sent afterwards.
                    say(str(operation))
                    layer.cut(operation, unsynced, seed)
                    die()

            with watching(folder, decide, remember=unsynced != "kept") as layer:
                self._work(folder, say)

        ended = run_apart(run_and_die, limit=self._limit)
        if not ended.killed:  # this run had fewer operations
            return Cut(folder, "at its end", ended.said, killed=False)
        return Cut(folder, ended.said[-1], ended.said[:-1], killed=True)

    def kill(self, folder: Path, seconds: float) -> Cut:
        """Run the code on a folder, and kill it after some seconds."""
        ended = run_apart(
            lambda say: self._work(folder, say), kill_after=seconds, limit=self._limit
        )
        return Cut(folder, f"after {seconds:.3f} s", ended.said, ended.killed)

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """Make a copy of the start (or a folder that does not exist yet), deleted afterwards."""
        temporary = Path(tempfile.mkdtemp(prefix="fala-", dir=self._scratch))
        try:
            folder = temporary / "device"
            if self._start is not None:
                shutil.copytree(self._start, folder, symlinks=True)
            yield folder
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
