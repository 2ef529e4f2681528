"""The experiments of Houlsby et al. (ICML 2019): what is trained of a backbone, in what order.

A stream of tasks on one backbone: adapters of several sizes and first scales, against all weights,
the top layers and the norms; and adapters of which a span of layers is left out. The intervals are
over seeds of the training: its rows are divided once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from fala import DataError
from fala_sim.convert.left_out import LeftOut
from fala_sim.convert.output import save
from fala_sim.data.place import find_place, is_benchmark
from fala_sim.digests import digest_of
from fala_sim.engine.task import Engine, Say, Task
from fala_sim.records import Key, Kind
from fala_sim.run import adapter_jobs
from fala_sim.run.adapter_jobs import Prepared
from fala_sim.run.plan import Plan
from fala_sim.run.rates import chosen, searches
from fala_sim.run.runner import run_tasks
from fala_sim.run.sources import SHORT, Source
from fala_sim.run.trainings import (
    Trial,
    check_records,
    folder_of,
    prepare_all,
    task_of,
    trainable,
)
from fala_sim.run.vendor import export_backbone

#: Kinds of record that are made here, in the order in which they are: what settings are chosen by,
#: what is compared, what costs little once that is trained, then the curves.
ADAPTER_KINDS: tuple[Kind, ...] = (
    "adapter-search", "adapter", "adapter-span", "adapter-size", "adapter-init",
)  # fmt: skip

#: The size that spans and first scales are of (the paper, section 3.6), and the deviation of the
#: first weights everywhere else.
SIZE, SCALE = 64, 1e-2
#: Sizes of the comparison, and those of the curve besides: the ends first, which tell most.
COMPARED, SIZES = (SIZE, 8), (2, 256, 16, 4, 32, 128)
#: Top layers that are trained for the curve, where the model has more.
TOP_LAYERS = (1, 2, 3, 5, 7, 9, 11)
#: The other deviations of the first weights: the ends first, too.
SCALES = (1.0, 1e-7, 1e-1, 1e-4, 1e-3, 1e-5, 1e-6)

_FULL = Trial("adapter", "full", "", ("--method", "full"))

# Rows, or the way of training, were others before it was 1.
_FORM = 1
_SPLIT_SEED = 0  # of the draw of validation rows, whichever seed is trained with


def trials(kinds: Sequence[Kind], layers: int) -> list[Trial]:
    """What some kinds of record need trained, in the order of their worth.

    Args:
        kinds: Kinds of record.
        layers: Of the model.
    """
    found = [_adapters("adapter", SIZE)]
    if "adapter" in kinds:
        found.append(_FULL)
        found += [_adapters("adapter", size) for size in COMPARED if size != SIZE]
    if "adapter-size" in kinds:
        found.append(Trial("adapter-size", "norms", "", ("--method", "norms")))
        for count in (count for count in TOP_LAYERS if count < layers):
            options = ("--method", "top-k", "--layers", str(count))
            found.append(Trial("adapter-size", "top-k", str(count), options))
        found += [_adapters("adapter-size", size) for size in SIZES]
    if "adapter-init" in kinds:
        for scale in SCALES:
            options = ("--size", str(SIZE), "--init-scale", repr(scale))
            found.append(Trial("adapter-init", "adapters", f"{scale:g}", options))
    return found


def run_adapters(plan: Plan, kinds: Sequence[Kind], engine: Engine, say: Say) -> list[str]:
    """Run what some kinds of record need of the benchmarks of a plan, and is not recorded yet.

    Args:
        plan: What is asked; of its data sets those that are benchmarks.
        kinds: Kinds of record; those of ``ADAPTER_KINDS`` are looked at.
        engine: Runs the jobs.
        say: Told of progress.

    Returns:
        One line for each task that cannot be prepared, and for each job that failed.

    Raises:
        DataError: There is no benchmark, the backbone cannot be trained, or the folder holds the
            records of another plan.
    """
    names = [name for name in plan.data if is_benchmark(name)]
    if not names:
        raise DataError("adapters are tried on benchmarks; name cola or mrpc with --data")
    source = trainable(plan, "adapters")
    base = plan.work / f"adapters-{source.digest[:SHORT]}.fala"
    if not base.is_file():
        say(f"exporting {source.name} to int8, with inputs for adapters")
        export_backbone(folder_of(source), base, source.name, adapters=True)
    tasks, failures = prepare_all(names, lambda name: _prepare(plan, name, source, base), say)
    # What an earlier kind trained is there for a later one; rates are searched before all.
    for kind in ADAPTER_KINDS:
        if kind in kinds or kind == "adapter-search":
            jobs = _jobs(plan, tasks, kind)
            failures += run_tasks(jobs, plan.results, engine=engine, say=say)
    return list(dict.fromkeys(failures))


def _jobs(plan: Plan, tasks: Sequence[Prepared], kind: Kind) -> Iterator[Task]:
    if kind == "adapter-search":
        return searches(plan.results, tasks, [_adapters("adapter", SIZE), _FULL])
    return _spans(plan, tasks) if kind == "adapter-span" else _trainings(plan, tasks, kind)


def _adapters(kind: Kind, size: int) -> Trial:
    return Trial(kind, "adapters", str(size), ("--size", str(size)))


def _trainings(plan: Plan, tasks: Sequence[Prepared], kind: Kind) -> Iterator[Task]:
    """Every training of a kind, and before it those that it is compared with: seed by seed."""
    rate_of = cache(partial(chosen, plan.results))  # it reads all records
    for seed in range(plan.seeds):
        for trial in trials([kind], _layers(tasks)):
            for task in tasks:
                rate = rate_of(task.data, trial.method)
                if rate is None:  # its search failed, which was told
                    continue
                key = Key(trial.kind, task.data, trial.method, "all", seed, trial.variant)
                job = partial(adapter_jobs.train, task, key, trial.options, rate)
                yield task_of(plan.results, task, key, job)


def _spans(plan: Plan, tasks: Sequence[Prepared]) -> Iterator[Task]:
    """Every seed's adapters, without those of every span of layers."""
    adapters = _adapters("adapter", SIZE)
    spans = adapter_jobs.spans(_layers(tasks))
    rate_of = cache(partial(chosen, plan.results))
    for seed in range(plan.seeds):
        for task in tasks:
            rate = rate_of(task.data, "adapters")
            if rate is None:
                continue
            trained = Key("adapter", task.data, "adapters", "all", seed, adapters.variant)
            keys = [Key("adapter-span", task.data, "adapters", "all", seed, name) for name in spans]
            job = partial(adapter_jobs.leave_out, task, trained, adapters.options, rate)
            named = Key("adapter-span", task.data, "adapters", "all", seed)
            yield task_of(plan.results, task, named, job, keys)


def _layers(tasks: Sequence[Prepared]) -> int:
    """How many layers the model has; the configuration's key is one of two."""
    if not tasks:
        return 0
    path = tasks[0].transformer / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return int(config.get("num_hidden_layers", config.get("n_layers")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: does not say how many layers the model has") from error


def _prepare(plan: Plan, name: str, source: Source, base: Path) -> Prepared:
    """The rows of a benchmark, in a folder of the run's work."""
    place = find_place(name, plan.data_dir)
    digests = {"data": place.digest(), "new": source.digest}
    check_records(plan.results, ADAPTER_KINDS, name, source.name, digests)
    folder = plan.work / f"adapters-{digest_of((_FORM, *digests.values()))[:SHORT]}"
    rows = folder / "rows.jsonl"
    if not rows.is_file():
        conversion = place.format.open(place.path, LeftOut()).convert(users=1, seed=_SPLIT_SEED)
        folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(row.fields()).encode() + b"\n" for row in conversion.rows)
        save(lines, rows)
    return Prepared(name, folder, rows, base, folder_of(source), source.name, digests)
