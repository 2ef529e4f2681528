"""Trainings of a backbone on public rows, shared by the experiments that train a backbone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fala import Bundle, DataError
from fala.model.heads import Head
from fala_export.rows.user_rows import Row, read_rows
from fala_sim.engine.job import Call, Job, Needs
from fala_sim.experiments.runner import OtherPlanError, Records
from fala_sim.records.store import RecordKey, RecordKind, RecordStore

#: Resources of a training; more threads gain little.
_TRAINING = Needs(cpus=2, memory=6 * 2**30, gpu=0.5)


def check_records(
    store: RecordStore, kinds: Sequence[RecordKind], data: str, digests: Mapping[str, str]
) -> None:
    """Check that all records of a data set have this plan's digests.

    Raises:
        OtherPlanError: A record has other digests.
    """
    for record in store.read(*kinds):
        if record["data"] == data and record["digests"] != digests:
            raise OtherPlanError(
                f"there are records of {data} with other data, with other rows, or with another "
                "backbone of this name; name another folder with --results"
            )


def training_job(
    store: RecordStore,
    key: RecordKey,
    job: partial[Records],
    folders: tuple[Path, Path],
    keys: Sequence[RecordKey] = (),
    last: RecordKey | None = None,
) -> Job:
    """Return the job of a training, or a job on a trained model.

    Args:
        store: Records of the run.
        key: Name of the job; it is the key of its record if there are no ``keys``.
        job: The job; with ``keys``, its argument ``done`` gets the recorded keys.
        folders: The model's folder, and the job's work folder.
        keys: Keys of its records, if there are several.
        last: Key of its last record, which marks it as done; without it, all ``keys`` do.
    """
    model, folder = folders
    needed = [last] if last is not None else list(keys) or [key]

    def make() -> Call:
        folder.mkdir(parents=True, exist_ok=True)
        call = partial(job, done=store.keys.intersection(keys)) if keys else job
        return Call(call, lambda: [model], folder)

    return Job(str(key), make, partial(store.keys.issuperset, needed), _TRAINING)


def folder_name(key: RecordKey) -> str:
    """Return the name of a key's training folder, in the folder of its data set."""
    return "-".join(filter(None, (key.kind, key.method, key.variant, str(key.seed))))


def training_head(bundle: Bundle) -> Head:
    """Return the head of a trained bundle.

    Raises:
        DataError: The bundle has no head.
    """
    head = bundle.head()
    if head is None:
        raise DataError(f"{bundle.path}: has no head; remove it to train it again")
    return head


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a prepared file."""
    with path.open("rb") as lines:
        return read_rows(lines)
