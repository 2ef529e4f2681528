"""Forget exactly: afterwards a device is as if it never had the examples.

Everything that depends on an example changes with it. The active model is fitted again. The
previous slot's model is fitted again to the rest of its own training examples. Its old logits, the
evidence of examples without a label, are written again if it was active before the last
replacement, by the model as it was then. Old logits of a backbone that is gone cannot be computed
again: they are deleted if their model was fitted to the example, and that evidence with them. A
prompt compiled from a forgotten text is dropped. Examples, labels and replacements are ordered by
the task's count of changes, never by a clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fala.personal.gather import Snapshot, Space, old_logits
from fala.personal.prompts import drop_prompts
from fala.personal.refit import refit
from fala.slots.bundles import Change
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task, changed_record, never_fitted, prune
from fala.store.records import Replacement


@dataclass(frozen=True, eq=False)
class _Slots:
    """The two slots, by age.

    Attributes:
        all: The slots that can be opened, the older first.
        newer: The slot that the last replacement installed; its old logits come from the older
            one. None if unknown.
        older: The other slot.
        replacement: The record of that replacement.
    """

    all: tuple[OpenSlot, ...]
    newer: OpenSlot | None
    older: OpenSlot | None
    replacement: Replacement


def forget(task: Task, ids: Iterable[int]) -> int:
    """Delete examples, and everything that depends on them except the active model.

    In ``Task.changing``: the caller fits the active model again in the same transaction.

    Returns:
        The number of deleted examples.
    """
    store = task.store
    deleted = {row.id for row in store.examples.all()} & set(ids)
    if not deleted:
        return 0
    first = store.examples.first_added(deleted)
    store.examples.forget(deleted)
    if task.previous is None:  # a damaged one is deleted
        store.slots.activate(task.active.record.name, None)
    drop_prompts(task, deleted)
    slots = _by_age(task)
    for slot in slots.all:
        _forget_teacher(task, slots, slot, first)
    slots = _by_age(task)  # their rows may have changed
    active = task.active.record.name
    for idle in (slots.older, slots.newer):
        if idle is not None and idle.record.name != active:
            _refit(task, idle, slots.older if idle is slots.newer else None, first)
    prune(task.folder)
    return len(deleted)


def _by_age(task: Task) -> _Slots:
    slots = {slot.record.name: slot for slot in (task.active, task.previous) if slot}
    installed = task.store.slots.replacements()
    names = sorted(slots, key=lambda name: installed[name].generation if name in installed else -1)
    newest = names[-1]
    if newest not in installed:  # of an earlier version: a slot with a teacher is the newer one
        with_teacher = [name for name in names if slots[name].record.teachers is not None]
        if len(with_teacher) != 1:
            idle = [name for name in names if name != task.active.record.name]
            older = slots[idle[0]] if idle else None
            return _Slots(tuple(slots.values()), None, older, Replacement())
        newest = with_teacher[0]
    older = next((slots[name] for name in names if name != newest), None)
    ordered = tuple(slot for slot in (older, slots[newest]) if slot is not None)
    return _Slots(ordered, slots[newest], older, installed.get(newest, Replacement()))


def _forget_teacher(task: Task, slots: _Slots, slot: OpenSlot, first: int) -> None:
    """Write again, or delete, the old logits of a slot whose model had the forgotten examples.

    Args:
        task: The task.
        slots: Its slots.
        slot: One of them.
        first: The count of data changes when the first of these examples was added.
    """
    record = slot.record
    if slot is slots.newer and slots.older is not None:
        if first <= slots.replacement.data:
            _write_teacher(task, _by_age(task))  # their rows may have changed
        return
    installed = task.store.slots.replacements().get(record.name, Replacement())
    if record.teachers is not None and first <= installed.data:
        task.rewrite(dataclasses.replace(record, teachers=None))


def _write_teacher(task: Task, slots: _Slots) -> None:
    """Write the old logits of the older model as it was at the replacement."""
    store, newer, slot = task.store, slots.newer, slots.older
    if newer is None or slot is None or never_fitted(slot):
        return
    replacement = slots.replacement
    fitted_to = replacement.data if replacement.fit_data is None else replacement.fit_data
    snapshot = Snapshot(store, only=store.examples.at(fitted_to))
    model = refit(snapshot, Space.of_slot(store, slot, None)).model
    teachers = None
    same_labels = slot.model.head.labels == newer.model.head.labels
    if same_labels and replacement.fit_data is not None and not model.is_vendor:
        snapshot = Snapshot(store, only=store.examples.at(replacement.data))
        before = slot.changed(slot.generation, changed_record(slot, Change(model)), model)
        old, teachers = old_logits(snapshot, before), before.teachers
        if newer.record.teachers is not None:
            store.logits.forget(newer.record.teachers[0])
        for digest, logits in zip(teachers, (old.logits, old.vendor), strict=True):
            store.logits.add(digest, logits)
    task.rewrite(dataclasses.replace(newer.record, teachers=teachers))


def _refit(task: Task, slot: OpenSlot, earlier: OpenSlot | None, first: int) -> None:
    """Fit an idle slot again to the rest of its training examples."""
    store = task.store
    fit = store.slots.fit(slot.record.name)
    data = math.inf if fit is None else fit.data
    if never_fitted(slot) or first > data:
        return
    snapshot = Snapshot(store, only=store.examples.at(data))
    result = refit(snapshot, Space.of_slot(store, slot, earlier))
    change = Change(result.model, result.verdict.threshold, result.loss)
    task.rewrite(changed_record(slot, change))
    store.slots.set_fit(slot.record.name, None if fit is None else result.record(fit.data))
