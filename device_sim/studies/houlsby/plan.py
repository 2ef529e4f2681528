"""The trainings on benchmarks, their learning rates, and their order.

Several tasks share one backbone. Adapters of several sizes and initial scales are compared with
tuning all weights, the top layers and the norms, and adapters are evaluated with a span of layers
left out. Intervals are over seeds of the training, because the rows are divided once.

Houlsby et al. sweep the learning rate for every task (ICML 2019, section 3.1). Here the first seed
is trained at every rate, and the task's other trainings use the rate with the best epoch on
validation rows. The search uses no held-out rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path

from transformers import AutoConfig

from fala import DataError
from fala_sim.data.location import data_folder
from fala_sim.data.output import save
from fala_sim.engine.job import Engine, Job, Log
from fala_sim.experiments.runner import Records, prepare_all, run_jobs
from fala_sim.experiments.trainings import check_records, rows_of, training_job
from fala_sim.prepare.sources import SHORT, RunBackbone, export_int8, find_source
from fala_sim.records.digests import digest_of_parts, file_digest
from fala_sim.records.store import RecordKey, RecordKind, RecordStore
from studies.houlsby import jobs
from studies.houlsby.glue import SOURCES
from studies.houlsby.jobs import SIZE, USUAL, Benchmark, search_key
from studies.houlsby.study import STUDY, BenchmarksPlan

#: Sizes of the comparison, and the curve's other sizes, with the most informative ends first.
COMPARED, SIZES = (SIZE, 8), (2, 256, 16, 4, 32, 128)
#: Numbers of trained top layers in the curve, if the model has more layers.
TOP_LAYERS = (1, 2, 3, 5, 7, 9, 11)
#: Deviations of the initial weights beside the usual 0.01, also with the ends first.
SCALES = (1.0, 1e-7, 1e-1, 1e-4, 1e-3, 1e-5, 1e-6)
#: Learning rates by method: its default, and others around it.
RATES: Mapping[str, tuple[str, ...]] = {
    "adapters": (USUAL, "0.0003", "0.003"),
    "full": (USUAL, "2e-05", "0.0001"),
}

# The version of the rows and of the training, which is part of the folder's digest.
_FORM = 1


def trainings(kind: RecordKind, data: str, seed: int, layers: int = 0) -> list[RecordKey]:
    """Return the keys of the trainings of a kind of record, the most useful first.

    Args:
        kind: Kind of record.
        data: Name of the benchmark.
        seed: Seed of the training.
        layers: Number of layers of the model.
    """

    def keys(method: str, *variants: object) -> list[RecordKey]:
        key = RecordKey(kind, data, method, "all", seed)
        return [key.of(variant) for variant in variants]

    if kind == "adapter":
        first, *others = keys("adapters", *COMPARED)
        return [first, *keys("full", ""), *others]
    if kind == "adapter-size":
        tops = keys("top-k", *(count for count in TOP_LAYERS if count < layers))
        return [*keys("norms", ""), *tops, *keys("adapters", *SIZES)]
    return keys("adapters", *(f"{scale:g}" for scale in SCALES))


def run(plan: BenchmarksPlan, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the missing trainings of a plan's benchmarks; see ``Family.run``.

    Raises:
        DataError: There is no such benchmark, the backbone cannot be trained, or the folder holds
            the records of another plan.
    """
    if set(plan.data) - set(SOURCES):
        raise DataError(f"adapters need a benchmark; use --data {' or --data '.join(SOURCES)}")
    store, work = RecordStore(plan.results), plan.work()
    model = find_source(plan.new, work)
    transformer = model.trained_folder()
    layers = int(AutoConfig.from_pretrained(transformer).num_hidden_layers)
    base = work / f"adapters-{model.digest[:SHORT]}.fala"
    if not base.is_file():
        log(f"exporting {model.name} to int8, with inputs for adapters")
        export_int8(transformer, base, model.name, adapters=True)
    prepare = partial(_prepare, plan, store, model=model, base=base)
    tasks, failures = prepare_all(plan.data, prepare, log)
    for kind in STUDY.family.kinds:
        if kind == "adapter-search":
            each = [searches(store, task) for task in tasks]
        elif kind in kinds:
            each = [_jobs(store, task, kind, plan.seeds, layers) for task in tasks]
        else:
            continue
        # The tasks take turns, so that the most useful trainings of all tasks come first.
        waiting = filter(None, chain.from_iterable(zip_longest(*each)))
        failures += run_jobs(waiting, store, engine=engine, log=log)
    return list(dict.fromkeys(failures))


def searches(store: RecordStore, task: Benchmark) -> Iterator[Job]:
    """Yield a job for every rate of the compared methods, on the first seed."""
    for trained in trainings("adapter", task.data, 0)[: len(RATES)]:
        for rate in RATES[trained.method]:
            job = partial(jobs.validate_rate, task, trained, rate)
            yield _job(store, task, search_key(trained, rate), job)


def _jobs(
    store: RecordStore, task: Benchmark, kind: RecordKind, seeds: int, layers: int
) -> Iterator[Job]:
    """Yield every job of a kind, after the adapters with which it is compared."""
    rate_of = cache(partial(chosen, store, task.data))  # cached, because it reads all records
    for seed in range(seeds):
        first = trainings("adapter", task.data, seed)[0]
        if kind == "adapter-span":
            if (rate := rate_of(first.method)) is not None:
                key = RecordKey(kind, task.data, first.method, "all", seed)
                keys = [key.of(name) for name in jobs.spans(layers)]
                yield _job(store, task, key, partial(jobs.leave_out, task, first, rate), keys)
            continue
        for key in dict.fromkeys([first, *trainings(kind, task.data, seed, layers)]):
            # Without a rate its search failed, which was reported.
            if (rate := rate_of(key.method)) is not None:
                yield _job(store, task, key, partial(jobs.train_benchmark, task, key, rate))


def _job(
    store: RecordStore,
    task: Benchmark,
    key: RecordKey,
    job: partial[Records],
    keys: Sequence[RecordKey] = (),
) -> Job:
    return training_job(store, key, job, (task.transformer, task.folder), keys)


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
    kinds = ("adapter-search", "adapter", "adapter-size", "adapter-init")
    records = [
        record
        for record in store.read(*kinds)
        if (record["data"], record["method"]) == (data, method)
    ]
    tried = {record["variant"]: record for record in records if record["kind"] == kinds[0]}
    names = {rate or "usual": rate for rate in RATES[method]}
    if not names.keys() <= tried.keys():
        return None
    best = max(names, key=lambda name: tried[name]["accuracy"])
    rate = tried[best]["recipe"]["learning_rate"]
    for record in records:
        if record["kind"] != kinds[0] and (other := record["recipe"]["learning_rate"]) != rate:
            raise DataError(
                f"{record['kind']} of {data} was trained at a learning rate of {other:g}, but "
                f"validation rows choose {rate:g}; name another folder with --results"
            )
    return names[best]


def _prepare(
    plan: BenchmarksPlan, store: RecordStore, name: str, *, model: RunBackbone, base: Path
) -> Benchmark:
    """Prepare the rows of a benchmark, in a folder of the run's work."""
    source = SOURCES[name]
    files = source.find(data_folder(plan.data_dir) / name)
    data = digest_of_parts(f"{file.name}\0{file_digest(file)}" for file in sorted(files))
    digests = {"data": data, "new": model.digest}
    check_records(store, STUDY.family.kinds, name, digests)
    folder = plan.work() / f"adapters-{digest_of_parts((_FORM, *digests.values()))[:SHORT]}"
    rows = folder / "rows.jsonl"
    if not rows.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        converted = source.convert(files).rows
        save((json.dumps(row.fields()).encode() + b"\n" for row in converted), rows)
    counts = Counter(row.split for row in rows_of(rows))
    about = {
        "task": "classification", "old": "", "new": model.name, "digests": digests,
        **{split: counts[split] for split in ("public", "train", "test")},
    }  # fmt: skip
    return Benchmark(name, folder, rows, base, model.trained_folder(), about)
