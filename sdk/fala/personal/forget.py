"""Forget exactly: afterwards a device is as one that never had the examples.

More than an example's rows depends on it. The active model was fitted to it, so it is fitted again.
So was the previous slot's: it is fitted again to what is left of that which it was fitted to. Where
it was active before the last replacement, its old logits of the other examples stand in where there
is no label: they are written again, of the model that it was then. Examples, labels and
replacements are ordered by the task's count of changes, never by a clock. Old logits of a backbone
that is gone cannot be made again: where its model was fitted to the example they are deleted, and
the evidence of examples without a label with them. What was compiled of a forgotten text is
dropped, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fala.personal.gather import Snapshot, Space, old_logits
from fala.personal.prompts import drop_prompts
from fala.personal.refit import Refit, refit
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
    first = store.examples.first_added(gone)
    store.examples.forget(gone)
    task.drop_unusable()
    drop_prompts(task, gone)
    slots = _by_age(task)
    for slot in slots.all:
        _forget_teacher(task, slots, slot, first)
    slots = _by_age(task)  # as they are by now
    active = task.active.record.name
    for idle in (slots.older, slots.newer):
        if idle is not None and idle.record.name != active:
            _refit(task, idle, slots.older if idle is slots.newer else None, first)
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


def _forget_teacher(task: Task, slots: _Slots, slot: OpenSlot, first: int) -> None:
    """Let the old logits of a slot be those of a model that never had the forgotten examples.

    Args:
        task: The task.
        slots: Its slots.
        slot: One of them.
        first: The count of changes of data at which the first of these examples came.
    """
    record = slot.record
    if slot is slots.newer and slots.older is not None:
        if first <= slots.replacement.data:
            _teach(task, _by_age(task))  # as they are by now
        return
    installed = task.store.slots.replacements().get(record.name, Replacement())
    if record.teacher is not None and first <= installed.data:
        task.rewrite(dataclasses.replace(record, teacher=None, teacher_vendor=None))


def _teach(task: Task, slots: _Slots) -> None:
    """Write the old logits of the older model as it was at the replacement."""
    store, newer, slot = task.store, slots.newer, slots.older
    if newer is None or slot is None or never_fitted(slot):
        return
    then = slots.replacement
    fitted_to = then.data if then.fit_data is None else then.fit_data
    snapshot = Snapshot(store, only=store.examples.at(fitted_to))
    model = _refitted(task, slot, snapshot, None).model
    teachers: tuple[str | None, str | None] = None, None
    same_labels = slot.model.head.labels == newer.model.head.labels
    if same_labels and then.fit_data is not None and not model.is_vendor:
        snapshot = Snapshot(store, only=store.examples.at(then.data))
        old = old_logits(snapshot, slot.changed(slot.generation, slot.record, model))
        digests = [
            model_digest(slot.bundle, one, slot.record.backbone)
            for one in (model, model.head.vendor_model())
        ]
        if newer.record.teacher is not None:
            store.logits.forget(newer.record.teacher)
        for digest, logits in zip(digests, (old.logits, old.vendor), strict=True):
            store.logits.add(digest, logits)
        teachers = digests[0], digests[1]
    teacher, vendor = teachers
    task.rewrite(dataclasses.replace(newer.record, teacher=teacher, teacher_vendor=vendor))


def _refit(task: Task, slot: OpenSlot, other: OpenSlot | None, first: int) -> None:
    """Fit a slot that is not active to what is left of that which it was fitted to."""
    store = task.store
    fit = store.slots.fit(slot.record.name)
    data = math.inf if fit is None else fit.data
    if never_fitted(slot) or first > data:
        return
    result = _refitted(task, slot, Snapshot(store, only=store.examples.at(data)), other)
    change = Change(result.model, result.verdict.threshold, result.loss)
    task.rewrite(changed_record(slot, change))
    store.slots.set_fit(slot.record.name, None if fit is None else result.record(fit.data))


def _refitted(task: Task, slot: OpenSlot, snapshot: Snapshot, other: OpenSlot | None) -> Refit:
    """A slot's model, fitted to a snapshot."""
    space = Space.of_slot(task.store, slot, other)
    return refit(snapshot, space, task.positive(slot.model.head))
