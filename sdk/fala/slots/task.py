"""A task of a device: its part of the store, its active slot, and the fall back on trial."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceChangedError, DeviceError, model_changed
from fala.examples import Example
from fala.model.active import ActiveModel
from fala.model.heads import Head
from fala.slots.bundles import Change, bundle_path, slot_record
from fala.slots.folder import Folder
from fala.slots.open_slot import OpenSlot
from fala.slots.trial import TRIES, blames_release
from fala.slots.validation import FEW_EDGE_CASES, check_trial
from fala.store.records import SlotRecord

_log = logging.getLogger("fala.store")

Result = TypeVar("Result")


class Task:
    """One head with its examples: the device's own task, or that of an adapter.

    It has no state of its own: several instances may represent the same task.

    Args:
        folder: The device's folder, open.
        adapter: The adapter's name; empty for the device's own task.

    Attributes:
        folder: See above.
        adapter: See above.
        store: Its part of the store.
    """

    def __init__(self, folder: Folder, adapter: str = "") -> None:
        self.folder = folder
        self.adapter = adapter
        self.store = folder.store_of(adapter)

    @property
    def own(self) -> Task:
        """The device's own task."""
        return Task(self.folder)

    @property
    def active(self) -> OpenSlot:
        """The active slot of this folder, even if another process has just installed it.

        Raises:
            UnknownAdapterError: No adapter of the task's name is installed.
            BundleError: Its bundle is damaged.
            DeviceError: Its row is damaged.
        """
        slots = self.folder.active
        slot = slots.get(self.adapter)
        if slot is None or self.store.slots.version().generation != slot.generation:
            slots[self.adapter] = slot = self._open()
        return slot

    @property
    def previous(self) -> OpenSlot | None:
        """The slot before the last replacement; None where there is none, or it is damaged."""
        base, name = None, self.store.slots.active()[1]
        if self.adapter:
            base = self.own.previous
        if name is None or (self.adapter and base is None):
            return None
        try:
            return self.open_slot(name, self.active.generation, base)
        except (BundleError, DeviceError) as error:
            _log.warning("the previous slot cannot be used: %s", error)
            return None

    def positive(self, head: Head) -> str | None:
        """The label that a ranking, and of two labels the threshold, is about; None without one.

        Args:
            head: The labels'.
        """
        stored = self.store.slots.positive()
        return stored if stored in head.labels else head.positive(None)

    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """The active slot; one on trial is probed first, with a fall back to the previous one.

        Args:
            examples: The examples of the current call: the first few are among the probes.

        Raises:
            BundleError: It cannot predict, and there is nothing to fall back to.
        """
        if not self.adapter:
            return self._ready(examples)
        own = self.own
        while True:
            self.store.slots.version()  # raises where the adapter is gone
            base = own.ready()
            try:
                return self.active
            except BundleError as error:
                if base.trial is None or not own.fell_back(base, error):
                    raise

    def ask(
        self,
        examples: Sequence[Example],
        question: Callable[[ActiveModel, Sequence[Example]], Result],
    ) -> Result:
        """Ask the active model; where it is on trial and fails, the previous one.

        Raises:
            BundleError: It cannot predict, and there is nothing to fall back to.
        """

        def predict(active: OpenSlot) -> Result:
            result = question(active.active_model, examples)
            if active.trial is not None:
                self.folder.trials.answered(active.trial, len(examples))
            return result

        return self.using(predict, examples)

    def using(self, call: Callable[[OpenSlot], Result], examples: Sequence[Example] = ()) -> Result:
        """Use the active slot; where it is on trial and fails, the previous one.

        Args:
            call: Called with the slot, and again with another one after a fall back.
            examples: See ``ready``.

        Raises:
            BundleError: It fails, and there is nothing to fall back to.
        """
        while True:
            active = self.ready(examples)
            try:
                with self.expecting(active):
                    return call(active)
            except DeviceChangedError:  # its files were deleted before it was loaded
                continue
            except BundleError as error:
                if not self.fell_back(active, error):
                    raise

    @contextlib.contextmanager
    def expecting(self, slot: OpenSlot) -> Iterator[None]:
        """Use the files of a slot, and of the previous one, which another process may delete.

        Raises:
            DeviceChangedError: They are deleted, and another slot is active by now.
            BundleError: They cannot be used.
        """
        try:
            yield
        except BundleError as error:
            deleted = isinstance(error.__cause__, FileNotFoundError)
            if not deleted or self.store.slots.version().generation == slot.generation:
                raise
            raise model_changed(self.folder.path) from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction of several changes of the slots: all of them are seen, or none."""
        slots = self.folder.active
        before = self.active
        try:
            with self.store.transaction():
                if self.store.slots.version().generation != before.generation:
                    before = slots[self.adapter] = self._open()
                yield
        except BaseException:
            slots[self.adapter] = before
            raise

    def commit(self, base: OpenSlot, change: Change) -> OpenSlot:
        """Make another personal model of the same bundle the active one, in one transaction.

        Args:
            base: The slot that the model was fitted for; its prompt may be new.
            change: The model.

        Returns:
            The active slot.

        Raises:
            DeviceChangedError: Another model is active by now.
        """
        record = changed_record(base, change)
        with self.store.transaction():
            self.store.embeddings.add(record.backbone, change.embeddings)
            self.store.slots.put(record)
            self.store.slots.set_fit(record.name, change.fit)
            generation = self.store.slots.advance(base.generation)
        active = base.changed(generation, record, change.model)
        self.folder.active[self.adapter] = active
        return active

    def rewrite(self, record: SlotRecord) -> None:
        """Write a slot's row. In ``changing``.

        Of the active slot only the references to old logits may change.
        """
        active = self.active
        self.store.slots.put(record)
        if record.name == active.record.name:
            generation = self.store.slots.advance(active.generation)
            self.folder.active[self.adapter] = active.changed(generation, record, active.model)

    def keep_embeddings(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Store embeddings of a backbone, by text."""
        with self.store.transaction():
            self.store.embeddings.add(backbone, embeddings)

    def take_behind(self) -> bool:
        """Whether the device fell back to a model without newer labels; True once."""
        behind = self.adapter in self.folder.behind
        self.folder.behind.discard(self.adapter)
        return behind

    def _ready(self, examples: Sequence[Example]) -> OpenSlot:
        """See ``ready``, for the device's own task."""
        trials = self.folder.trials
        while True:
            active = self.active
            if active.trial is None or trials.has_passed(active.trial):
                return active
            with self.folder.probing:
                if not trials.has_passed(active.trial):
                    self._probe(active, active.trial, examples)

    def _probe(self, active: OpenSlot, began: int, examples: Sequence[Example]) -> None:
        """Probe a slot on trial; a try is counted before, and reset after."""
        trials = self.folder.trials
        with trials.exclusive() as exclusive:
            trial = trials.running()
            if trial is None or trial.began != began:  # ended by another process
                trials.passed(began, 0)
                return
            try:
                with trials.counted(trial) if exclusive else contextlib.nullcontext():
                    # The app's own encoder may be for items without a text.
                    edge_cases = () if active.bundle.external else FEW_EDGE_CASES
                    newest = self.store.texts.newest(len(edge_cases)) if edge_cases else []
                    texts = [*edge_cases, *newest]
                    check_trial(active.active_model, examples, texts)
                    for task in further_tasks(self.folder):
                        with contextlib.suppress(DeviceError):  # its row is damaged or deleted
                            check_trial(task.active.active_model, (), texts)
            except BundleError as error:
                if not self.fell_back(active, error):
                    raise
                return
            trials.passed(began, trial.answered)

    def fell_back(self, active: OpenSlot, error: BundleError) -> bool:
        """Fall back from a failed slot if it is on trial; returns whether another is active."""
        if self.adapter:
            base = self.own.active
            if active.trial is None or active.trial != base.trial:
                return False
            active = base
        return blames_release(error) and fall_back(self.folder, active.generation, str(error))

    def open_slot(self, name: str, generation: int, base: OpenSlot | None = None) -> OpenSlot:
        """Open a slot; see ``OpenSlot.open``."""
        encoders = self.folder.encoders
        return OpenSlot.open(self.store, name, generation, base, encoders)

    def _open(self) -> OpenSlot:
        """The active slot, as it is at one generation."""
        folder, is_own = self.folder, not self.adapter
        while True:
            base = None if is_own else self.own.active
            generation = self.store.slots.version().generation
            if is_own and _fall_back_after_tries(folder, generation):
                continue
            try:
                trial = folder.trials.running() if is_own else None
                slot = self.open_slot(self.store.slots.active()[0], generation, base)
            except (BundleError, DeviceError) as error:
                # Another process may have installed others, and deleted its bundle.
                moved = base is not None and self.own.active is not base
                if moved or self.store.slots.version().generation != generation:
                    continue
                if not is_own or not blames_release(error):
                    raise
                if not fall_back(folder, generation, str(error)):
                    raise
                continue
            if self.store.slots.version().generation != generation:
                continue
            self.store.examples.task = slot.model.head.task
            if base is not None:
                return replace(slot, trial=base.trial)
            if slot.to_fit:
                folder.behind.add("")
            # Reuse the session: only the personal model changed.
            slot = slot.sharing(folder.active.get(""))
            return slot if trial is None else replace(slot, trial=trial.began)


def further_tasks(folder: Folder) -> list[Task]:
    """The tasks of the adapters that are loaded, in the order of their names."""
    return [Task(folder, name) for name in folder.store.slots.adapters()]


def fall_back(folder: Folder, generation: int, reason: str) -> bool:
    """Make the previous slots active in place of those on trial, which are given up.

    Args:
        folder: The device's folder.
        generation: That of the active slot which failed.
        reason: Why it is given up.

    Returns:
        Whether another slot is active now; False where the slot is not on trial, or the
        previous one fails, too.
    """
    store, trials = folder.store, folder.trials
    try:
        with store.transaction():
            if store.slots.version().generation != generation:
                return True  # another thread or process was first
            if trials.running() is None:
                return False
            base, changed = go_back(folder, give_up=True)
            trials.end(reason)
    except (BundleError, DeviceError) as error:
        _log.warning("the previous slot cannot take over: %s", error)
        return False
    folder.active[""] = base
    folder.behind.update(changed)
    _log.warning("%s: fell back to %s: %s", folder.path, base.bundle.manifest.name, reason)
    return True


def go_back(folder: Folder, *, give_up: bool = False) -> tuple[OpenSlot, list[str]]:
    """Make the slots before the last replacement active, for every task. In a transaction.

    Args:
        folder: The device's folder.
        give_up: Drop the active slots. A task whose previous slot is damaged has none then: its
            examples stay, until its adapter is loaded again.

    Returns:
        The device's own slot that is active now, and the tasks, by their adapters, whose examples
        or labels changed since the replacement.

    Raises:
        DeviceError: There is no previous slot, or an adapter was loaded since.
        BundleError: A previous bundle is damaged.
    """
    own, store = Task(folder), folder.store
    _, previous = store.slots.active()
    if previous is None:
        raise DeviceError(f"{folder.path}: there is no earlier model to go back to")
    # Verified before it is active.
    base = own.open_slot(previous, store.slots.version().generation + 1)
    changed: list[str] = []
    for task in further_tasks(folder):
        slots, name = task.store.slots, task.store.slots.active()[1]
        try:
            if name is None:
                raise DeviceError(
                    f"{folder.path}: the adapter {task.adapter} was loaded after the last "
                    "replacement, and has nothing to go back to; delete it first "
                    "(Device.delete_adapter)"
                )
            task.open_slot(name, slots.version().generation + 1, base)
        except (BundleError, DeviceError) as error:
            if not give_up:
                raise
            _log.warning("no slot of the adapter %s is left: %s", task.adapter, error)
            slots.deactivate()
            continue
        if _flip(task, name, give_up=give_up):
            changed.append(task.adapter)
    if _flip(own, previous, give_up=give_up) or base.to_fit:
        changed.insert(0, "")
    return base.sharing(folder.active.get("")), changed  # it may be the same release


def _flip(task: Task, previous: str, *, give_up: bool) -> bool:
    """Make a task's previous slot active; returns whether its data changed meanwhile."""
    slots = task.store.slots
    slots.activate(previous, None if give_up else slots.active()[0])
    slots.advance(slots.version().generation)
    changed = slots.data_changed()
    slots.note_data()
    return changed


def _fall_back_after_tries(folder: Folder, generation: int) -> bool:
    """Fall back before loading a slot with which too many processes ended."""
    trials = folder.trials
    trial = trials.running()
    if trial is None or trial.tries < TRIES:
        return False
    with trials.exclusive() as exclusive:  # else the last try is still running
        trial = trials.running()
        if not exclusive or trial is None or trial.tries < TRIES:
            return False
        reason = f"{trial.tries} processes in a row ended while it was loaded or probed"
        return fall_back(folder, generation, reason)


def prune(folder: Folder, release: Bundle | None = None) -> None:
    """Drop the embeddings and logits that no slot of any task can use any more.

    In a transaction.

    Args:
        folder: The device's folder.
        release: The active release, where it is being installed; None for the active slot's.
    """
    active = Task(folder).active.bundle if release is None else release
    sources: set[str] = set()
    for digest in folder.store.slots.bundles():
        with contextlib.suppress(BundleError):  # a damaged one is never active again
            path = bundle_path(folder.path, digest)
            sources |= sources_of(active if digest == active.path.stem else Bundle.open(path))
    folder.store.prune(sources)


def sources_of(bundle: Bundle) -> set[str]:
    """Backbones whose embeddings a bundle can use: its own, and those that its bridges map from.

    A bridge maps embeddings without a prompt only.
    """
    return {bundle.backbone_digest, *bundle.bridges()}


def changed_record(slot: OpenSlot, change: Change) -> SlotRecord:
    """A slot's row with another personal model."""
    record = slot.record
    return slot_record(record.name, slot.bundle, change, record.teachers, record)


def never_fitted(slot: OpenSlot) -> bool:
    """Whether nothing was ever fitted in a slot: a fit leaves its loss, or a personal model."""
    record = slot.record
    return slot.model.is_vendor and record.loss is None
