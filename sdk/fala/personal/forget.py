"""Forget exactly: afterwards a device is as one that never had the examples.

More than an example's rows depends on it. The active model was fitted to it, so it is fitted again.
So was the previous slot's. Where that one was active before the last replacement, its old logits of
the other examples stand in where there is no label: it is fitted again to what the device had when
it was left, and its old logits are written again. Old logits of a backbone that is gone cannot be
made again: where its model was fitted to the example they are deleted, and the evidence of examples
without a label with them. What was compiled of a forgotten text is dropped, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from fala.personal.gather import Snapshot, Space, old_logits
from fala.personal.prompts import drop_prompts
from fala.personal.refit import Judged, refit
from fala.slots.bundles import model_digest
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task, changed_record, never_fitted
from fala.store.records import Replacement


@dataclass(frozen=True, eq=False)
class _Slots:
    """The two slots, by age.

    Attributes:
        all: Those that can be opened, the older first.
        newer: The one that the last replacement installed; its old logits are the other's. None
            where that is not known.
        older: The other one.
        replacement: When it was, and what the device had then.
    """

    all: tuple[OpenSlot, ...]
    newer: OpenSlot | None
    older: OpenSlot | None
    replacement: Replacement


def forget(task: Task, ids: Iterable[int]) -> int:
    """Delete examples, and all that depends on them but the active model.

    In ``Task.changing``: the active model is fitted again in the same transaction.

    Returns:
        How many there were.
    """
    store = task.store
    gone = {row.id for row in store.examples.all()} & set(ids)
    if not gone:
        return 0
    store.examples.forget(gone)
    task.drop_unusable()
    drop_prompts(task, gone)
    slots = _by_age(task)
    for slot in slots.all:
        _forget_teacher(task, slots, slot, gone)
    slots = _by_age(task)  # as they are by now
    active = task.active.record.name
    if slots.newer is not None and slots.newer.record.name != active:
        _refit(task, slots.newer, slots.older)
    if slots.newer is None and slots.older is not None and slots.older.record.name != active:
        _refit(task, slots.older, None)
    task.prune()
    return len(gone)


def _by_age(task: Task) -> _Slots:
    slots = {slot.record.name: slot for slot in (task.active, task.previous) if slot}
    installed = task.store.slots.replacements()
    names = sorted(slots, key=lambda name: installed[name].generation if name in installed else -1)
    newest = names[-1]
    if newest not in installed:  # an earlier version; if one slot has a teacher, the other is it
        with_teacher = [name for name in names if slots[name].record.teacher is not None]
        if len(with_teacher) != 1:
            others = [name for name in names if name != task.active.record.name]
            older = slots[others[0]] if others else None
            return _Slots(tuple(slots.values()), None, older, Replacement())
        newest = with_teacher[0]
    older = next((slots[name] for name in names if name != newest), None)
    ordered = tuple(slot for slot in (older, slots[newest]) if slot is not None)
    return _Slots(ordered, slots[newest], older, installed.get(newest, Replacement()))


def _forget_teacher(task: Task, slots: _Slots, slot: OpenSlot, gone: set[int]) -> None:
    """Let the old logits of a slot be those of a model that never had the forgotten examples."""
    record = slot.record
    if slot is slots.newer and slots.older is not None:
        if min(gone) <= slots.replacement.last or slots.replacement.rolled_back:
            _teach(task, slots.older.record.name, slots)
        return
    installed = task.store.slots.replacements().get(record.name, Replacement())
    if record.teacher is not None and min(gone) <= installed.last:
        task.rewrite(dataclasses.replace(record, teacher=None, teacher_vendor=None))


def _teach(task: Task, older: str, slots: _Slots) -> None:
    """Fit the older model to what it had at the replacement, and write its old logits again."""
    store, newer = task.store, slots.newer
    slot = task.slot(older)
    if newer is None or never_fitted(slot):
        return
    then = slots.replacement
    rows = [
        row if (row.labelled or 0.0) <= then.time else dataclasses.replace(row, label=None)
        for row in store.examples.all()
        if row.id <= then.last
    ]
    snapshot = Snapshot(store, only=rows)
    judged = _judged(task, slot, snapshot, None)
    model = slot.model.head.vendor_model() if judged is None else judged.model
    teachers: tuple[str | None, str | None] = None, None
    if newer.record.teacher is not None and not model.is_vendor:
        old = old_logits(snapshot, slot.changed(slot.generation, slot.record, model))
        digests = [
            model_digest(slot.bundle, one, slot.record.backbone)
            for one in (model, model.head.vendor_model())
        ]
        store.logits.forget(newer.record.teacher)
        for digest, logits in zip(digests, (old.logits, old.vendor), strict=True):
            store.logits.add(digest, logits)
        teachers = digests[0], digests[1]
    teacher, vendor = teachers
    task.rewrite(dataclasses.replace(newer.record, teacher=teacher, teacher_vendor=vendor))
    if task.active.record.name != older:  # the active model is fitted to all that there is
        _write(task, slot, _change(slot, judged))


def _refit(task: Task, slot: OpenSlot, other: OpenSlot | None) -> None:
    """Fit a slot that is not active to all that there is."""
    if not never_fitted(slot):
        _write(task, slot, _change(slot, _judged(task, slot, Snapshot(task.store), other)))


def _judged(
    task: Task, slot: OpenSlot, snapshot: Snapshot, other: OpenSlot | None
) -> Judged | None:
    """A slot's model, fitted to a snapshot; None where that has no evidence."""
    space = Space.of_slot(task.store, slot, other)
    return refit(snapshot, space, task.positive(slot.model.head)).judged


def _change(slot: OpenSlot, judged: Judged | None) -> Change:
    """A slot's next model: one to which nothing can be added."""
    if judged is None:
        return Change(slot.model.head.vendor_model())
    return Change(judged.model, judged.threshold, judged.loss)


def _write(task: Task, slot: OpenSlot, change: Change) -> None:
    """Write another model to a slot that is not active. In ``Task.changing``."""
    task.rewrite(changed_record(slot, change))
    task.store.slots.set_fit(slot.record.name, None)
