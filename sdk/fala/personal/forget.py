"""Forget exactly: afterwards a device is as if it never had the examples, or their labels.

Everything that depends on an example, or a label, changes with it. The active model is fitted
again. The previous slot's model is fitted again to the rest of its own training examples. Its old
logits, the evidence of examples without a label, are written again if it was active before the last
replacement, by the model as it was then. Old logits of a backbone that is gone cannot be computed
again: they are deleted if their model was fitted to the example, and that evidence with them. A
prompt compiled from a forgotten text is dropped. Examples, labels and replacements are ordered by
the task's count of changes, never by a clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable

from fala.personal.gather import Snapshot, Space, old_logits
from fala.personal.prompts import drop_prompts
from fala.personal.refit import refit
from fala.slots.bundles import Change
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task, changed_record, never_fitted, prune
from fala.store.records import Replacement


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
    _drop_damaged(task)
    drop_prompts(task, deleted)
    _fit_others(task, first)
    return len(deleted)


def unlabel(task: Task, ids: Collection[int]) -> int:
    """Delete the labels of examples, and everything that depends on them except the active model.

    In ``Task.changing``; see ``forget``.

    Returns:
        The number of deleted labels.
    """
    examples = task.store.examples
    first = examples.first_labelled(ids)
    if first is None:
        return 0
    deleted = examples.unlabel(ids)
    _drop_damaged(task)
    _fit_others(task, first)
    return deleted


def _drop_damaged(task: Task) -> None:
    """Delete a previous slot that is damaged."""
    if task.previous is None:
        task.store.slots.activate(task.active.record.name, None)


def _fit_others(task: Task, first: int) -> None:
    """Fit the idle slot again, and write the old logits again.

    Args:
        task: The task.
        first: The count of data changes when the first of the deleted examples or labels was added.
    """
    slots, replacement = _by_age(task)
    for slot in slots if replacement is None else slots[:1]:
        _drop_teacher(task, slot, first)
    if replacement is not None and first <= replacement.data:
        (older, newer), _ = _by_age(task)  # their rows may have changed
        _write_teacher(task, older, newer, replacement)
    slots, replacement = _by_age(task)
    earlier = None
    for slot in slots:
        if slot.record.name != task.active.record.name:
            _refit(task, slot, earlier, first)
        earlier = None if replacement is None else slot
    prune(task.folder)


def _by_age(task: Task) -> tuple[list[OpenSlot], Replacement | None]:
    """The slots that can be opened, and the replacement of the first by the second.

    None if there is one slot, or it is unknown which of them is newer.
    """
    slots = {slot.record.name: slot for slot in (task.active, task.previous) if slot}
    installed = task.store.slots.replacements()
    names = sorted(slots, key=lambda name: installed[name].generation if name in installed else -1)
    known = names[-1] in installed
    if not known:  # of an earlier version: a slot with a teacher is the newer one
        with_teacher = {name for name in names if slots[name].record.teachers is not None}
        names.sort(key=lambda name: name in with_teacher)
        known = len(with_teacher) == 1
    ordered = [slots[name] for name in names]
    if not known or len(ordered) < 2:
        return ordered, None
    return ordered, installed.get(names[-1], Replacement())


def _drop_teacher(task: Task, slot: OpenSlot, first: int) -> None:
    """Delete a slot's references to old logits if their model had what is forgotten.

    Args:
        task: The task.
        slot: One of its slots.
        first: See ``_fit_others``.
    """
    installed = task.store.slots.replacements().get(slot.record.name, Replacement())
    if slot.record.teachers is not None and first <= installed.data:
        task.rewrite(dataclasses.replace(slot.record, teachers=None))


def _write_teacher(task: Task, older: OpenSlot, newer: OpenSlot, replacement: Replacement) -> None:
    """Write the old logits of the older model as it was at the replacement."""
    store = task.store
    if never_fitted(older):
        return
    fitted_to = replacement.data if replacement.fit_data is None else replacement.fit_data
    snapshot = Snapshot(store, only=store.examples.at(fitted_to))
    model = refit(snapshot, Space.of_slot(store, older, None)).model
    teachers = None
    same_labels = older.model.head.labels == newer.model.head.labels
    if same_labels and replacement.fit_data is not None and not model.is_vendor:
        snapshot = Snapshot(store, only=store.examples.at(replacement.data))
        before = older.changed(older.generation, changed_record(older, Change(model)), model)
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
