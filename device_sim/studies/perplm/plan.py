"""The trainings with writers' prompts, and their order.

A writer's prompt tells the backbone whose label to predict. Prompts of four kinds are compared with
no prompts and with a bias for each writer: with and without masked language modelling first, with
and without an MLP, on a trained or frozen backbone, and with the device's personal head on top. The
paper's recommendation of hashtags is left out for lack of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fala_sim.data.location import find_location
from fala_sim.engine.job import Engine, Job, Log
from fala_sim.experiments.runner import Records, prepare_all, run_jobs
from fala_sim.experiments.trainings import check_records, training_job
from fala_sim.prepare.sources import SHORT, RunBackbone, find_source
from fala_sim.records.digests import digest_of_parts, file_digest
from fala_sim.records.store import RecordKey, RecordKind, RecordStore
from studies.perplm import jobs
from studies.perplm.jobs import PEERS, Writers
from studies.perplm.prompts import HARD, KINDS, NONE, SOFT, SOFT_ALL, USER_BIAS, PromptSettings
from studies.perplm.rows import ELSEWHERE, EXTENTS, is_reviews, write_writers
from studies.perplm.study import STUDY, WritersPlan

#: Lengths beside those of the comparison: vectors of soft prompts, tokens of hard prompts.
LENGTHS = dict.fromkeys(SOFT, (1, 32)) | dict.fromkeys(HARD, (16, 256))

#: Why reviews have no hard prompts.
NO_ROOM = (
    "no hard prompts: half of the reviews are longer than the 510 tokens that the model takes, so "
    "a writer's own texts have no room beside one, and an input is never cut to make room"
)

# The version of the rows and of the training, which is part of the folder's digest.
_FORM = 1


@dataclass(frozen=True)
class PromptTrial:
    """One training.

    Attributes:
        kind: Kind of its record.
        settings: The kind of prompts.
        variant: Distinguishes trainings of the same kind of prompts.
    """

    kind: RecordKind
    settings: PromptSettings
    variant: str = ""

    def key(self, data: str, seed: int) -> RecordKey:
        """Return the key of its record."""
        return RecordKey(self.kind, data, self.settings.kind, "all", seed, self.variant)


def prompt_trials(
    kinds: Sequence[RecordKind], *, hard: bool = True, mlm_epochs: int = 2
) -> list[PromptTrial]:
    """Return the trainings of some kinds of record, the most useful first.

    Args:
        kinds: Kinds of record.
        hard: Whether there is room for hard prompts.
        mlm_epochs: Maximum number of passes of the stage of masked words.
    """
    prompts = (*SOFT, *HARD) if hard else SOFT

    def variants(name: str, of: Sequence[str], **options: Any) -> list[PromptTrial]:  # noqa: ANN401
        return [PromptTrial("prompt", PromptSettings(kind, **options), name) for kind in of]

    trials_of = variants("", (NONE, *prompts))
    if "prompt" in kinds:
        trials_of += variants("", (USER_BIAS,))
        others = [
            *variants("fixed", [kind for kind in KINDS if hard or kind not in HARD], fixed=True),
            *variants("mlm", (NONE, *prompts), mlm=True, mlm_epochs=mlm_epochs),
            *variants("no-mlp", SOFT, mlp=False),
            *variants("both-ways", HARD if hard else (), both_ways=True),
        ]
        # The strongest kind comes first, together with no prompts.
        trials_of += sorted(others, key=lambda trial: trial.settings.kind not in (NONE, SOFT_ALL))
    if "prompt-length" in kinds:
        trials_of += [
            PromptTrial("prompt-length", PromptSettings(kind, length), f"length-{length}")
            for kind in prompts
            for length in LENGTHS[kind]
        ]
    return trials_of


def run(plan: WritersPlan, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the missing trainings of some kinds of record on a plan's data sets.

    Args:
        plan: Options of the run.
        kinds: Kinds of record.
        engine: Engine that runs the jobs.
        log: Function that receives lines of progress.

    Returns:
        One line for each data set that cannot be prepared, and for each job that failed.

    Raises:
        DataError: The backbone cannot be trained, or the folder holds the records of another plan.
    """
    store, work = RecordStore(plan.results), plan.work()
    model = find_source(plan.new, work)
    model.trained_folder()  # so that a mistake in a name fails before anything is prepared
    failures: list[str] = []
    for seed in range(plan.seeds):
        tasks, failed = prepare_all(
            plan.data, partial(_prepare, plan, store=store, model=model, seed=seed), log
        )
        failures += failed
        # The comparison comes first, then what is trained for each writer alone, then the variants.
        for waiting in (
            _trainings(plan, store, tasks, kinds, variants=False),
            _peers(store, tasks) if "prompt" in kinds else (),
            _trainings(plan, store, tasks, kinds, variants=True),
        ):
            failures += run_jobs(waiting, store, engine=engine, log=log)
    return list(dict.fromkeys(failures))


def _trainings(
    plan: WritersPlan,
    store: RecordStore,
    tasks: Sequence[Writers],
    kinds: Sequence[RecordKind],
    *,
    variants: bool,
) -> Iterator[Job]:
    epochs = EXTENTS[plan.extent].mlm_epochs
    for task in tasks:
        for trial in prompt_trials(kinds, hard=not task.about["no_hard"], mlm_epochs=epochs):
            if bool(trial.variant) == variants:
                key = trial.key(task.data, task.seed)
                yield _job(store, task, key, partial(jobs.train_writers, task, key, trial.settings))


def _peers(store: RecordStore, tasks: Sequence[Writers]) -> Iterator[Job]:
    for task in tasks:
        base = RecordKey("prompt", task.data, NONE, "all", task.seed)
        for method in PEERS:
            key = replace(base, method=method)
            yield _job(store, task, key, partial(jobs.compare_peers, task, key, base))


def _job(store: RecordStore, task: Writers, key: RecordKey, job: partial[Records]) -> Job:
    """Return a job with a record for each writer; the training's record is its last."""
    keys = [replace(key, user=user) for user in task.written.writers]
    folders = (task.transformer, task.folder)
    return training_job(store, key, job, folders, keys, jobs.training_key(key))


def _prepare(
    plan: WritersPlan, name: str, *, store: RecordStore, model: RunBackbone, seed: int
) -> Writers:
    """Prepare the rows of a data set, in a folder of the run's work."""
    extent = EXTENTS[plan.extent]
    data = find_location(name, plan.data_dir)
    reviews = is_reviews(data)
    digests = {
        "data": data.digest(),
        "new": model.digest,
        "plan": digest_of_parts((extent, plan.users)),
    }
    check_records(store, STUDY.family.kinds, name, digests)
    digest = digest_of_parts((_FORM, seed, *digests.values()))[:SHORT]
    folder = plan.work() / f"prompts-{digest}"
    written = write_writers(name, plan.data_dir, folder, extent, users=plan.users, seed=seed)
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
        name,
        seed,
        folder,
        written,
        model.trained_folder(),
        model.name,
        tokens,
        about,
        digests,
    )
