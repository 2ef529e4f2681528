"""A job as an engine runs it, and what an engine tells of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

#: Told of progress, a line at a time.
Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Needs:
    """What a job takes of a machine; a cluster runs no more at once than fits.

    Attributes:
        cpus: Cores, and threads of its numeric libraries.
        memory: Bytes.
    """

    cpus: int = 1
    memory: int = 2**30


@dataclass(frozen=True)
class Call:
    """A job, ready to be run in a process of its own.

    Attributes:
        job: A function of a module with its arguments; what it gives is taken as it comes.
        inputs: Gives the files and folders that it reads; asked where they must travel. The job
            finds them by ``fala_sim.engine.inputs.here``.
        folder: A folder in which it works, and goes on where it stopped: of a file system that
            all machines share. None where it needs none.
    """

    job: Callable[[], Iterable[Any]]
    inputs: Callable[[], Sequence[Path]] = tuple
    folder: Path | None = None


@dataclass(frozen=True)
class Task:
    """Something that an engine can be asked to do.

    Attributes:
        label: For progress and errors.
        make: Gives the call; asked only where the task is to be run, so what it needs is prepared
            then, and again where it is run again.
        done: Whether an earlier run did it; then it is not run again.
        needs: Of a machine.
    """

    label: str
    make: Callable[[], Call]
    done: Callable[[], bool]
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True)
class Gave:
    """One thing that a job gave.

    Attributes:
        task: Whose.
        item: What.
        origin: With what it was made, as ``fala_sim.origin.provenance`` says where it ran; None
            where that is this machine.
    """

    task: Task
    item: Any
    origin: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ended:
    """A job came to its end.

    Attributes:
        task: Whose.
        error: Why it failed; "" where it did not.
        seconds: Of the job, with its process.
    """

    task: Task
    error: str
    seconds: float


Event: TypeAlias = "Gave | Ended"


class Engine(ABC):
    """Runs jobs, each in a process of its own, on one machine or on many."""

    @abstractmethod
    def run(self, ready: Sequence[tuple[Task, Call]]) -> Iterator[Event]:
        """Run tasks, in their order as far as there is room.

        Nothing is written: whoever asks does that with what comes. To stop asking ends what runs.

        Args:
            ready: Tasks with their calls.

        Yields:
            What jobs give, as it comes, and one ``Ended`` for each task.
        """
