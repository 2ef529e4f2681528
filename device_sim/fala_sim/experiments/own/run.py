"""Prepares an app's encoders on each data set, and runs the jobs on its users."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fala import DataError
from fala.backbones.external import ExternalEncoder
from fala.base.examples import document_of
from fala.base.files import write_atomically
from fala_export.fit.heads import fit_head
from fala_sim.data.division import Partition
from fala_sim.data.users import CLASSES, User, UserExample, UserLabel
from fala_sim.engine.job import Call, Engine, Job, Log
from fala_sim.experiments.own.encoders import digest, encoder
from fala_sim.experiments.own.family import OwnPlan
from fala_sim.experiments.own.jobs import PreparedApp, own
from fala_sim.experiments.own.ways import App
from fala_sim.experiments.runner import prepare_all, run_jobs
from fala_sim.prepare.sources import SHORT
from fala_sim.records.digests import digest_of_parts
from fala_sim.records.store import RecordKey, RecordKind, RecordStore

#: Number of public rows to which a head is fitted.
PUBLIC = 10_000
# The version of the prepared file, which is part of its digest.
_FORM = 4


def run(plan: OwnPlan, kinds: Sequence[RecordKind], engine: Engine, log: Log) -> list[str]:
    """Run the missing jobs; see ``Family.run``."""
    store = RecordStore(plan.results)
    failures: list[str] = []
    for old in plan.old:
        for seed in range(plan.seeds):

            def job(data: str, old: str = old, seed: int = seed) -> Job:
                path = _prepared(plan, data, old, seed, log)
                key = RecordKey(kinds[0], data, "", "all", seed, f"{old}-{plan.new}")
                return _job(store, key, path, f"{kinds[0]} {data} {old} to {plan.new}, seed {seed}")

            jobs, failed = prepare_all(plan.data, job, log)
            failures += [*failed, *run_jobs(jobs, store, engine=engine, log=log)]
    return list(dict.fromkeys(failures))


def _job(store: RecordStore, key: RecordKey, path: Path, label: str) -> Job:
    """Return one job per data set, because a user takes less time than a process needs to start."""
    keys = {each for *_, ways in PreparedApp.read(path).keys(key) for each in ways.values()}

    def make() -> Call:
        return Call(partial(own, key, path, frozenset(store.keys & keys)), lambda: [path])

    return Job(label, make, partial(store.keys.issuperset, keys))


def _prepared(plan: OwnPlan, data: str, old: str, seed: int, log: Log) -> Path:
    """Return the file of a ``PreparedApp``, which is written if the work folder has none.

    Raises:
        DataError: The data cannot be read or divided, or has ratings or tags.
    """
    work, partition = plan.work(), Partition(data, plan.data_dir, plan.users, seed)
    digests = {
        "data": partition.digest(), "old": digest(old, work), "new": digest(plan.new, work)
    }  # fmt: skip
    identity = digest_of_parts((_FORM, data, plan.users, seed, old, plan.new, *digests.values()))
    path = work / f"own-{identity[:SHORT]}.pickle"
    if path.is_file():
        return path
    log(f"{data}, seed {seed}: dividing")
    division = partition.divide("test")
    if division.task not in CLASSES:
        raise DataError(f"{data} has {division.task} labels, but this experiment needs classes")
    users = [_of_distinct(user) for user in division.users]
    public = [document_of(example) for example in division.public]
    distinct = list(dict.fromkeys(public))
    theirs = [str(text) for user in users for text in (*user.train, *user.test)]
    texts = list(dict.fromkeys([*theirs, *distinct]))
    first, second = (encoder(name, texts, distinct, work, log) for name in (old, plan.new))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(public))[:PUBLIC])
    log(f"{data}: fitting a head to other people's labels")
    rows = [public[row] for row in drawn]
    head = fit_head(
        ExternalEncoder(second.name, second.dimension, second),
        rows,
        [division.public_labels[row] for row in drawn],
        label_names=division.labels,
        embeddings=dict(zip(rows, second(rows), strict=True)),
    )
    about = {"task": "classification", "old": old, "new": plan.new, "digests": digests}
    prepared = PreparedApp(App(division.labels, first, second, head), users, about)
    write_atomically(path, lambda part: part.write_bytes(pickle.dumps(prepared)))
    return path


def _of_distinct(user: User) -> User:
    """Return a user's distinct documents; for a match, the document is the candidate."""
    test = _distinct(user.test, user.test_labels)
    train = _distinct(user.train, user.train_labels)
    known = {text: label for text, label in train.items() if text not in test}
    return User(user.name, [*known], [*known.values()], [*test], [*test.values()])


def _distinct(examples: Sequence[UserExample], labels: Sequence[UserLabel]) -> dict[str, UserLabel]:
    distinct: dict[str, UserLabel] = {}
    for example, label in zip(examples, labels, strict=True):
        distinct.setdefault(document_of(example), label)
    return distinct
