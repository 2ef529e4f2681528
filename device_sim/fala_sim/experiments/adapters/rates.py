"""At what learning rate a task is trained: the one whose best epoch is best on validation rows.

Houlsby et al. sweep it for every task (ICML 2019, section 3.1). Here the first seed's training is
made at every rate, and all that is recorded of the task is trained at the one that is chosen. No
held-out row is looked at for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fala import DataError
from fala_sim.engine.task import Task
from fala_sim.experiments.adapters import jobs
from fala_sim.experiments.adapters.jobs import USUAL, Benchmark
from fala_sim.experiments.trainings import Trial, training_task
from fala_sim.records import Key, Record, Store

#: Rates by method, as the exporter's option has them: its own, and others around it.
RATES: Mapping[str, tuple[str, ...]] = {
    "adapters": (USUAL, "0.0003", "0.003"),
    "full": (USUAL, "2e-05", "0.0001"),
}
_SEED = 0


def searches(store: Store, tasks: Sequence[Benchmark], trials: Sequence[Trial]) -> Iterator[Task]:
    """Every rate of every trial, each a task.

    Args:
        store: The run's records.
        tasks: The benchmarks.
        trials: One of each method of ``RATES``.
    """
    for trial in trials:
        for rate in RATES[trial.method]:
            for task in tasks:
                trained = trial.key(task.data, _SEED)
                key = _key(task.data, trial.method, rate)
                job = partial(jobs.validate, task, key, trained, trial.options, rate)
                yield training_task(store, key, job, (task.transformer, task.folder))


def chosen(store: Store, data: str, method: str) -> str | None:
    """The rate that a method's trainings take, as the exporter's option has it.

    Args:
        store: The run's records.
        data: The benchmark.
        method: One that is not of ``RATES`` has the exporter's own.

    Returns:
        Of equals the earliest; None where a rate was not tried yet, or failed.

    Raises:
        DataError: There are records that were trained at another rate.
    """
    if method not in RATES:
        return USUAL
    recorded = {
        record["variant"]: record
        for record in store.read("adapter-search")
        if (record["data"], record["method"]) == (data, method)
    }
    tried = {rate: recorded.get(_key(data, method, rate).variant) for rate in RATES[method]}
    finished = {rate: record for rate, record in tried.items() if record is not None}
    if len(finished) < len(tried):
        return None
    best = max(finished, key=lambda rate: finished[rate]["accuracy"])
    _check(store, finished[best])
    return best


def _key(data: str, method: str, rate: str) -> Key:
    return Key("adapter-search", data, method, "all", _SEED, rate or "usual")


def _check(store: Store, best: Record) -> None:
    """See that nothing is recorded of a method that was trained at another rate than the best."""
    rate = best["recipe"]["learning_rate"]
    for record in store.read("adapter", "adapter-size", "adapter-init"):
        same = (record["data"], record["method"]) == (best["data"], best["method"])
        if same and (other := record["recipe"]["learning_rate"]) != rate:
            raise DataError(
                f"{record['kind']} of {record['data']} was trained at a learning rate of "
                f"{other:g}, and validation rows choose {rate:g}; name another folder with "
                "--results"
            )
