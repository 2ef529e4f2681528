"""Forgetting that is exact: afterwards a device is as one that never saw the examples.

What an example leaves behind is more than its rows. The model that answers was fitted to it, so it
is fitted again. So was the one that is kept to go back to, and, where that one is what answered
before the last replacement, what it said of the other examples: the old logits, which stand in
where there is no label. So the earlier model is fitted again, too, to what it knew when it was
left, and says again what it said. Old logits of a backbone that is gone cannot be said again: where
its model had seen the example they go, and with them what it knew of examples without a label.
A prompt that was mixed by the label of one of them, or compiled of its text, goes, too: texts are
read without it again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fala.model.heads import Head
from fala.personal.fitting import Fitted, fit_recalled
from fala.personal.memory import Memory, Target, recall, taught_by
from fala.slots.bundles import model_digest, slot_record
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task
from fala.store.records import Replacement

#: Gives the label, by head, whose F1 thresholds are for.
Positive = Callable[[Head], int]


@dataclass(frozen=True, eq=False)
class _Slots:
    """The two slots, by age.

    Attributes:
        all: Those that can be opened, the older first.
        newer: The one that the last replacement installed; its old logits are the other's. None
            where that is not known.
        older: The other one.
        replacement: When, and what was known then.
    """

    all: tuple[OpenSlot, ...]
    newer: OpenSlot | None
    older: OpenSlot | None
    replacement: Replacement


def forget(installed: Task, ids: Iterable[int], positive: Positive) -> int:
    """Delete examples, and all that is left of them but in the model that answers.

    In ``Installed.changing``: what answers is fitted again in the same transaction.

    Returns:
        How many there were.
    """
    store = installed.store
    gone = {row.id for row in store.examples.all()} & set(ids)
    if not gone:
        return 0
    store.examples.forget(gone)
    installed.drop_unusable()
    _unmix(installed, gone)
    slots = _by_age(installed)
    for slot in slots.all:
        _forget_teacher(installed, slots, slot, gone, positive)
    slots = _by_age(installed)  # as they are by now
    active = installed.now.record.name
    if slots.newer is not None and slots.newer.record.name != active:
        _refit(installed, slots.newer, Memory(store), slots.older, positive)
    if slots.newer is None and slots.older is not None and slots.older.record.name != active:
        _refit(installed, slots.older, Memory(store), None, positive)
    installed.prune()
    return len(gone)


def _unmix(installed: Task, gone: set[int]) -> None:
    """Let no slot read texts with a prompt that was made of what is gone.

    Its model is fitted again, to embeddings without a prompt, as far as those were ever made.
    """
    store = installed.store
    for slot in (installed.now, installed.earlier()):
        if slot is None or not slot.record.prompt:
            continue
        if not store.slots.prompt_is_of(slot.record.backbone, gone):
            continue
        plain = slot.plain()
        store.slots.set_tried_prompts(None, None)
        # A loss, whatever it is, says that the slot was fitted: it is fitted again.
        change = Change(slot.model.head.vendor_model(), loss=slot.record.loss or 0.0)
        if slot.record.name == installed.now.record.name:
            installed.keep(plain, change)
            continue
        store.slots.put(
            slot_record(
                slot.record.name, slot.bundle, change.model, slot.record.teacher,
                slot.record.teacher_vendor, loss=change.loss,
            )
        )  # fmt: skip
        store.slots.set_fit(slot.record.name, None)


def _by_age(installed: Task) -> _Slots:
    slots = {slot.record.name: slot for slot in (installed.now, installed.earlier()) if slot}
    known = installed.store.slots.replacements()
    names = sorted(slots, key=lambda name: known[name].generation if name in known else -1)
    newest = names[-1]
    if newest not in known:  # a version that did not tell; if one slot was taught, the other did it
        taught = [name for name in names if slots[name].record.teacher is not None]
        if len(taught) != 1:
            others = [name for name in names if name != installed.now.record.name]
            older = slots[others[0]] if others else None
            return _Slots(tuple(slots.values()), None, older, Replacement())
        newest = taught[0]
    older = next((slots[name] for name in names if name != newest), None)
    ordered = tuple(slot for slot in (older, slots[newest]) if slot is not None)
    return _Slots(ordered, slots[newest], older, known.get(newest, Replacement()))


def _forget_teacher(
    installed: Task,
    slots: _Slots,
    slot: OpenSlot,
    gone: set[int],
    positive: Positive,
) -> None:
    """Let the old logits of a slot be those of a model that never saw what is gone."""
    record = slot.record
    if slot is slots.newer and slots.older is not None:
        seen = min(gone) <= slots.replacement.last or slots.replacement.rolled_back
        if seen:
            _teach(installed, slots.older.record.name, slots, positive)
        return
    made = installed.store.slots.replacements().get(record.name, Replacement())
    if record.teacher is not None and min(gone) <= made.last:
        installed.rewrite(dataclasses.replace(record, teacher=None, teacher_vendor=None))


def _teach(installed: Task, older: str, slots: _Slots, positive: Positive) -> None:
    """Fit the older model to what it knew at the replacement, and let it say its logits again."""
    store, newer = installed.store, slots.newer
    slot = installed.slot(older)
    if newer is None or _untouched(slot):
        return
    then = slots.replacement
    rows = [
        row if (row.labelled or 0.0) <= then.time else dataclasses.replace(row, label=None)
        for row in store.examples.all()
        if row.id <= then.last
    ]
    memory = Memory(store, only=rows)
    fitted = _fitted(installed, slot, memory, None, positive)
    model = slot.model.head.vendor_model() if fitted is None else fitted.model
    teachers: tuple[str | None, str | None] = None, None
    if newer.record.teacher is not None and not model.is_vendor:
        spoken = taught_by(memory, slot.changed(slot.generation, slot.record, model))
        said_by = (model, model.head.vendor_model())
        digests = [model_digest(slot.bundle, one, slot.record.backbone) for one in said_by]
        store.logits.forget(newer.record.teacher)
        for digest, logits in zip(digests, (spoken.logits, spoken.vendor), strict=True):
            store.logits.add(digest, logits)
        teachers = digests[0], digests[1]
    teacher, vendor = teachers
    record = dataclasses.replace(newer.record, teacher=teacher, teacher_vendor=vendor)
    installed.rewrite(record)
    if installed.now.record.name != older:  # what answers is fitted to all that is known
        _write(installed, slot, fitted)


def _refit(
    installed: Task,
    slot: OpenSlot,
    memory: Memory,
    earlier: OpenSlot | None,
    positive: Positive,
) -> None:
    """Fit a slot that does not answer to all that is known."""
    if not _untouched(slot):
        _write(installed, slot, _fitted(installed, slot, memory, earlier, positive))


def _fitted(
    installed: Task,
    slot: OpenSlot,
    memory: Memory,
    earlier: OpenSlot | None,
    positive: Positive,
) -> Fitted | None:
    """A slot's fit to what a memory holds; None where that says nothing."""
    target = Target.of_slot(installed.store, slot, earlier)
    recalled = recall(memory, target)
    if not recalled.training.used.any():
        return None
    return fit_recalled(target, recalled, positive(slot.model.head))


def _write(installed: Task, slot: OpenSlot, fitted: Fitted | None) -> None:
    model = slot.model.head.vendor_model() if fitted is None else fitted.model
    record = slot.record
    threshold = 0.0 if fitted is None else fitted.threshold
    loss = None if fitted is None else fitted.loss
    written = slot_record(
        record.name, slot.bundle, model, record.teacher, record.teacher_vendor,
        threshold=threshold, loss=loss, backbone=record.backbone, prompt=record.prompt,
    )  # fmt: skip
    installed.rewrite(written)
    installed.store.slots.set_fit(record.name, None)  # what was added to it is not known any more


def _untouched(slot: OpenSlot) -> bool:
    """Whether nothing was ever fitted in a slot: a fit leaves its loss, or what is personal."""
    return (
        slot.model.is_vendor
        and slot.record.loss is None
        and math.isclose(slot.record.threshold, 0.0)
    )
