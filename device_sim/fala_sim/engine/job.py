"""Jobs, the engine interface, and the events that an engine yields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

#: Receives progress, a line at a time.
Log: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Needs:
    """Resources that a job takes; no engine runs more at once than fits.

    Attributes:
        cpus: Cores, and threads of its numeric libraries in a cluster.
        memory: Bytes.
        gpu: Share of a GPU, for its memory: 0 to 1. Where there is none, the job runs without.
    """

    cpus: int = 1
    memory: int = 2**30
    gpu: float = 0.0


#: A training of a transformer on one user's labels; a GPU of 16 GB has room for four.
TRAINING = Needs(memory=4 * 2**30, gpu=0.25)


@dataclass(frozen=True)
class Call:
    """A job, ready to be run in a process of its own.

    Attributes:
        job: A function of a module with its arguments; yields outputs.
        inputs: Returns the files and folders that it reads; called where they must be copied to
            another machine. The job finds them by ``fala_sim.engine.shelf.local_path``.
        folder: Its work folder, in which it resumes, on a file system that all machines share;
            None where it needs none.
    """

    job: Callable[[], Iterable[Any]]
    inputs: Callable[[], Sequence[Path]] = tuple
    folder: Path | None = None


@dataclass(frozen=True)
class Job:
    """A job that an engine can run.

    Attributes:
        label: For progress and errors.
        make: Prepares what the job needs and returns the call; called before each attempt.
        done: Whether an earlier run did it; then it is not run again.
        needs: Resources of a machine.
    """

    label: str
    make: Callable[[], Call]
    done: Callable[[], bool]
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True)
class Output:
    """One output of a job.

    Attributes:
        job: The job that it is of.
        item: The output.
        origin: ``provenance`` of the machine that ran it; None for this machine.
    """

    job: Job
    item: Any
    origin: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class JobEnd:
    """The end of a job.

    Attributes:
        job: The job that it is of.
        error: Why it failed; "" where it did not.
        seconds: Wall time of the job, with the start of its process.
    """

    job: Job
    error: str
    seconds: float


JobEvent: TypeAlias = "Output | JobEnd"


class Engine(ABC):
    """Runs jobs, each in a process of its own, on one machine or on many."""

    @abstractmethod
    def run(self, ready: Sequence[tuple[Job, Call]]) -> Iterator[JobEvent]:
        """Run jobs in order, as many at once as there is room.

        The engine writes nothing; the caller does. Closing the generator kills what runs.

        Args:
            ready: Jobs with their calls.

        Yields:
            Outputs of jobs, and one ``JobEnd`` for each job.
        """
