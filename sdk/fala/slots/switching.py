"""Change which release is active: fall back, install, roll back, load and delete adapters.

Every change of release is in this module, one transaction each. A release on trial that fails gives
way to the previous one, by the rules of ``fala.slots.trial``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fala.base.errors import BundleError, DataError, DeviceChangedError, DeviceError, model_changed
from fala.base.examples import Example
from fala.base.files import device_errors, identity_of, remove
from fala.model.labels import HeadLabel
from fala.slots.erasing import drop_copies
from fala.slots.folder import Folder, Prepared, Snapshot, Task
from fala.slots.installing import BUNDLES, bundle_path
from fala.slots.release import Release
from fala.slots.slot import slot_record
from fala.slots.trial import after, event_of
from fala.slots.tries import Files
from fala.slots.validation import FEW_EDGE_CASES, check_trial
from fala.store.settings import Trial
from fala.store.slots import Replacement, SlotRecord, slots_of
from fala.store.store import Store

_log = logging.getLogger("fala.store")

_Result = TypeVar("_Result")


def use(
    task: Task,
    call: Callable[[Snapshot], _Result],
    examples: Sequence[Example] = (),
    snapshot: Snapshot | None = None,
) -> tuple[Snapshot, _Result]:
    """Call a function that runs a task's active release, which is probed first if it is on trial.

    The function is called again, with another snapshot, if another process has changed the task
    meanwhile and deleted one of its files, or if the release is on trial and fails.

    Args:
        task: The task.
        call: The function.
        examples: The app's examples, of which the first few are among the probes.
        snapshot: The task's snapshot, if the caller has just read it.

    Returns:
        The snapshot with which the function was called, and its result.

    Raises:
        BundleError: If the release fails, and there is nothing to fall back to.
        DeviceChangedError: If something other than the task changed meanwhile.
    """
    folder = task.folder
    passed, recall = folder.trials.has_passed, folder.trials.recall
    while True:
        snapshot = snapshot or opened(task)
        own = opened(task.own) if task.name else snapshot
        trial = own.trial
        if trial is not None and not passed(trial) and not recall(trial, _files(own)):
            _probe(own, trial, () if task.name else examples)
            snapshot = None
            continue
        try:
            return snapshot, call(snapshot)
        except (BundleError, DeviceChangedError) as error:
            changed = not task.snapshot().is_of_release(snapshot)
            if not changed and not give_up(folder, error):
                raise
        snapshot = None


def opened(task: Task) -> Snapshot:
    """Return a task's snapshot, after falling back if the release on trial cannot be opened.

    Raises:
        BundleError: If the release cannot be opened, and there is nothing to fall back to.
        DeviceError: If the task's row is damaged, or no adapter of the task's name is installed.
    """
    try:
        return task.snapshot()
    except BundleError as error:
        if not give_up(task.folder, error):
            raise
    return task.snapshot()


def give_up(folder: Folder, error: BundleError | DeviceChangedError) -> bool:
    """Fall back from the release on trial after an error.

    Returns:
        Whether another slot is active now. False if no slot is on trial, the error is not the
        release's fault, or the previous slot fails as well.
    """
    trial = folder.trials.running()
    return (
        trial is not None
        and after(trial, event_of(error)) == "fall back"
        and fall_back(folder, trial, str(error))
    )


def check_tries(folder: Folder) -> None:
    """Fall back from a release on trial with which too many processes ended, before loading it.

    Raises:
        DeviceError: If the store is damaged.
    """
    trials = folder.trials
    trial = trials.running()
    if trial is None or after(trial, "load") != "fall back":
        return
    with trials.exclusive() as exclusive:  # otherwise the last try is still running
        trial = trials.running()
        if exclusive and trial is not None and after(trial, "load") == "fall back":
            reason = f"{trial.tries} processes in a row ended while it was loaded or probed"
            fall_back(folder, trial, reason)


def _files(own: Snapshot) -> Files | None:
    """Return the files of all slots; None if the app's own encoder is used as well."""
    if own.release.bundle.external:
        return None
    folder = own.task.folder
    digests = folder.store.slots.bundles()
    files = [identity_of(bundle_path(folder.path, digest)) for digest in digests]
    known = frozenset(identity for identity in files if identity is not None)
    return known if None not in files else None


def _probe(own: Snapshot, trial: Trial, examples: Sequence[Example]) -> None:
    """Run a release on trial on a few texts before its first use in this process, or fall back.

    Raises:
        BundleError: If the release fails, and there is nothing to fall back to.
    """
    folder = own.task.folder
    trials = folder.trials
    with folder.probing:
        check_tries(folder)
        with trials.exclusive() as exclusive:
            running = trials.running()
            if running is None or running.began != trial.began or trials.has_passed(trial):
                return  # the trial has ended meanwhile, or another thread has probed the release
            files = _files(own)  # listed before they are read
            try:
                with trials.counted(running) if exclusive else contextlib.nullcontext():
                    _run_probes(own, examples)
                    trials.passed(running, files)
            except BundleError as error:
                if not give_up(folder, error):
                    raise
        folder.store.rest()  # the probes have written, and read texts


def _run_probes(own: Snapshot, examples: Sequence[Example]) -> None:
    """Run the active models of all tasks on a few texts; see ``check_trial``."""
    # The app's own encoder may be for items without a text.
    edge_cases = () if own.release.bundle.external else FEW_EDGE_CASES
    newest = own.task.store.texts.newest(len(edge_cases)) if edge_cases else []
    texts = [*edge_cases, *newest]
    check_trial(own.active, examples, texts)
    for task in own.task.adapted():
        with contextlib.suppress(DeviceError):  # the task's row is damaged or deleted
            check_trial(task.snapshot().active, (), texts)


def fall_back(folder: Folder, trial: Trial, reason: str) -> bool:
    """Make the previous slots active in place of those on trial, which are given up.

    Args:
        folder: The device's folder.
        trial: The trial that failed.
        reason: Why the trial failed.

    Returns:
        Whether another slot is active now; False if the previous one fails as well.
    """
    store, trials = folder.store, folder.trials
    try:
        with store.transaction():
            running = trials.running()
            if running is None or running.began != trial.began:
                return True  # another thread or process was first
            base = _go_back(folder, give_up=True)
            store.settings.set_trial(None)
            store.settings.set_fell_back(reason)
    except (BundleError, DeviceError) as error:
        _log.warning("the previous slot cannot take over: %s", error)
        return False
    _log.warning("%s: fell back to %s: %s", folder.path, base.name, reason)
    return True


def roll_back(folder: Folder) -> None:
    """Make the slots before the last replacement active again, for every task.

    Raises:
        DeviceError: If no previous model is kept, or an adapter was loaded since.
        BundleError: If the previous release is damaged; the device then stays as it is.
    """
    store, trials = folder.store, folder.trials
    with store.transaction():
        _go_back(folder)
        store.settings.set_fell_back(None)
        if (trial := trials.running()) is not None:
            trials.write(trial, "resume", store.slots.state().generation)


def confirm(folder: Folder) -> None:
    """End the trial of the active release, if it is on trial."""
    with folder.store.transaction():
        if (trial := folder.trials.running()) is not None:
            folder.trials.write(trial, "confirm")


def _go_back(folder: Folder, *, give_up: bool = False) -> Release:
    """Make the slots before the last replacement active, for every task.

    A task whose examples or labels changed since its slot was fitted still has to be fitted. Call
    it in a transaction.

    Args:
        folder: The device's folder.
        give_up: Whether to drop the active slots. A task whose previous slot is damaged then has
            none, and its examples stay until its adapter is loaded again.

    Returns:
        The release that is active now.

    Raises:
        DeviceError: If there is no previous slot, or an adapter was loaded since.
        BundleError: If a previous bundle is damaged.
    """
    store = folder.store
    name = store.slots.state().previous
    if name is None:
        raise DeviceError(f"{folder.path}: there is no earlier model to roll back to")
    own = Task(folder)
    base = own.open_slot(name, verify=True)  # verified before it is active
    for task in own.adapted():
        slots = task.store.slots
        previous = slots.state().previous
        try:
            if previous is None:
                raise DeviceError(
                    f"{folder.path}: the adapter {task.name} was loaded after the last "
                    "replacement, so it has nothing to roll back to; delete it first "
                    "(Device.delete_adapter)"
                )
            slot = task.open_slot(previous, base.release, verify=True)
        except (BundleError, DeviceError) as error:
            if not give_up:
                raise
            _log.warning("no slot of the adapter %s is left: %s", task.name, error)
            slots.deactivate()
            continue
        _flip(task.store, slot.record, give_up=give_up)
    _flip(store, base.record, give_up=give_up)
    return base.release


def _flip(store: Store, previous: SlotRecord, *, give_up: bool) -> None:
    """Make a task's previous slot active."""
    state = store.slots.state()
    store.slots.activate(previous.name, None if give_up else state.slot)
    store.slots.advance(state.generation, to_fit=store.slots.has_newer_data(previous))


def install_release(prepared: Sequence[Prepared]) -> None:
    """Install a release, and an adapter for every further task, in one transaction.

    The idle slot of every task is overwritten and becomes active, on trial. Files are copied inside
    the transaction, so that no other process deletes them before their rows exist. The slot that
    was active becomes the previous one. Its own trial, if any, ends, because it has passed the
    probes in this process.

    A release that is active already stays in its slot, and so do the previous slot and the trial.
    This happens if an app was killed and repeats the call.

    Args:
        prepared: What all tasks get; the device's own task comes first.

    Raises:
        DeviceError: If the folder cannot be written.
        DeviceChangedError: If another model has become active, or the tasks have changed.
    """
    task = prepared[0].before.task
    folder, store = task.folder, task.store
    names = sorted(each.before.task.name for each in prepared[1:])
    try:
        with device_errors(folder.path), store.transaction():
            if store.slots.adapters() != names:
                raise DeviceChangedError(
                    f"{folder.path}: the device's adapters changed meanwhile; try again"
                )
            in_place = all(
                each.before.state.previous is not None
                and each.slot.record.bundle == each.before.active.record.bundle
                for each in prepared
            )
            base, *adapters = (_write(each, in_place=in_place) for each in prepared)
            trial = None
            if not in_place:
                state = store.slots.state()
                trial = folder.trials.begin(state.slot, state.generation)
                manifest, admission = base.bundle.manifest, store.settings.admission()
                admission = admission.with_version(manifest.product, manifest.version)
                store.settings.set_admission(admission)
            folder.hold(base)
            for adapter in adapters:
                folder.hold(Release.of_adapter(adapter.bundle, base), base)
            prune(folder)
        snapshot = task.snapshot()
        if trial is not None:
            folder.trials.passed(trial, _files(snapshot))
    finally:
        sweep(folder)


def _write(prepared: Prepared, *, in_place: bool) -> Release:
    """Install a task's release in its idle slot, and make that slot active.

    Call it in a transaction.

    Args:
        prepared: What the task gets.
        in_place: Whether the release is active already, and stays in its slot.

    Returns:
        The installed release.
    """
    before, slot = prepared.before, prepared.slot
    task, active = before.task, before.active.record.name
    slots, name = task.store.slots, active
    if not in_place:
        name = next(each for each in slots_of(task.name) if each != active)
    generation = slots.advance(before.generation)
    bundle = task.folder.releases.install(slot.release.bundle, task.folder.path)
    task.store.embeddings.add(slot.record.backbone, prepared.embeddings)
    if slot.record.teacher is not None:
        task.store.logits.add(slot.record.teacher, prepared.logits)
    fit, replacement = before.active.record.fit, before.active.record.replacement
    if not in_place:
        data = before.state.data
        replacement = Replacement(generation, data, None if fit is None else fit.data)
    slots.put(replace(slot.record, name=name, replacement=replacement))
    if not in_place:
        slots.activate(name, active)
    task.store.examples.prune_labels()
    return replace(slot.release, bundle=bundle)


def load_adapter(
    task: Task, base: Snapshot, release: Release, positive: HeadLabel | None = None
) -> None:
    """Install an adapter beside the active release, for a task of its own.

    Examples that are stored for a damaged adapter of this name are used again. A release on trial
    is confirmed, because the task could not predict after a fall back.

    Args:
        task: The adapter's task.
        base: The snapshot of the device's own task, whose release is adapted.
        release: The adapter.
        positive: The label by which the task ranks; None keeps an earlier choice for a task of this
            name.

    Raises:
        DataError: If an adapter of this name is loaded already.
        DeviceError: If the folder cannot be written.
        DeviceChangedError: If another release was installed meanwhile.
    """
    folder, store, name = task.folder, task.store, task.name
    try:
        with device_errors(folder.path), store.transaction():
            if folder.store.slots.state().generation != base.generation:
                raise model_changed(folder.path)
            if name in folder.store.slots.adapters():
                raise DataError(
                    f"{folder.path}: there is an adapter {name} already; delete it, or pass the "
                    "new one to Device.replace"
                )
            slot = slots_of(name)[0]
            bundle = folder.releases.install(release.bundle, folder.path)
            chosen = store.slots.positive() if positive is None else str(positive)
            label = release.head.kept_positive(chosen)
            store.slots.put(slot_record(slot, bundle, release.head.vendor_model()))
            store.slots.activate(slot, None)
            if label is not None:
                store.slots.set_positive(str(label))
            confirm(folder)
    finally:
        sweep(folder)


def delete_adapter(task: Task) -> None:
    """Delete a task: its adapter, its examples, and everything computed from them.

    Raises:
        UnknownAdapterError: If there is no adapter of this name, and no example of one.
    """
    folder, store = task.folder, task.store
    with store.transaction():
        if task.name not in store.slots.adapters() and not store.examples.counts()[0]:
            store.slots.state()  # raises
        store.delete_task()
        prune(folder)
        drop_copies(folder.path)
    sweep(folder)


def prune(folder: Folder) -> None:
    """Drop the embeddings and logits that no slot of any task can still use.

    Call it in a transaction.
    """
    sources: set[str] = set()
    for digest in folder.store.slots.bundles():
        with contextlib.suppress(BundleError):  # a damaged bundle is never active again
            sources |= folder.sources_of(digest)
    folder.store.prune(sources)


def sweep(folder: Folder, *, wait: bool = True) -> None:
    """Delete the files of bundles that no slot uses, and the rest of a failed installation.

    Args:
        folder: The device's folder.
        wait: Whether to wait for other writers; if not, nothing is done while there is one.
    """
    with (
        contextlib.suppress(DeviceError),
        folder.store.turn(wait=wait),
        folder.store.transaction(),
        # A file that cannot be deleted now (full or read-only disk, file in use) is deleted next
        # time.
        contextlib.suppress(OSError),
    ):
        for file in unused_files(folder):
            remove(file)


def unused_files(folder: Folder) -> list[Path]:
    """Return the files of a device's bundles that no slot uses.

    Raises:
        OSError: If the files cannot be listed.
    """
    used = {bundle_path(folder.path, digest) for digest in folder.store.slots.bundles()}
    return [file for file in (folder.path / BUNDLES).iterdir() if file not in used]
