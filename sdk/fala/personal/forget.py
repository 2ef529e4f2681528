"""Forget exactly: afterwards a device is as if it had never had the examples, or their labels.

Everything that depends on an example or a label changes with it. The active model is fitted again.
The previous slot's model is fitted again to the rest of its own training examples. If that slot was
active before the last replacement, its old logits, which are the evidence of examples without a
label, are written again by the model as it was then. Old logits of a backbone that is gone cannot
be computed again; if their model was fitted to the example, they are deleted, and so is that
evidence. Examples, labels and replacements are ordered by the task's count of changes, never by a
clock.

All of this is one transaction, so if the process is killed, either everything is deleted or
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from fala.base.threads import one_blas_thread
from fala.personal.encode import encode_free
from fala.personal.gather import Reading, Space, old_logits
from fala.personal.refit import Refit, refit
from fala.slots.erasing import drop_copies
from fala.slots.folder import Prepared, Snapshot, Task
from fala.slots.slot import Slot
from fala.slots.switching import opened
from fala.store.examples import History
from fala.store.slots import Replacement


def forget(task: Task, ids: Collection[int]) -> int:
    """Delete examples of a task, and everything that depends on them.

    Returns:
        The number of deleted examples.
    """
    examples = task.store.examples
    with _deleting(task) as (snapshot, previous):
        history = examples.history()
        first = history.first_added(ids)
        if first is None:
            return 0
        count = examples.forget(ids)
        _fit_rest(snapshot, previous, first, history.without(ids))
    return count


def unlabel(task: Task, ids: Collection[int]) -> tuple[Snapshot, Refit] | None:
    """Delete the labels of examples, and everything that depends on them.

    Returns:
        The task afterwards, and its fit; None if none of the examples has a label.
    """
    examples = task.store.examples
    with _deleting(task) as (snapshot, previous):
        history = examples.history()
        first = history.first_labelled(ids)
        if first is None:
            return None
        examples.unlabel(ids)
        return _fit_rest(snapshot, previous, first, history.without(ids))


@contextmanager
def _deleting(task: Task) -> Iterator[tuple[Snapshot, Slot | None]]:
    """Hold a task before a deletion, and its previous slot, with the turn and in a transaction."""
    with task.store.turn():
        snapshot = opened(task)
        previous = task.previous(snapshot)
        with task.store.transaction():
            yield snapshot, previous


@one_blas_thread()
def _fit_rest(
    snapshot: Snapshot, previous: Slot | None, first: int, history: History
) -> tuple[Snapshot, Refit]:
    """Fit the slots to what is left, and write the old logits again. Call it in a transaction.

    Args:
        snapshot: The snapshot of the task before the deletion.
        previous: The task's previous slot; None if there is none, or it is damaged.
        first: The count of data changes when the first of the deleted examples or labels was added.
        history: When all other examples and labels arrived.

    Returns:
        The task afterwards, and its fit, which is the vendor's own model if nothing is left.
    """
    task, active = snapshot.task, snapshot.active
    store = task.store
    if previous is None:  # a damaged slot is deleted
        store.slots.activate(active.record.name, None)
    reading = Reading(snapshot)
    reading.history = history
    encode_free(snapshot, reading)
    slots = {slot.record.name: slot for slot in (active, previous) if slot is not None}
    installed = {name: slot.record.replacement for name, slot in slots.items()}
    names = sorted(slots, key=lambda name: each.generation if (each := installed[name]) else -1)
    # The replacement of the first slot by the second; None also if its record is damaged.
    replacement = installed[names[-1]] if len(names) > 1 else None
    for name in names if replacement is None else names[:1]:
        record, known = slots[name].record, installed[name]
        if record.teacher is not None and (known is None or first <= known.data):
            # The slot's old logits come from a model that had the deleted examples or labels.
            slots[name] = replace(slots[name], record=replace(record, teacher=None))
    fit_at = _fits(reading, slots[names[0]])
    if replacement is not None and first <= replacement.data:
        slots[names[1]] = _write_logits(
            reading, slots[names[0]], fit_at, slots[names[1]], replacement
        )
    if previous is not None:
        name = previous.record.name
        if replacement is not None and name == names[1]:
            fit_at = _fits(reading, slots[name], slots[names[0]])
        slots[name] = _refit(slots[name], fit_at, first)
        if slots[name] is not previous:
            store.slots.put(slots[name].record)
    active = slots[active.record.name]
    other = None if previous is None else slots[previous.record.name]
    result = refit(reading, Space.of_slot(store, active, other))
    fitted = task.commit(Prepared(snapshot, result.on(active)))
    store.prune_logits()
    drop_copies(task.folder.path)
    return fitted, result


def _fits(reading: Reading, slot: Slot, older: Slot | None = None) -> Callable[[float], Refit]:
    """Return a function that fits a slot to its examples as they were at a count of data changes.

    Args:
        reading: The examples.
        slot: The slot.
        older: The slot before it; None if there is none.
    """
    space = Space.of_slot(reading.store, slot, older)
    return cache(lambda data: refit(reading.at(data), space))


def _write_logits(
    reading: Reading,
    older: Slot,
    fit_at: Callable[[float], Refit],
    newer: Slot,
    replacement: Replacement,
) -> Slot:
    """Write the old logits of the older model as it was at the replacement.

    Returns:
        The newer slot, which refers to these logits.
    """
    store = reading.store
    if older.never_fitted:
        return newer
    teacher = None
    same_labels = older.model.head.names == newer.model.head.names
    if same_labels and replacement.fit_data is not None:
        fitted = older.fitted(fit_at(replacement.fit_data).model)
        inherited = old_logits(reading.at(replacement.data), fitted).passed_on(newer.model.head)
        if inherited:
            teacher = fitted.record.model
            store.logits.add(teacher, inherited)
    return replace(newer, record=replace(newer.record, teacher=teacher))


def _refit(slot: Slot, fit_at: Callable[[float], Refit], first: int) -> Slot:
    """Fit an idle slot again to the rest of its training examples."""
    fit = slot.record.fit
    data = math.inf if fit is None else fit.data
    if slot.never_fitted or first > data:
        return slot
    result = fit_at(data)
    record = None if fit is None else result.record(fit.data)
    return slot.fitted(result.model, result.loss, record)
