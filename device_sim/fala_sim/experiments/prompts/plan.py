"""The trainings with writers' prompts, and their order.

A writer's prompt tells the backbone whose label to predict. Prompts of four kinds are compared with
none and with a bias for each writer: with and without masked language modelling first, with and
without an MLP, on a trained or frozen backbone, and with the device's personal head on top. The
paper's recommendation of hashtags is left out for lack of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from fala import DataError
from fala_sim.data.location import find_location, is_benchmark
from fala_sim.digests import digest_of, file_digest
from fala_sim.engine.task import Engine, Log, Task
from fala_sim.experiments.families import PROMPTS
from fala_sim.experiments.plan import Plan
from fala_sim.experiments.prompts import jobs
from fala_sim.experiments.prompts.jobs import PEERS, Writers
from fala_sim.experiments.prompts.rows import ELSEWHERE, EXTENTS, is_reviews, write_rows
from fala_sim.experiments.runner import Records, prepare_all, run_tasks
from fala_sim.experiments.trainings import (
    Trial,
    check_records,
    training_task,
)
from fala_sim.preparation.sources import SHORT, Source, find_source
from fala_sim.records import Key, Kind, Store

PLAIN = ("none", "user-bias")
SOFT, HARD = ("soft-one", "soft-all"), ("hard-static", "hard-dynamic")
#: Lengths of the comparison, and the other lengths: vectors of soft prompts, tokens of hard ones.
USUAL = dict.fromkeys(SOFT, 8) | dict.fromkeys(HARD, 64)
LENGTHS = dict.fromkeys(SOFT, (1, 32)) | dict.fromkeys(HARD, (16, 256))

#: Why reviews have no hard prompts.
NO_ROOM = (
    "no hard prompts: half of the reviews are longer than the 510 tokens that the model takes, so "
    "a writer's own texts have no room beside one, and an input is never cut to make room"
)

# The version of the rows and of the training; part of the folder's digest.
_FORM = 1


def trials(kinds: Sequence[Kind], *, hard: bool = True) -> list[Trial]:
    """The trainings of some kinds of record, the most useful first.

    Args:
        kinds: Kinds of record.
        hard: Whether there is room for hard prompts.
    """
    prompts = (*SOFT, *HARD) if hard else SOFT
    trials_of = [_trial("prompt", "none"), *(_trial("prompt", kind) for kind in prompts)]
    if "prompt" in kinds:
        trials_of.append(_trial("prompt", "user-bias"))
        every = (*PLAIN, *prompts)
        variants = [_trial("prompt", kind, "fixed", "--fixed-backbone") for kind in every]
        variants += [_trial("prompt", kind, "mlm", "--mlm") for kind in ("none", *prompts)]
        variants += [_trial("prompt", kind, "no-mlp", "--no-mlp") for kind in SOFT]
        # First the kind that releases contain, and none.
        trials_of += sorted(variants, key=lambda trial: trial.method not in ("none", "soft-all"))
    if "prompt-length" in kinds:
        for kind in prompts:
            for length in LENGTHS[kind]:
                trials_of.append(
                    _trial("prompt-length", kind, f"length-{length}", "--length", str(length))
                )
    return trials_of


def run(plan: Plan, kinds: Sequence[Kind], engine: Engine, log: Log) -> list[str]:
    """Run the missing trainings of some kinds of record on a plan's data sets.

    Args:
        plan: The run's options.
        kinds: Kinds of record.
        engine: Runs the jobs.
        log: Receives progress.

    Returns:
        One line for each data set that cannot be prepared, and for each job that failed.

    Raises:
        DataError: There is no data set of people, the backbone cannot be trained, or the folder
            holds the records of another plan.
    """
    names = [name for name in plan.data if not is_benchmark(name)]
    if not names:
        raise DataError("writers' prompts need data of people; use --data md-agreement")
    store, work = Store(plan.results), plan.work()
    model = find_source(plan.new, work)
    model.trained_folder()  # a mistake in a name ends here, before anything is prepared
    failures: list[str] = []
    for seed in range(plan.seeds):
        tasks, failed = prepare_all(
            names, partial(_prepare, plan, store=store, model=model, seed=seed), log
        )
        failures += failed
        # First the comparison, then what is trained for each writer alone, then the variants.
        for waiting in (
            _trainings(plan, store, tasks, kinds, variants=False),
            _peers(store, tasks) if "prompt" in kinds else (),
            _trainings(plan, store, tasks, kinds, variants=True),
        ):
            failures += run_tasks(waiting, store, engine=engine, log=log)
    return list(dict.fromkeys(failures))


def _trial(kind: Kind, method: str, variant: str = "", *options: str) -> Trial:
    return Trial(kind, method, variant, options)


def _trainings(
    plan: Plan, store: Store, tasks: Sequence[Writers], kinds: Sequence[Kind], *, variants: bool
) -> Iterator[Task]:
    for task in tasks:
        for trial in trials(kinds, hard=not task.about["no_hard"]):
            if bool(trial.variant) != variants:
                continue
            options = trial.options
            if "--mlm" in options:
                options += ("--mlm-epochs", str(EXTENTS[plan.extent].mlm_epochs))
            key = trial.key(task.data, task.seed)
            yield _task(store, task, key, partial(jobs.train, task, key, options))


def _peers(store: Store, tasks: Sequence[Writers]) -> Iterator[Task]:
    for task in tasks:
        base = Key("prompt", task.data, "none", "all", task.seed)
        for method in PEERS:
            key = replace(base, method=method)
            yield _task(store, task, key, partial(jobs.compare, task, key, base))


def _task(store: Store, task: Writers, key: Key, job: partial[Records]) -> Task:
    """A job with a record for each writer; the training's record is its last."""
    keys = [replace(key, user=user) for user in task.written.writers]
    folders = (task.transformer, task.folder)
    return training_task(store, key, job, folders, keys, jobs.training_key(key))


def _prepare(plan: Plan, name: str, *, store: Store, model: Source, seed: int) -> Writers:
    """The rows of a data set, in a folder of the run's work."""
    extent = EXTENTS[plan.extent]
    data = find_location(name, plan.data_dir)
    reviews = is_reviews(data)
    digests = {"data": data.digest(), "new": model.digest, "plan": digest_of((extent, plan.users))}
    check_records(store, PROMPTS.kinds, name, digests)
    digest = digest_of((_FORM, seed, *digests.values()))[:SHORT]
    folder = plan.work() / f"prompts-{digest}"
    written = write_rows(name, plan.data_dir, folder, extent, users=plan.users, seed=seed)
    tokens = extent.tokens[reviews]
    files = {"training": written.training, "asked": written.evaluation}
    about = {
        "extent": extent.describe(),
        "tokens": tokens,
        "no_hard": NO_ROOM if reviews else "",
        "elsewhere": ELSEWHERE.get(name, ""),
        "rows": {kind: file_digest(path) for kind, path in files.items()},
    }
    return Writers(
        name, seed, folder, written, model.trained_folder(), model.name,
        ("--max-length", str(tokens)), about, digests,
    )  # fmt: skip
