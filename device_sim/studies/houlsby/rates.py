"""The search for a task's learning rate: the rate with the best epoch on validation rows.

Houlsby et al. sweep it for every task (ICML 2019, section 3.1). Here the first seed is trained at
every rate, and the task's other trainings use the best rate. The search uses no held-out rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fala import DataError
from fala_sim.engine.job import Job
from fala_sim.experiments.trainings import training_job
from fala_sim.records.store import RecordContent, RecordKey, RecordKind, RecordStore
from studies.houlsby import jobs
from studies.houlsby.jobs import USUAL, Benchmark
from studies.houlsby.training import TrainedMethod

#: Learning rates by method: its default, and others around it.
RATES: Mapping[str, tuple[str, ...]] = {
    "adapters": (USUAL, "0.0003", "0.003"),
    "full": (USUAL, "2e-05", "0.0001"),
}
_SEED = 0


@dataclass(frozen=True)
class RateTrial:
    """One training.

    Attributes:
        kind: Kind of its record.
        trained: Adapters, or a baseline that trains parts of the backbone.
        variant: Distinguishes trainings of the same method.
    """

    kind: RecordKind
    trained: TrainedMethod
    variant: str = ""

    @property
    def method(self) -> str:
        """The method's name, in records."""
        return str(self.trained.recipe()["name"])

    def key(self, data: str, seed: int) -> RecordKey:
        """Return the key of its record."""
        return RecordKey(self.kind, data, self.method, "all", seed, self.variant)


def searches(
    store: RecordStore, tasks: Sequence[Benchmark], trials: Sequence[RateTrial]
) -> Iterator[Job]:
    """Yield a task for every rate of every trial.

    Args:
        store: Records of the run.
        tasks: The benchmarks.
        trials: One trial for each method of ``RATES``.
    """
    for trial in trials:
        for rate in RATES[trial.method]:
            for task in tasks:
                trained = trial.key(task.data, _SEED)
                key = _key(task.data, trial.method, rate)
                job = partial(jobs.validate_rate, task, key, trained, trial.trained, rate)
                yield training_job(store, key, job, (task.transformer, task.folder))


def chosen(store: RecordStore, data: str, method: str) -> str | None:
    """Return the rate for a method's trainings, as text.

    Args:
        store: Records of the run.
        data: Name of the benchmark.
        method: Name of the method; if it is not in ``RATES``, its default rate is used.

    Returns:
        The earliest of the best rates, or None if a rate is missing or failed.

    Raises:
        DataError: There are records at another rate.
    """
    if method not in RATES:
        return USUAL
    recorded = {
        record["variant"]: record
        for record in store.read("adapter-search")
        if (record["data"], record["method"]) == (data, method)
    }
    records = {rate: recorded.get(_key(data, method, rate).variant) for rate in RATES[method]}
    finished = {rate: record for rate, record in records.items() if record is not None}
    if len(finished) < len(records):
        return None
    best = max(finished, key=lambda rate: finished[rate]["accuracy"])
    _check(store, finished[best])
    return best


def _key(data: str, method: str, rate: str) -> RecordKey:
    return RecordKey("adapter-search", data, method, "all", _SEED, rate or "usual")


def _check(store: RecordStore, best: RecordContent) -> None:
    """Check that all records of a method were trained at the best rate."""
    rate = best["recipe"]["learning_rate"]
    for record in store.read("adapter", "adapter-size", "adapter-init"):
        same = (record["data"], record["method"]) == (best["data"], best["method"])
        if same and (recorded := record["recipe"]["learning_rate"]) != rate:
            raise DataError(
                f"{record['kind']} of {record['data']} was trained at a learning rate of "
                f"{recorded:g}, but validation rows choose {rate:g}; name another folder with "
                "--results"
            )
