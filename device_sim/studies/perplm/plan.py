"""The trainings with writers' prompts, in their order.

A writer's prompt tells the backbone whose label to predict. Prompts of four kinds are compared with
no prompts and with a bias for each writer: with and without masked language modelling first, with
and without an MLP, on a trained or frozen backbone, and with the device's personal head on top. The
paper's recommendation of hashtags is left out for lack of data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fala_sim.data.location import find_location
from fala_sim.engine.job import Engine, Job, Log
from fala_sim.experiments.runner import prepare_all, run_jobs
from fala_sim.experiments.trainings import check_records, training_job
from fala_sim.prepare.sources import SHORT, RunBackbone, find_source
from fala_sim.records.digests import digest_of_parts, file_digest
from fala_sim.records.store import RecordKey, RecordKind, RecordStore
from studies.perplm import jobs
from studies.perplm.jobs import PEERS, Writers
from studies.perplm.prompts import prompt_keys
from studies.perplm.rows import ELSEWHERE, EVALUATION, EXTENTS, TRAINING, is_reviews, write_writers
from studies.perplm.study import STUDY, WritersPlan

#: Why reviews have no hard prompts.
NO_ROOM = (
    "no hard prompts: half of the reviews are longer than the 510 tokens that the model takes, so "
    "a writer's own texts have no room beside one, and an input is never cut to make room"
)

# The version of the rows and of the training, which is part of the folder's digest.
_FORM = 1


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
        prepare = partial(_prepare, plan, store=store, model=model, seed=seed)
        tasks, failed = prepare_all(plan.data, prepare, log)
        failures += failed
        # The comparison comes first, then what is trained for each writer alone, then the variants.
        stages: tuple[list[Job], ...] = ([], [], [])
        for task in tasks:
            hard = not task.about["no_hard"]
            compared, variants = prompt_keys(kinds, task.data, seed, hard=hard)
            peers = PEERS if "prompt" in kinds else ()
            alone = [RecordKey("prompt", task.data, peer, "all", seed) for peer in peers]
            for stage, keys in zip(stages, (compared, alone, variants), strict=True):
                stage += [_job(store, task, key) for key in keys]
        for stage in stages:
            failures += run_jobs(stage, store, engine=engine, log=log)
    return list(dict.fromkeys(failures))


def _job(store: RecordStore, task: Writers, key: RecordKey) -> Job:
    """Return a job with a record for each writer; the training's record is its last."""
    job = jobs.compare_peers if key.method in PEERS else jobs.train_writers
    keys = [replace(key, user=user) for user in task.groups]
    folders = (task.transformer, task.folder)
    return training_job(store, key, partial(job, task, key), folders, keys, jobs.training_key(key))


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
    groups = write_writers(name, plan.data_dir, folder, extent, users=plan.users, seed=seed)
    files = {"training": TRAINING, "asked": EVALUATION}
    about = {
        "task": "classification",
        "old": "",
        "new": model.name,
        "extent": extent.describe(),
        "tokens": extent.tokens[reviews],
        "no_hard": NO_ROOM if reviews else "",
        "elsewhere": ELSEWHERE.get(name, ""),
        "rows": {kind: file_digest(folder / file) for kind, file in files.items()},
        "digests": digests,
    }
    return Writers(name, folder, groups, model.trained_folder(), extent.mlm_epochs, about)
