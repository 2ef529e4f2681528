"""Install a release, roll back, load and delete adapters. Every change of release is here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fala.backbones import LazyBackbone
from fala.bundle.reading import Bundle
from fala.errors import DataError, DeviceChangedError, DeviceError, model_changed
from fala.files import device_errors
from fala.model.heads import Head
from fala.slots.bundles import (
    BUNDLES,
    Change,
    bundle_path,
    install,
    slot_record,
    vendor_record,
)
from fala.slots.erasing import drop_copies
from fala.slots.folder import Folder
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task, go_back, prune, sources_of
from fala.slots.versions import note_version
from fala.store.records import SlotRecord
from fala.store.slots import slots_of
from fala.store.store import Store

Logits = Mapping[int, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Move:
    """A task's part in an installation.

    Attributes:
        task: The task.
        before: The slot that was active during the preparation.
        bundle: The bundle to install for it.
        change: Its personal model.
        old_logits: The old personal and vendor model's logits to store, by example.
        data: The task's count of data changes at the preparation.
        like: See ``slot_record``.
    """

    task: Task
    before: OpenSlot
    bundle: Bundle
    change: Change
    old_logits: tuple[Logits, Logits] | None
    data: int
    like: SlotRecord | None = None


def install_release(folder: Folder, moves: Sequence[Move], backbone: LazyBackbone) -> OpenSlot:
    """Install a release, and an adapter for every further task, in one transaction.

    The idle slot of every task is overwritten and becomes active, on trial. Files are copied
    inside the transaction, so that no other process deletes them before their rows exist. The slot
    that was active becomes the previous one. Its own trial, if any, ends: it has passed the probes
    in this process (see ``Task.ready``).

    A release that is active already, as after an app was killed and repeats the call, stays in its
    slot: the previous slot and the trial stay, too.

    Args:
        folder: The device's folder.
        moves: The moves of all tasks, the device's own first.
        backbone: The release's, loaded.

    Raises:
        DeviceError: The folder cannot be written.
        DeviceChangedError: Another model is active by now, or the tasks have changed.
    """
    store, own = folder.store, moves[0]
    names = sorted(move.task.adapter for move in moves[1:])
    try:
        with device_errors(folder.path), own.task.expecting(own.before):
            with store.transaction():
                if store.slots.adapters() != names:
                    raise DeviceChangedError(f"{folder.path}: its adapters changed meanwhile")
                running = folder.trials.running()
                in_place = _is_active(store, moves, on_trial=running is not None)
                written = [_write(move, in_place=in_place) for move in moves]
                generation, record, bundle = written[0]
                if in_place:
                    trial = None if running is None else running.began
                    prune(folder, bundle)
                else:
                    trial = generation
                    folder.trials.begin(record.name, generation)
                    note_version(store, own.bundle.manifest, own.before.bundle.manifest)
                    bundles = [used for move in moves for used in (move.bundle, move.before.bundle)]
                    store.prune({source for used in bundles for source in sources_of(used)})
            active = OpenSlot.of(generation, record, bundle, own.change.model, backbone, trial)
            folder.active[""] = active
    finally:
        _sweep(folder)
    return active


def roll_back(folder: Folder) -> list[Task]:
    """Make the slots before the last replacement active again, for every task.

    Returns:
        The tasks whose examples or labels changed since that replacement.

    Raises:
        DeviceError: If no previous model is kept, or an adapter was loaded since.
        BundleError: The previous release is damaged; the device stays as it is.
    """
    with folder.work, folder.store.transaction():
        base, changed = go_back(folder)
        trial = folder.trials.resume(base.record.name, base.generation)
    folder.active[""] = replace(base, trial=trial)
    return [Task(folder, adapter) for adapter in changed]


def load_adapter(
    folder: Folder, bundle: Bundle, head: Head, name: str, positive: str | None = None
) -> Task:
    """Install an adapter beside the active release, for a task of its own.

    Stored examples of a damaged adapter of this name are used again. A release on trial is
    confirmed: after a fall back the task could not predict.

    Args:
        folder: The device's folder.
        bundle: The adapter's.
        head: Its head.
        name: The task's name.
        positive: See ``Task.positive``; None keeps an earlier choice for a task of this name.

    Raises:
        DataError: There is one of this name already.
        DeviceError: The folder cannot be written.
        DeviceChangedError: Another release was installed meanwhile.
    """
    task = Task(folder, name)
    try:
        with device_errors(folder.path), folder.store.transaction():
            if bundle.base != Task(folder).active.bundle.backbone_digest:
                raise model_changed(folder.path)
            if name in folder.store.slots.adapters():
                raise DataError(
                    f"{folder.path}: there is an adapter {name} already; delete it, or pass the "
                    "new one to Device.replace"
                )
            slot = slots_of(name)[0]
            installed = install(bundle, folder.path)
            label = task.positive(head) if positive is None else positive
            task.store.slots.put(vendor_record(slot, installed, head, label))
            task.store.slots.activate(slot, None)
            if label is not None:
                task.store.slots.set_positive(label)
            folder.trials.confirm()
    finally:
        _sweep(folder)
    return task


def delete_adapter(folder: Folder, name: str) -> None:
    """Delete a task: its adapter, its examples, and everything computed from them.

    Raises:
        UnknownAdapterError: There is none of this name, and no example of one.
    """
    store = folder.store_of(name)
    with folder.work, store.transaction():
        if name not in store.slots.adapters() and not store.examples.counts()[0]:
            store.slots.version()  # raises
        store.delete_task()
        prune(folder)
        drop_copies(folder.path)
        folder.active.pop(name, None)
    _sweep(folder)


def _sweep(folder: Folder) -> None:
    """Delete the files of bundles that no slot uses, and the rest of a failed installation."""
    with contextlib.suppress(DeviceError), folder.store.transaction():
        used = {bundle_path(folder.path, digest) for digest in folder.store.slots.bundles()}
        # A file that cannot be deleted now (full or read-only disk, file in use) is the next time.
        with contextlib.suppress(OSError):
            for file in (folder.path / BUNDLES).iterdir():
                if file not in used:
                    file.unlink(missing_ok=True)


def _is_active(store: Store, moves: Sequence[Move], *, on_trial: bool) -> bool:
    """Whether all bundles are active already, with a previous slot to go back to.

    A change of the prompt makes it another release, except on trial, where the prompt belongs to
    the trial.
    """
    return store.slots.active()[1] is not None and all(
        move.bundle == move.before.bundle
        and (on_trial or (move.like is None and move.before.reads_plain))
        for move in moves
    )


def _write(move: Move, *, in_place: bool) -> tuple[int, SlotRecord, Bundle]:
    """Install a task's bundle in its idle slot, and make that active. In a transaction.

    Args:
        move: The task's part.
        in_place: Whether the bundle is active already, and stays in its slot.

    Returns:
        The task's new generation, the slot's row, and the installed bundle.
    """
    store, before, change = move.task.store, move.before, move.change
    slot = before.record.name
    if not in_place:
        slot = next(name for name in slots_of(store.adapter) if name != slot)
    teachers = None if move.old_logits is None else before.teachers
    generation = store.slots.advance(before.generation)
    bundle = install(move.bundle, move.task.folder.path)
    record = slot_record(slot, bundle, change, teachers, move.like)
    store.embeddings.add(record.backbone, change.embeddings)
    for name, values in zip(teachers or (), move.old_logits or (), strict=True):
        store.logits.add(name, values)
    store.slots.put(record)
    store.slots.set_fit(slot, change.fit)
    if not in_place:
        store.slots.activate(slot, before.record.name)
        store.slots.note_data()
        store.slots.note_replacement(slot, generation, move.data, before.record.name)
    return generation, record, bundle
