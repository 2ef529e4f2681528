"""A device's folder and its tasks: install, trial, rollback. Every change of release is here."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, RLock

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.backbones.state import provenance
from fala.bundle.prompts import UserPrompt
from fala.bundle.reading import Bundle
from fala.errors import BundleError, DataError, DeviceChangedError, DeviceError
from fala.examples import Example
from fala.model.heads import Head
from fala.slots.bundles import bundle_path, install, model_digest, slot_record, sweep
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task
from fala.slots.trial import ODD, TRIES, Trials, answer_probes, is_proof
from fala.slots.versions import note_version
from fala.store.database import doctor
from fala.store.records import SlotRecord
from fala.store.slots import slots_of
from fala.store.store import Store

_log = logging.getLogger("fala.store")

Logits = Mapping[int, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Move:
    """A task's part in an installation.

    Attributes:
        task: The task.
        before: The slot that was active while all this was prepared.
        bundle: The bundle to install for it.
        change: Its personal model.
        old_logits: The old model's logits of examples, by id, and its vendor's: kept.
        prompt: The prompt that texts are read with; None for none.
    """

    task: Task
    before: OpenSlot
    bundle: Bundle
    change: Change
    old_logits: tuple[Logits, Logits] | None
    prompt: UserPrompt | None = None


class Installed:
    """A device's folder: its store, its tasks, and the trial of its release.

    Attributes:
        path: The folder.
        store: Its store, open.
        work: Held by whoever reads, fits and writes; never while texts are encoded for long.
        swap: Held by whoever changes the active slot of a task.
        trials: The trial of the active release.
        active: The active slots that are open, by their tasks' adapters; see ``Task.active``.
        behind: The tasks that fell back to a model which lacks newer labels, by their adapters.

    Raises:
        BundleError: The active release is damaged.
        DeviceError: The store is damaged.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store
        self.work, self.swap = RLock(), RLock()
        self.trials = Trials(path, store)
        self.active: dict[str, OpenSlot] = {}
        self.behind: set[str] = set()
        self._stores: dict[str, Store] = {"": store}
        self._probing = Lock()
        try:
            self.kind = self.own.active.model.head.task  # no replacement changes it
        except BundleError as error:
            raise type(error)(f"{error}; {doctor(path)}") from error

    def close(self) -> None:
        """Close the store."""
        self.trials.flush()
        self.store.close()

    @property
    def own(self) -> Task:
        """The device's own task."""
        return Task(self)

    def further(self) -> list[Task]:
        """The tasks of the adapters that are loaded, in the order of their names."""
        return [Task(self, name) for name in self.store.slots.adapters()]

    def store_of(self, adapter: str) -> Store:
        """The store as a task has it."""
        if adapter not in self._stores:
            self._stores[adapter] = self.store.of(adapter)
        return self._stores[adapter]

    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """The active slot of the device's own task; see ``Task.ready``."""
        while True:
            active = self.own.active
            if active.trial is None or self.trials.has_passed(active.trial):
                return active
            with self._probing:
                if not self.trials.has_passed(active.trial):
                    self._probe(active, active.trial, examples)

    def confirm(self) -> None:
        """End the trial of the active release."""
        with self.store.transaction():
            if self.trials.running() is not None:
                self.trials.end()

    def count_answers(self, slot: OpenSlot, count: int) -> None:
        """Count answers of a slot on trial."""
        if slot.trial is not None:
            self.trials.answered(slot.trial, count)

    def gave_way(self, slot: OpenSlot, error: BundleError) -> bool:
        """Whether a slot that could not answer was on trial, and another one is active now."""
        return is_proof(error) and self.fall_back(slot.generation, str(error))

    def install(self, moves: Sequence[Move], backbone: Backbone) -> OpenSlot:
        """Install a release, and an adapter for every further task, in one transaction.

        The idle slot of every task is overwritten, and is active from then on, on trial. Files are
        copied inside the transaction: no other process sweeps them away before their rows are
        there. The slot that was active is the one to go back to. Its own trial, if it was on one,
        ends with that: it has answered in this process (see ``Task.ready``).

        A release that is active already and comes again, as from an app that was killed and does
        not know how far it got, stays in its slot: the previous slot and the trial stay, too.

        Args:
            moves: Of every task; the device's own first.
            backbone: The release's, loaded.

        Raises:
            DeviceError: The folder cannot be written.
            DeviceChangedError: Another model is active by now, or there are other tasks.
        """
        store, own = self.store, moves[0]
        names = sorted(move.task.adapter for move in moves[1:])
        try:
            with self.swap, own.task.expecting(own.before):
                with store.transaction():
                    if store.slots.adapters() != names:
                        raise DeviceChangedError(f"{self.path}: its adapters are others meanwhile")
                    running = self.trials.running()
                    again = self._is_active(moves, on_trial=running is not None)
                    written = [self._write(move, again=again) for move in moves]
                    generation, record, bundle = written[0]
                    if again:
                        trial = None if running is None else running.began
                        self.prune(bundle)
                    else:
                        trial = generation
                        self.trials.begin(record.name, generation)
                        note_version(store, own.bundle.manifest, own.before.bundle.manifest)
                        bundles = [
                            one for move in moves for one in (move.bundle, move.before.bundle)
                        ]
                        store.prune({source for one in bundles for source in _sources(one)})
                active = OpenSlot.of(generation, record, bundle, own.change.model, backbone, trial)
                self.active[""] = active
        except OSError as error:
            raise DeviceError(f"{self.path}: {error.strerror or error}") from error
        finally:
            self.sweep()
        return active

    def roll_back(self) -> list[Task]:
        """Make the slots before the last replacement active again, for every task.

        Returns:
            The tasks whose examples or labels changed since that replacement.

        Raises:
            DeviceError: If no previous model is kept, or an adapter was loaded since.
            BundleError: The previous release is damaged; the device stays as it is.
        """
        changed: list[Task] = []
        with self.work, self.swap:
            with self.store.transaction():
                generation = self.store.slots.version().generation
                slot, previous = self.store.slots.active()
                if previous is None:
                    raise DeviceError(f"{self.path}: there is no earlier model to go back to")
                # Verified before it is active.
                base = OpenSlot.open(self.path, self.store, previous, generation + 1)
                base = base.sharing(self.active.get(""))  # where only the prompt is another
                changed += [task for task in self.further() if self._go_back(task, base)]
                _flip(self.store, previous, slot)
                trial = self.trials.resume(previous, generation + 1)
                if self.store.slots.data_changed():
                    changed.insert(0, self.own)
                self.store.slots.note_data()
            self.active[""] = replace(base, trial=trial)
        return changed

    def fall_back(self, generation: int, reason: str) -> bool:
        """Make the previous slots active in place of those on trial, which are given up.

        Returns:
            Whether another slot is active now; False where the slot is not on trial, or the
            previous one is no better.
        """
        changed: list[Task] = []
        try:
            with self.swap:
                with self.store.transaction():
                    if self.store.slots.version().generation != generation:
                        return True  # another thread or process was first
                    _, previous = self.store.slots.active()
                    if previous is None or self.trials.running() is None:
                        return False
                    base = OpenSlot.open(self.path, self.store, previous, generation + 1)
                    changed += [task for task in self.further() if self._fall_back(task, base)]
                    # No way back: a release that cannot answer is nothing to go back to.
                    self.store.slots.activate(previous, None)
                    self.store.slots.advance(generation)
                    self.trials.end(reason)
                    if self.store.slots.data_changed():
                        changed.append(self.own)
                self.active[""] = base
        except (BundleError, DeviceError) as error:
            _log.warning("the previous slot cannot take over: %s", error)
            return False
        self.behind.update(task.adapter for task in changed)
        name = base.bundle.manifest.name
        _log.warning("%s: fell back to %s: %s", self.path, name, reason)
        return True

    def gave_up(self, generation: int) -> bool:
        """Fall back from a slot that too many processes ended with, before it is loaded again."""
        trial = self.trials.running()
        if trial is None or trial.tries < TRIES:
            return False
        with self.trials.alone() as alone:  # else the last try is still going on
            trial = self.trials.running()
            if not alone or trial is None or trial.tries < TRIES:
                return False
            reason = f"{trial.tries} processes in a row ended while it was loaded, or first asked"
            return self.fall_back(generation, reason)

    def load(self, bundle: Bundle, head: Head, name: str, positive: str | None = None) -> Task:
        """Install an adapter beside the active release, for a task of its own.

        Examples that are kept of an adapter of this name, which was damaged, are taken up. A
        release on trial is confirmed by it: without it the task could not answer.

        Args:
            bundle: The adapter's.
            head: Its head.
            name: The task's name.
            positive: The label, of two, whose F1 thresholds are for; None takes the second.

        Raises:
            DataError: There is one of this name already.
            DeviceError: The folder cannot be written.
            DeviceChangedError: Another release was installed meanwhile.
        """
        task = Task(self, name)
        try:
            with self.swap, self.store.transaction():
                if bundle.base != self.own.active.bundle.backbone_digest:
                    raise DeviceChangedError(
                        f"{self.path}: the device's model was changed meanwhile"
                    )
                if name in self.store.slots.adapters():
                    raise DataError(
                        f"{self.path}: there is an adapter {name} already; delete it, or give "
                        "the new one to replace"
                    )
                slot = slots_of(name)[0]
                task.store.slots.put(
                    slot_record(slot, install(bundle, self.path), head.vendor_model())
                )
                task.store.slots.activate(slot, None)
                if positive is not None:
                    task.store.slots.set_positive(positive)
                self.confirm()
        except OSError as error:
            raise DeviceError(f"{self.path}: {error.strerror or error}") from error
        finally:
            self.sweep()
        return task

    def unload(self, name: str) -> None:
        """Delete a task: its adapter, its examples, and all that was made of them.

        Raises:
            UnknownAdapterError: There is none of this name, and no example of one.
        """
        store = self.store_of(name)
        with self.work, self.swap, self.store.transaction():
            if name not in self.store.slots.adapters() and not store.examples.counts()[0]:
                store.slots.version()  # raises
            store.delete_task()
            self.prune()
            self.active.pop(name, None)
        self.sweep()

    def prune(self, active: Bundle | None = None) -> None:
        """Drop the embeddings and logits that no slot of any task can use any more.

        In a transaction.

        Args:
            active: The active release, where it is being installed.
        """
        release = self.own.active.bundle if active is None else active
        sources: set[str] = set()
        for digest in self.store.slots.bundles():
            with contextlib.suppress(BundleError):  # there is no way back to a damaged one
                path = bundle_path(self.path, digest)
                sources |= _sources(release if digest == release.path.stem else Bundle.open(path))
        self.store.prune(sources)

    def sweep(self) -> None:
        """Delete the files of bundles that no slot uses, and the rest of a failed installation."""
        with contextlib.suppress(DeviceError), self.store.transaction():
            sweep(self.path, self.store.slots.bundles())

    def _is_active(self, moves: Sequence[Move], *, on_trial: bool) -> bool:
        """Whether all that is to be installed is active already, and there is a way back from it.

        With another prompt it is another release; on trial the prompt is a part of what is tried.
        """
        return self.store.slots.active()[1] is not None and all(
            move.bundle == move.before.bundle
            and (on_trial or (move.prompt is None and not move.before.record.prompt))
            for move in moves
        )

    def _write(self, move: Move, *, again: bool) -> tuple[int, SlotRecord, Bundle]:
        """Install a task's bundle in its idle slot, and make that active. In a transaction.

        Args:
            move: The task's part.
            again: Whether the bundle is active already, and stays in its slot.

        Returns:
            The task's new generation, the slot's row, and the bundle as it lies there.
        """
        store, before, change = move.task.store, move.before, move.change
        slot = before.record.name
        if not again:
            slot = next(name for name in slots_of(store.adapter) if name != slot)
        teachers: tuple[str, ...] = ()
        if move.old_logits is not None:
            vendor, backbone = before.model.head.vendor_model(), before.record.backbone
            teachers = before.record.model, model_digest(before.bundle, vendor, backbone)
        generation = store.slots.advance(before.generation)
        bundle = install(move.bundle, self.path)
        state = None if move.prompt is None else move.prompt.state
        record = slot_record(
            slot, bundle, change.model, *teachers, threshold=change.threshold, loss=change.loss,
            backbone=provenance(bundle.backbone_digest, state),
            prompt=() if move.prompt is None else move.prompt.kept,
        )  # fmt: skip
        store.embeddings.add(record.backbone, change.embeddings)
        for name, values in zip(teachers, move.old_logits or (), strict=True):
            store.logits.add(name, values)
        store.slots.put(record)
        store.slots.set_fit(slot, change.fit)
        if not again:
            store.slots.activate(slot, before.record.name)
            store.slots.note_data()
            store.slots.note_replacement(slot, generation, store.examples.last())
        return generation, record, bundle

    def _go_back(self, task: Task, base: OpenSlot) -> bool:
        """Make a further task's previous slot active. In a transaction.

        Args:
            task: The task.
            base: The release that is active with it.

        Returns:
            Whether the task's examples or labels changed since the replacement.

        Raises:
            DeviceError: The adapter was loaded after it.
            BundleError: The previous adapter is damaged.
        """
        slot, previous = task.store.slots.active()
        if previous is None:
            raise DeviceError(
                f"{self.path}: the adapter {task.adapter} was loaded after the last replacement, "
                "and has nothing to go back to; delete it first (Device.delete_adapter)"
            )
        # Verified before it is active.
        generation = task.store.slots.version().generation
        OpenSlot.open(self.path, task.store, previous, generation + 1, base)
        _flip(task.store, previous, slot)
        changed = task.store.slots.data_changed()
        task.store.slots.note_data()
        return changed

    def _fall_back(self, task: Task, base: OpenSlot) -> bool:
        """Make a further task's previous slot active, or none, where it is damaged.

        In a transaction. The task's examples stay, and wait for its adapter to be loaded again.
        See ``_go_back``.
        """
        store = task.store
        generation, (_, previous) = store.slots.version().generation, store.slots.active()
        if previous is None or task.opened(previous, generation + 1, base) is None:
            _log.warning("%s: no slot of the adapter %s is left", self.path, task.adapter)
            store.slots.deactivate()
            for slot in store.slots.names():
                store.slots.drop(slot)
            return False
        store.slots.activate(previous, None)
        store.slots.advance(generation)
        return store.slots.data_changed()

    def _probe(self, active: OpenSlot, began: int, examples: Sequence[Example]) -> None:
        """Let a slot on trial answer probes, with a try counted before and taken back after."""
        with self.trials.alone() as alone:
            trial = self.trials.running()
            if trial is None or trial.began != began:  # confirmed, or left, by another process
                self.trials.passed(began, 0)
                return
            if alone:
                self.trials.count(began, trial.tries + 1)
            try:
                texts = self.store.texts.newest(len(ODD))
                answer_probes(active.active_model, examples, texts)
                for task in self.further():
                    with contextlib.suppress(DeviceError):  # its row is damaged, or it is gone
                        answer_probes(task.active.active_model, (), texts)
            except BundleError as error:
                if not self.gave_way(active, error):
                    raise
                return
            if alone:
                self.trials.count(began, 0)
            self.trials.passed(began, trial.answered)


def _flip(store: Store, slot: str, previous: str) -> None:
    """Make a task's previous slot active, with the active one to come back to."""
    generation = store.slots.version().generation
    store.slots.activate(slot, previous)
    store.slots.advance(generation)
    store.slots.note_rollback(generation + 1)


def _sources(bundle: Bundle) -> set[str]:
    """Backbones whose embeddings are of use to a bundle: a bridge starts there, or its own.

    Texts that were read without a prompt can cross a bridge from the backbone; those that were
    read with one cannot.
    """
    return {bundle.backbone_digest, *bundle.bridges()}
