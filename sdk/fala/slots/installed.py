"""A device's folder and what answers in it; every change of model goes through here."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, RLock
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.backbones.state import provenance
from fala.bundle.prompts import UserPrompt
from fala.bundle.reading import Bundle
from fala.errors import (
    BundleError,
    DataError,
    DeviceChangedError,
    DeviceError,
)
from fala.examples import Example
from fala.model.heads import Head
from fala.slots.adapted import Adapted
from fala.slots.bundles import (
    bundle_path,
    install,
    model_digest,
    slot_record,
    sweep,
)
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
    """A task's part in a replacement.

    Attributes:
        task: The task.
        before: The slot that answered while all this was prepared.
        bundle: What is to be installed for it.
        change: Its personal model.
        taught: What the old model and its vendor's say of examples, by id: kept.
        prompt: What texts are read with; None for nothing.
    """

    task: Task
    before: OpenSlot
    bundle: Bundle
    change: Change
    taught: tuple[Logits, Logits] | None
    prompt: UserPrompt | None = None


class Installed(Task):
    """A device's folder with its store: the device's own task, and the others beside it.

    Attributes:
        trials: The trial of a slot that has not proved itself.
    """

    def __init__(self, path: Path, store: Store) -> None:
        super().__init__(path, store, RLock(), RLock())
        self.trials = Trials(path, store)
        self._proving = Lock()
        # They know this one: known here as well, none of them would go when its device does.
        self._adapted: WeakValueDictionary[str, Adapted] = WeakValueDictionary()
        try:
            self._now = self._open()
        except BundleError as error:
            raise type(error)(f"{error}; {doctor(path)}") from error
        store.examples.task = self._now.model.head.task

    def close(self) -> None:
        """Close the store."""
        self.trials.flush()
        self.store.close()

    def adapted(self, name: str) -> Adapted:
        """A further task, by its adapter's name; it need not be there."""
        with self.swap:
            return self._adapted.setdefault(name, Adapted(self, name))

    def task(self, name: str) -> Task:
        """A task, by its adapter's name; empty for the device's own."""
        return self.adapted(name) if name else self

    def further(self) -> list[Adapted]:
        """The further tasks."""
        return [self.adapted(name) for name in self.store.slots.adapters()]

    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """See ``Task``."""
        while True:
            now = self.now
            if now.trial is None or self.trials.has_passed(now.trial):
                return now
            with self._proving:
                if not self.trials.has_passed(now.trial):
                    self._prove(now, now.trial, examples)

    def confirm(self) -> None:
        """End the trial of what answers: it has proved itself."""
        with self.store.transaction():
            if self.trials.running() is not None:
                self.trials.end()

    def slot(self, name: str) -> OpenSlot:
        """See ``Task``."""
        return OpenSlot.open(self.path, self.store, name, self.now.generation)

    def prune(self) -> None:
        """See ``Task``."""
        self.store.prune(self._kept(self.now.bundle))

    def _kept(self, now: Bundle) -> set[str]:
        """Backbones whose embeddings are of use to what answers, or may answer again."""
        sources: set[str] = set()
        for digest in self.store.slots.bundles():
            with contextlib.suppress(BundleError):  # nobody can go back to a damaged one
                path = bundle_path(self.path, digest)
                bundle = now if digest == now.path.stem else Bundle.open(path)
                sources.update(_sources(bundle))
        return sources

    def earlier(self) -> OpenSlot | None:
        """See ``Task``."""
        return self._opened(self.store.slots.active()[1], self.now.generation, None)

    def roll_back(self) -> list[Task]:
        """Let what answered before the last replacement answer again, for every task.

        Returns:
            The tasks of which anything was said or forgotten since that replacement.

        Raises:
            DeviceError: If no earlier model is kept, or an adapter was loaded since.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        with self.work, self.swap:
            said: list[Task] = []
            with self.store.transaction():
                generation = self.store.slots.version().generation
                slot, previous = self.store.slots.active()
                if previous is None:
                    raise DeviceError(f"{self.path}: there is no earlier model to go back to")
                # Verified before it answers.
                earlier = OpenSlot.open(self.path, self.store, previous, generation + 1)
                earlier = earlier.sharing(self._now)  # where only the prompt is another
                said += [task for task in self.further() if task.go_back(earlier)]
                self.store.slots.activate(previous, slot)
                self.store.slots.advance(generation)
                self.store.slots.note_rollback(generation + 1)
                trial = self.trials.resume(previous, generation + 1)
                if self.store.slots.data_changed():
                    said.insert(0, self)
                self.store.slots.note_data()
            self._now = replace(earlier, trial=trial)
        return said

    def commit(self, moves: Sequence[Move], backbone: Backbone) -> OpenSlot:
        """Install a release, and an adapter for every further task, in one transaction.

        What is installed lies in the idle slot of every task, and answers from then on, on trial.
        The files are copied inside the transaction: no other process sweeps them away before
        their rows are there. What answered is what the device goes back to: its own trial, if it
        was on one, ends with that. It has answered in this process (see ``ready``), and whoever
        replaces it says that they would come back to it.

        A release that answers already and comes again, as from an app that was killed and does not
        know how far it got, stays in its slot: the way back, and its trial, are what they were.

        Args:
            moves: Of every task; the device's own first.
            backbone: The release's, loaded.

        Raises:
            DeviceError: The folder cannot be written.
            DeviceChangedError: Something else answers by now, or there are other tasks.
        """
        store, own = self.store, moves[0]
        named = sorted(move.task.store.adapter for move in moves[1:])
        try:
            with self.swap, self.expecting(own.before):
                with store.transaction():
                    if store.slots.adapters() != named:
                        raise DeviceChangedError(f"{self.path}: its adapters are others meanwhile")
                    running = self.trials.running()
                    again = self._comes_again(moves, on_trial=running is not None)
                    written = [self._write(move, again=again) for move in moves]
                    generation, record, installed = written[0]
                    if again:
                        trial = None if running is None else running.began
                        sources = self._kept(installed)
                    else:
                        trial = generation
                        sources = {
                            source
                            for move in moves
                            for bundle in (move.bundle, move.before.bundle)
                            for source in _sources(bundle)
                        }
                        self.trials.begin(record.name, generation)
                        note_version(store, own.bundle.manifest, own.before.bundle.manifest)
                    store.prune(sources)
                self._now = OpenSlot.of(
                    generation, record, installed, own.change.model, backbone, trial
                )
        except OSError as error:
            raise DeviceError(f"{self.path}: {error.strerror or error}") from error
        finally:
            self.sweep()
        return self._now

    def load(self, bundle: Bundle, head: Head, name: str, positive: str | None = None) -> Adapted:
        """Install an adapter beside what answers, for a task of its own.

        Examples that are kept of an adapter of this name, which was damaged, are taken up. A
        release on trial has proved itself with that: without it the task could not answer.

        Args:
            bundle: The adapter's.
            head: Its head.
            name: What the task is called.
            positive: The label, of two, whose F1 thresholds are for; None takes the second.

        Raises:
            DataError: There is one of this name already.
            DeviceError: The folder cannot be written.
            DeviceChangedError: Another release was installed meanwhile.
        """
        task = self.adapted(name)
        view = task.store
        try:
            with self.swap, self.store.transaction():
                if bundle.base != self.now.bundle.backbone_digest:
                    raise DeviceChangedError(
                        f"{self.path}: the device's model was changed meanwhile"
                    )
                if name in self.store.slots.adapters():
                    raise DataError(
                        f"{self.path}: there is an adapter {name} already; delete it, or give "
                        "the new one to replace"
                    )
                installed = install(bundle, self.path)
                slot = slots_of(name)[0]
                view.slots.put(slot_record(slot, installed, head.vendor_model()))
                view.slots.activate(slot, None)
                if positive is not None:
                    view.slots.set_positive(positive)
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
        view = self.adapted(name).store
        with self.work, self.swap, self.store.transaction():
            if name not in self.store.slots.adapters() and not view.examples.counts()[0]:
                view.slots.version()  # says so
            view.delete_task()
            self.prune()
        self.sweep()

    def sweep(self) -> None:
        """Delete the files of bundles that no slot uses, and what a failed installation left."""
        with contextlib.suppress(DeviceError), self.store.transaction():
            sweep(self.path, self.store.slots.bundles())

    def _comes_again(self, moves: Sequence[Move], *, on_trial: bool) -> bool:
        """Whether all that is to be installed answers already, and there is a way back from it.

        With another prompt it is something else; on trial the prompt is a part of what is tried.
        """
        return self.store.slots.active()[1] is not None and all(
            move.bundle == move.before.bundle
            and (on_trial or (move.prompt is None and not move.before.record.prompt))
            for move in moves
        )

    def _write(self, move: Move, *, again: bool) -> tuple[int, SlotRecord, Bundle]:
        """Install a task's bundle in its idle slot, and let it answer. In a transaction.

        Args:
            move: What is to be installed.
            again: Whether it comes again, and stays in its slot.

        Returns:
            The task's new generation, the slot's row, and the bundle as it lies there.
        """
        store, before, change = move.task.store, move.before, move.change
        slot = before.record.name
        if not again:
            slot = next(name for name in slots_of(store.adapter) if name != slot)
        teachers: tuple[str, ...] = ()
        if move.taught is not None:
            vendor, backbone = before.model.head.vendor_model(), before.record.backbone
            teachers = before.record.model, model_digest(before.bundle, vendor, backbone)
        generation = store.slots.advance(before.generation)
        installed = install(move.bundle, self.path)
        state = None if move.prompt is None else move.prompt.state
        kept = () if move.prompt is None else move.prompt.kept
        record = slot_record(
            slot, installed, change.model, *teachers, threshold=change.threshold, loss=change.loss,
            backbone=provenance(installed.backbone_digest, state), prompt=kept,
        )  # fmt: skip
        store.embeddings.add(record.backbone, change.embeddings)
        for name, values in zip(teachers, move.taught or (), strict=True):
            store.logits.add(name, values)
        store.slots.put(record)
        store.slots.set_fit(slot, change.fit)
        if not again:
            store.slots.activate(slot, before.record.name)
            store.slots.note_data()
            store.slots.note_replacement(slot, generation, store.examples.last())
        return generation, record, installed

    def _open(self) -> OpenSlot:
        while True:
            generation = self.store.slots.version().generation
            if self._given_up(generation):
                continue
            try:
                trial = self.trials.running()
                slot = OpenSlot.open(
                    self.path, self.store, self.store.slots.active()[0], generation
                )
            except (BundleError, DeviceError) as error:
                # Another process may have swept its bundle away, having installed others.
                if self.store.slots.version().generation != generation:
                    continue
                if not is_proof(error) or not self._fall_back(generation, str(error)):
                    raise
                continue
            if self.store.slots.version().generation == generation:
                # One session, whoever else learned something.
                slot = slot.sharing(self._now)
                return slot if trial is None else replace(slot, trial=trial.began)

    def gave_way(self, now: OpenSlot, error: BundleError) -> bool:
        """See ``Task``."""
        return is_proof(error) and self._fall_back(now.generation, str(error))

    def answered(self, now: OpenSlot, count: int) -> None:
        """See ``Task``."""
        if now.trial is not None:
            self.trials.answered(now.trial, count)

    def _given_up(self, generation: int) -> bool:
        """Fall back from a slot that too many processes died of; nobody loads it for that."""
        trial = self.trials.running()
        if trial is None or trial.tries < TRIES:
            return False
        with self.trials.alone() as alone:  # else the last try is still going on
            trial = self.trials.running()
            if not alone or trial is None or trial.tries < TRIES:
                return False
            died = f"{trial.tries} processes in a row ended while it was loaded, or first asked"
            return self._fall_back(generation, died)

    def _prove(self, now: OpenSlot, began: int, examples: Sequence[Example]) -> None:
        """Let a slot on trial answer probes, with a try counted before and taken back after."""
        with self.trials.alone() as alone:
            trial = self.trials.running()
            if trial is None or trial.began != began:  # confirmed, or left, by somebody else
                self.trials.passed(began, 0)
                return
            if alone:
                self.trials.count(began, trial.tries + 1)
            try:
                own = self.store.texts.newest(len(ODD))
                answer_probes(now.answering, examples, own)
                for task in self.further():
                    with contextlib.suppress(DeviceError):  # its row is damaged, or it is gone
                        answer_probes(task.now.answering, (), own)
            except BundleError as error:
                if not is_proof(error) or not self._fall_back(now.generation, str(error)):
                    raise
                return
            if alone:
                self.trials.count(began, 0)
            self.trials.passed(began, trial.answered)

    def _fall_back(self, generation: int, reason: str) -> bool:
        """Let the earlier slots answer in place of those on trial, which are given up.

        Returns:
            Whether something else answers now; False where the slot is not on trial, or the
            earlier one is no better.
        """
        said: list[Task] = []
        try:
            with self.swap:
                with self.store.transaction():
                    if self.store.slots.version().generation != generation:
                        return True  # somebody else was first
                    _, previous = self.store.slots.active()
                    if previous is None or self.trials.running() is None:
                        return False
                    earlier = OpenSlot.open(self.path, self.store, previous, generation + 1)
                    said += [task for task in self.further() if task.fall_back(earlier)]
                    # No way back to it: what cannot answer is nothing to go back to.
                    self.store.slots.activate(previous, None)
                    self.store.slots.advance(generation)
                    self.trials.end(reason)
                    if self.store.slots.data_changed():
                        said.append(self)
                self._now = earlier
        except (BundleError, DeviceError) as error:
            _log.warning("the earlier slot cannot take over: %s", error)
            return False
        for one in said:
            one.behind = True
        name = earlier.bundle.manifest.name
        _log.warning("%s: fell back to %s: %s", self.path, name, reason)
        return True


def _sources(bundle: Bundle) -> set[str]:
    """Backbones whose embeddings are of use to a bundle: a bridge starts there, or its own.

    What was read without a prompt can cross a bridge from the backbone; what was read with one
    cannot.
    """
    return {bundle.backbone_digest, *bundle.bridges()}
