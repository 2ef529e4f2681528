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
    """Resources that a job takes; no engine runs more jobs in parallel than fit.

    Attributes:
        cpus: Number of cores, and of threads of its numeric libraries in a cluster.
        memory: Memory in bytes.
        gpu: Share of a GPU, from 0 to 1, by the memory that the job needs. On a machine without a
            GPU, the job runs without one.
    """

    cpus: int = 1
    memory: int = 2**30
    gpu: float = 0.0


#: The training of a transformer on one user's labels: a GPU of 16 GB has room for four.
TRAINING = Needs(memory=4 * 2**30, gpu=0.25)


@dataclass(frozen=True)
class Call:
    """A job that is ready to run in a process of its own.

    Attributes:
        job: Function of a module, with its arguments; it yields the outputs.
        inputs: Function that returns the files and folders that the job reads. It is called if they
            must be copied to another machine, where the job finds them by
            ``fala_sim.engine.shelf.local_path``.
        folder: Work folder in which the job resumes, on a file system that all machines share; None
            if the job needs no such folder.
    """

    job: Callable[[], Iterable[Any]]
    inputs: Callable[[], Sequence[Path]] = tuple
    folder: Path | None = None


@dataclass(frozen=True)
class Job:
    """A job that an engine can run.

    Attributes:
        label: Name of the job in progress lines and errors.
        make: Function that prepares what the job needs and returns the call; it is called before
            each attempt.
        done: Function that says whether an earlier run recorded the job, which is then skipped.
        needs: Resources that the job takes on a machine.
    """

    label: str
    make: Callable[[], Call]
    done: Callable[[], bool]
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True)
class Output:
    """One output of a job.

    Attributes:
        job: The job that yielded the output.
        item: The output.
        origin: ``provenance`` of the machine that ran the job; None for this machine.
    """

    job: Job
    item: Any
    origin: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class JobEnd:
    """The end of a job.

    Attributes:
        job: The job that ended.
        error: Why the job failed; "" if it succeeded.
        seconds: Wall time of the job, including the start of its process.
    """

    job: Job
    error: str
    seconds: float


JobEvent: TypeAlias = "Output | JobEnd"


class Engine(ABC):
    """Runs jobs, each in a process of its own, on one machine or on many."""

    @abstractmethod
    def run(self, ready: Sequence[tuple[Job, Call]]) -> Iterator[JobEvent]:
        """Run jobs in order, as many in parallel as there is room for.

        The engine itself writes nothing; the caller does. Closing the generator kills the running
        jobs.

        Args:
            ready: Jobs with their calls.

        Yields:
            Outputs of jobs, and one ``JobEnd`` for each job.
        """
