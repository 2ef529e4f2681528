"""The engine for many machines: Ray schedules the jobs, each in its own process."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fala import DataError, FalaError, __version__
from fala_sim.engine.job import Call, Engine, Job, JobEnd, JobEvent, Needs, Output
from fala_sim.engine.process import GPUS, THREADS, Running
from fala_sim.engine.shelf import Parcel, Shelf, unpack_shelf

#: A cluster on this machine alone needs no dashboard.
_ALONE = {"include_dashboard": False}
#: Number of times a job is started if its machine is lost.
ATTEMPTS = 4


@dataclass(frozen=True)
class _Order:
    """A job in the form in which it is sent to a machine of the cluster."""

    job: Callable[[], Iterable[Any]]
    parcels: tuple[Parcel, ...]
    folder: str | None
    threads: int
    version: str


@dataclass
class _Sent:
    """A job that has been sent."""

    job: Job
    attempt: int
    start: float
    error: str | None = None


class RayEngine(Engine):
    """Runs jobs on all machines of a Ray cluster."""

    def __init__(self, address: str | None, jobs: int) -> None:
        """Connect to a cluster.

        Args:
            address: Address of the cluster's head; None starts a cluster on this machine.
            jobs: Number of cores of a cluster on this machine.

        Raises:
            DataError: Ray is not installed, or the cluster cannot be reached.
        """
        # Ray reads this variable when it is imported, so that a run sends no usage statistics.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise DataError(
                "--engine ray: Ray is not installed: install fala-sdk with the extra [cluster]"
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            alone = {"num_cpus": jobs, **_ALONE}
            options: dict[str, Any] = {"address": address} if address else alone
            try:
                ray.init(**options, runtime_env=_environment(1), logging_level=logging.ERROR)
            except (OSError, RuntimeError, ValueError) as error:
                first = str(error).strip().partition("\n")[0]
                raise DataError(f"{address or 'a cluster of this machine'}: {first}") from error
        self._remote = ray.remote(_on_node)
        self._shelf = Shelf(ray.put)

    def run(self, ready: Sequence[tuple[Job, Call]]) -> Iterator[JobEvent]:
        """Run jobs in order; see ``Engine``."""
        ray = self._ray
        waiting = deque((job, call, 1) for job, call in ready)
        sent: dict[Any, _Sent] = {}
        try:
            while waiting or sent:
                while waiting and len(sent) < self._room():
                    job, call, attempt = waiting.popleft()
                    now = time.perf_counter()
                    try:
                        sent[self._send(job, call)] = _Sent(job, attempt, now)
                    except FalaError as error:  # an input file can no longer be read
                        yield JobEnd(job, str(error), 0.0)
                if not sent:
                    continue
                for stream in ray.wait(list(sent), num_returns=1, timeout=1.0)[0]:
                    entry = sent[stream]
                    try:
                        kind, value, origin = ray.get(next(stream))
                    except StopIteration:
                        del sent[stream]
                        why = (
                            "its process ended without a report"
                            if entry.error is None
                            else entry.error
                        )
                        yield JobEnd(entry.job, why, time.perf_counter() - entry.start)
                    except ray.exceptions.RayError as lost:
                        del sent[stream]
                        yield from self._again(entry, lost, waiting)
                    else:
                        if kind == "output":
                            yield Output(entry.job, value, origin)
                        else:
                            entry.error = value
        finally:
            for stream in sent:
                ray.cancel(stream, force=True)

    def _room(self) -> int:
        """Return how many jobs are sent ahead: about twice as many as the cluster can run."""
        return 2 + 2 * int(self._ray.cluster_resources().get("CPU", 1))

    def _send(self, job: Job, call: Call) -> object:
        needs = self._fitting(job.needs)
        order = _Order(
            call.job,
            self._shelf.parcels(call.inputs()),
            None if call.folder is None else str(call.folder.absolute()),
            needs.cpus,
            __version__,
        )
        options: dict[str, Any] = {
            "num_cpus": needs.cpus,
            "memory": needs.memory,
            "num_gpus": needs.gpu,
        }
        if needs.cpus > 1:
            options["runtime_env"] = _environment(needs.cpus)
        # Ray's own retries would ignore what has been recorded in the meantime.
        remote = self._remote.options(num_returns="streaming", max_retries=0, **options)
        return remote.remote(order)

    def _fitting(self, needs: Needs) -> Needs:
        """Return a job's needs, capped at the largest machine so that it does not wait forever."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

        def most(name: str) -> float:
            return max((float(machine.get(name, 0)) for machine in machines), default=0.0)

        cpus = max(1, min(needs.cpus, int(most("CPU"))))
        return Needs(cpus, min(needs.memory, int(most("memory"))), min(needs.gpu, most("GPU")))

    def _again(
        self, entry: _Sent, lost: Exception, waiting: deque[tuple[Job, Call, int]]
    ) -> Iterator[JobEvent]:
        """Put a job whose machine was lost at the front of the queue."""
        seconds = time.perf_counter() - entry.start
        why = f"{type(lost).__name__}: {str(lost).strip().partition(chr(10))[0]}"
        if entry.error is not None:  # it had ended before its machine was lost
            yield JobEnd(entry.job, entry.error, seconds)
        # a bug in the job, not a lost machine
        elif isinstance(lost, self._ray.exceptions.RayTaskError):
            yield JobEnd(entry.job, why, seconds)
        elif entry.attempt >= ATTEMPTS:
            yield JobEnd(entry.job, f"lost {entry.attempt} times; at last {why}", seconds)
        else:
            try:
                waiting.appendleft((entry.job, entry.job.make(), entry.attempt + 1))
            except FalaError as error:
                yield JobEnd(entry.job, str(error), seconds)


def _environment(threads: int) -> dict[str, Any]:
    return {"env_vars": dict.fromkeys(THREADS, str(threads))}


def _on_node(order: _Order) -> Iterator[tuple[str, Any, Mapping[str, Any] | None]]:
    """Run a job on a machine of the cluster, in its own process, and pass on its outputs."""
    import ray

    from fala_sim.records.provenance import provenance

    node = ray.get_runtime_context().get_node_id()[:12]
    try:
        if order.version != __version__:
            raise DataError(
                f"has fala-sdk {__version__}, but the driver has {order.version}; install the same"
            )
        if order.folder is not None and not Path(order.folder).is_dir():
            raise DataError(
                f"{order.folder}: no such folder; trainings work in the run's folder: name a "
                "shared one with --results"
            )
        local_paths = unpack_shelf(order.parcels, ray.get)
    except FalaError as error:
        yield "ended", f"machine {node}: {error}", None
        return
    origin = provenance(node)
    with _no_main():
        # A job's process is forked from a server that still has the variables of an earlier job.
        running = Running(order.job, order.threads, local_paths, os.environ.get(GPUS))
    try:
        for item in running.all():
            yield "output", item, origin
        yield "ended", running.error, None
    finally:
        if running.error is None:
            running.kill()


@contextmanager
def _no_main() -> Iterator[None]:
    """Keep a job's process from importing the main module of Ray's worker."""
    main = sys.modules["__main__"]
    file = main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        if file is not None:
            main.__file__ = file
