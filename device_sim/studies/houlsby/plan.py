"""The trainings on benchmarks, and their order.

Several tasks share one backbone. Adapters of several sizes and initial scales are compared with
tuning all weights, the top layers and the norms, and adapters are evaluated with a span of layers
left out. Intervals are over seeds of the training, because the rows are divided once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from fala import DataError
from fala_export.recipe.adapters import AdapterMethod
from fala_sim.data.left_out import LeftOut
from fala_sim.data.output import save
from fala_sim.engine.job import Engine, Job, Log
from fala_sim.experiments.runner import prepare_all, run_jobs
from fala_sim.experiments.trainings import check_records, training_job
from fala_sim.prepare.sources import SHORT, RunBackbone, export_int8, find_source
from fala_sim.records.digests import digest_of_parts
from fala_sim.records.store import RecordKey, RecordKind, RecordStore
from studies.houlsby import jobs
from studies.houlsby.glue import SOURCES, convert_benchmark, find
from studies.houlsby.jobs import Benchmark
from studies.houlsby.rates import RateTrial, chosen, searches
from studies.houlsby.study import STUDY, BenchmarksPlan
from studies.houlsby.training import Baseline

#: The adapters' size for spans and initial scales (the paper, section 3.6).
SIZE = 64
#: Sizes of the comparison, and the curve's other sizes, with the most informative ends first.
COMPARED, SIZES = (SIZE, 8), (2, 256, 16, 4, 32, 128)
#: Numbers of trained top layers in the curve, if the model has more layers.
TOP_LAYERS = (1, 2, 3, 5, 7, 9, 11)
#: Deviations of the initial weights beside the usual 0.01, also with the ends first.
SCALES = (1.0, 1e-7, 1e-1, 1e-4, 1e-3, 1e-5, 1e-6)

# The version of the rows and of the training, which is part of the folder's digest.
_FORM = 1
_SPLIT_SEED = 0  # seed of the draw of validation rows, for all seeds of the training


def houlsby_trials(kind: RecordKind, layers: int) -> list[RateTrial]:
    """Return the trainings of a kind of record, the most useful first.

    Args:
        kind: Kind of record.
        layers: Number of layers of the model.
    """
    if kind == "adapter":
        sizes = [_adapters(kind, size) for size in COMPARED]
        return [sizes[0], RateTrial(kind, Baseline("full")), *sizes[1:]]
    if kind == "adapter-size":
        tops = [
            RateTrial(kind, Baseline("top-k", count), str(count))
            for count in TOP_LAYERS
            if count < layers
        ]
        return [
            RateTrial(kind, Baseline("norms")),
            *tops,
            *(_adapters(kind, size) for size in SIZES),
        ]
    return [RateTrial(kind, AdapterMethod(SIZE, scale), f"{scale:g}") for scale in SCALES]


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
    base = work / f"adapters-{model.digest[:SHORT]}.fala"
    if not base.is_file():
        log(f"exporting {model.name} to int8, with inputs for adapters")
        export_int8(transformer, base, model.name, adapters=True)
    prepare = partial(_prepare, plan, store, model=model, base=base)
    tasks, failures = prepare_all(plan.data, prepare, log)
    compared = {trial.method: trial for trial in houlsby_trials("adapter", 0)[:2]}
    for kind in STUDY.family.kinds:
        if kind == "adapter-search":
            waiting = searches(store, tasks, list(compared.values()))
        elif kind not in kinds:
            continue
        elif kind == "adapter-span":
            waiting = _spans(plan, store, tasks)
        else:
            waiting = _trainings(plan, store, tasks, kind)
        failures += run_jobs(waiting, store, engine=engine, log=log)
    return list(dict.fromkeys(failures))


def _adapters(kind: RecordKind, size: int) -> RateTrial:
    return RateTrial(kind, AdapterMethod(size), str(size))


def _trainings(
    plan: BenchmarksPlan, store: RecordStore, tasks: Sequence[Benchmark], kind: RecordKind
) -> Iterator[Job]:
    """Yield every training of a kind, after the adapters with which it is compared."""
    rate_of = cache(partial(chosen, store))  # cached, because it reads all records
    needed = [*houlsby_trials("adapter", 0)[:1], *houlsby_trials(kind, _layers(tasks))]
    for seed in range(plan.seeds):
        for trial in dict.fromkeys(needed):
            for task in tasks:
                rate = rate_of(task.data, trial.method)
                if rate is None:  # its search failed, which was reported
                    continue
                key = trial.key(task.data, seed)
                job = partial(jobs.train_benchmark, task, key, trial.trained, rate)
                yield training_job(store, key, job, (task.transformer, task.folder))


def _spans(plan: BenchmarksPlan, store: RecordStore, tasks: Sequence[Benchmark]) -> Iterator[Job]:
    """Yield tasks that leave every span of layers out, for every seed's adapters."""
    adapters = _adapters("adapter", SIZE)
    for seed in range(plan.seeds):
        for task in tasks:
            rate = chosen(store, task.data, adapters.method)
            if rate is None:
                continue
            trained = adapters.key(task.data, seed)
            key = RecordKey("adapter-span", task.data, "adapters", "all", seed)
            keys = [key.of(name) for name in jobs.spans(_layers(tasks))]
            job = partial(jobs.leave_out, task, trained, adapters.trained, rate)
            yield training_job(store, key, job, (task.transformer, task.folder), keys)


def _layers(tasks: Sequence[Benchmark]) -> int:
    """Return the model's number of layers, by one of two keys of its configuration."""
    if not tasks:
        return 0
    path = tasks[0].transformer / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return int(config.get("num_hidden_layers", config.get("n_layers")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: has no number of layers") from error


def _prepare(
    plan: BenchmarksPlan, store: RecordStore, name: str, *, model: RunBackbone, base: Path
) -> Benchmark:
    """Prepare the rows of a benchmark, in a folder of the run's work."""
    source, files = find(name, plan.data_dir)
    digests = {"data": source.digest(files), "new": model.digest}
    check_records(store, STUDY.family.kinds, name, digests)
    digest = digest_of_parts((_FORM, *digests.values()))[:SHORT]
    folder = plan.work() / f"adapters-{digest}"
    rows = folder / "rows.jsonl"
    if not rows.is_file():
        left_out = LeftOut()
        conversion = convert_benchmark(
            source.read(files, left_out), seed=_SPLIT_SEED, left_out=left_out
        )
        folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(row.fields()).encode() + b"\n" for row in conversion.rows)
        save(lines, rows)
    return Benchmark(name, folder, rows, base, model.trained_folder(), model.name, digests)
