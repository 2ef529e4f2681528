"""A prompt of the user's own texts: compiled by one forward pass, and taken where it is better.

A release that was trained with hard prompts (PerPLM, 2023) reads a text behind other texts of its
writer. The user's own, the newest first, are compiled to keys and values. A prompt changes every
embedding, so the personal model is fitted anew, and compared with the active one on labels of other
texts. Where one of its texts is forgotten the prompt goes. Only this module makes and drops a
prompt: all others take it as a part of the slot's backbone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.backbones import OnnxEncoder
from fala.backbones.backbone import plain_of
from fala.backbones.onnx_encoder import Context
from fala.bundle.prompts import compiled_bytes, hard_prompt_length
from fala.errors import BundleError, DataError, DeviceChangedError, shown
from fala.examples import CLASSIFICATION, segments, unique_texts
from fala.model.heads import Vectors
from fala.personal.compare import compare
from fala.personal.encode import forward
from fala.personal.gather import Rows, Snapshot, Space, old_logits
from fala.personal.refit import Judged, Refit, refit, until_committed
from fala.personal.run import Run
from fala.report import Comparison, PromptReport
from fala.selection.next_texts import most_undecided
from fala.slots.installed import Installed, Move
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task, changed_record
from fala.solver.judge import MIN_LABELLED, MIN_OF_A_LABEL, can_judge
from fala.store.texts import NOT_KEPT
from fala.text.lexicon import CachedRows

_log = logging.getLogger("fala.prompts")

#: Whether a prompt is tried: where the release was trained with such, or never.
Prompts: TypeAlias = Literal["off", "auto"]
#: New labels before the next attempt, as a share of those at the last one: whoever tries every
#: night takes, sooner or later, what is better by chance.
GROWTH = 0.25

_OTHER_MODEL = "another release or prompt was installed meanwhile"


@dataclass(frozen=True, eq=False)
class Prompted:
    """What an attempt with a prompt did.

    Attributes:
        report: In words and figures.
        judged: The model with the prompt; None where it was not taken.
    """

    report: PromptReport
    judged: Judged | None = None


class _NotTakenError(Exception):
    """No prompt is taken; says why."""


def prompts_of(value: Prompts, adapter: str | None = None) -> bool:
    """Whether a prompt is to be tried.

    Raises:
        DataError: The value is none of the words, or an adapter's task is asked for.
    """
    if not isinstance(value, str) or value not in ("off", "auto"):
        raise DataError(f'prompts is "off" or "auto", not {shown(value)}')
    if value == "auto" and adapter is not None:
        raise DataError(
            f'prompts="auto" is for the device\'s own task, and not for the adapter '
            f"{shown(adapter)}, whose texts are read without one; leave one of them out"
        )
    return value == "auto"


def try_prompt(installed: Installed, run: Run, left: int) -> Prompted:
    """Compile the user's texts to a prompt, and take it where it is better.

    Args:
        installed: The device.
        run: Has the deadline, and times what is done.
        left: Forward passes, at most.
    """
    attempt = _Attempt(installed, run, max(0, left))
    try:
        prompted = attempt.run()
    except (_NotTakenError, DeviceChangedError) as error:
        reason = _OTHER_MODEL if isinstance(error, DeviceChangedError) else str(error)
        prompted = Prompted(PromptReport(False, reason, forward_passes=attempt.passes))
    except (BundleError, DataError, np.linalg.LinAlgError, ArithmeticError) as error:
        reason = f"the release's prompts cannot be used: {error}"
        _log.warning(reason)
        prompted = Prompted(PromptReport(False, reason, forward_passes=attempt.passes))
    _log.info("prompts: %s", prompted.report.reason)
    return prompted


@dataclass(frozen=True, eq=False)
class _Plan:
    """Examples that were encoded without a prompt, by their use.

    Attributes:
        rows: All examples.
        chosen: Rows of the texts in the prompt. They judge nothing: each would be read behind
            itself.
        judging: Rows of other labelled texts, which judge it, the most important first.
    """

    rows: Rows
    chosen: Sequence[int]
    judging: Sequence[int]

    @property
    def labelled(self) -> int:
        """How many labelled examples were encoded."""
        real = np.array([not missing for missing in self.rows.missing], dtype=bool)
        return int((self.rows.training.labelled & real).sum())

    def ids(self, positions: Sequence[int]) -> set[int]:
        """The ids of some rows."""
        return {self.rows.ids[position] for position in positions}

    def texts(self) -> list[str]:
        """The texts to read with the prompt, the most important first."""
        return self._texts([*self._fewest(), *self.chosen, *self.judging])

    def least(self) -> int:
        """How many of those are the fewest to judge by."""
        return len(self._texts([*self._fewest(), *self.chosen]))

    def _texts(self, positions: Sequence[int]) -> list[str]:
        return unique_texts(self.rows.examples[position] for position in positions)

    def _fewest(self) -> list[int]:
        """The first of those that judge that are enough for it."""
        classes = _classes(self.rows.training.labels)
        names, counts = np.unique(classes[list(self.judging)], return_counts=True)
        usual = names[np.argsort(-counts, kind="stable")[:2]]
        first = [
            position
            for name in usual
            for position in [p for p in self.judging if classes[p] == name][:MIN_OF_A_LABEL]
        ]
        return list(dict.fromkeys([*first, *self.judging]))[:MIN_LABELLED]


class _Attempt:
    """An attempt with a prompt; see ``try_prompt``."""

    def __init__(self, installed: Installed, run: Run, left: int) -> None:
        self._installed, self._run, self._left = installed, run, left
        self._ngrams = CachedRows(installed.store.texts.ngrams)
        self.passes = 0

    def run(self) -> Prompted:
        task = self._installed.own
        active = task.active
        with task.expecting(active):
            length = self._check_usable(task, active)
            with self._run.stage("read"):
                snapshot = Snapshot(task.store, self._ngrams)
                space = Space.of_slot(task.store, active, task.previous)
            result = refit(snapshot, space, task.positive(space.head), run=self._run)
            encoder, context, plan = self._plan(active, result.rows, length)
            self._check_tried(active, plan.labelled)
            plan = self._affordable(plan, result)
            with self._run.stage("forward"):
                self.passes += 1
                prompt = compiled_bytes(encoder.compile_context(context))
                encoded = self._encode(plan, active.with_prompt(prompt))
        return self._take(active, prompt, plan, encoded)

    def _check_usable(self, task: Task, active: OpenSlot) -> int:
        """Whether a prompt can be made; returns how many tokens it may have."""
        if active.record.prompt is not None:
            raise _NotTakenError("a prompt is in use already")
        length = hard_prompt_length(active.bundle.manifest)
        if not length:
            raise _NotTakenError(
                f"{active.bundle.manifest.name} was not trained with prompts of texts"
            )
        if not task.store.texts.kept:
            raise _NotTakenError(NOT_KEPT)
        return length

    def _plan(
        self, active: OpenSlot, rows: Rows, length: int
    ) -> tuple[OnnxEncoder, Context, _Plan]:
        """Which texts are compiled, and which judge."""
        encoder = plain_of(active.active_model.backbone.loaded)
        if active.model.head.task != CLASSIFICATION or not isinstance(encoder, OnnxEncoder):
            raise _NotTakenError("prompts of texts are for a transformer's texts of one user")
        newest = _newest_texts(rows)[:length]  # of each a token at least
        context = encoder.context([str(rows.examples[p]) for p in newest], length)
        if not context.ids:
            raise _NotTakenError("there is no text for a prompt, or it has no room for one")
        chosen = [newest[position] for position in context.texts]
        labelled = np.flatnonzero(rows.training.labelled).tolist()
        judging = [p for p in labelled if not rows.missing[p] and p not in set(chosen)]
        judging.sort(key=lambda p: -rows.ids[p])
        if not can_judge(rows.training.labels[judging]):
            raise _NotTakenError(
                f"{len(judging)} labelled examples were encoded that are not in the prompt; "
                f"{MIN_LABELLED} of them, {MIN_OF_A_LABEL} of each of two labels, judge it"
            )
        return encoder, context, _Plan(rows, chosen, judging)

    def _affordable(self, plan: _Plan, result: Refit) -> _Plan:
        """The plan; where the budget is not enough for all texts, the most undecided are first."""
        if 1 + plan.least() > self._left:
            raise _NotTakenError(
                f"{self._left} forward passes are left of the budget; 1 compiles the prompt, and "
                f"{plan.least()} are the fewest to judge it by"
            )
        if 1 + len(plan.texts()) <= self._left or result.judged is None:
            return plan
        judging = set(plan.judging)
        undecided = most_undecided(result.judged.left_out).tolist()
        return replace(plan, judging=[p for p in undecided if p in judging])

    def _check_tried(self, active: OpenSlot, labelled: int) -> None:
        """Whether there are enough new labels since a prompt was tried."""
        tried = self._installed.store.slots.tried_prompts()
        if tried is None or tried[0] != active.bundle.digest:
            return
        if labelled < (1 + GROWTH) * tried[1]:
            raise _NotTakenError(
                f"a prompt was tried on {tried[1]} labelled examples, and there are {labelled}; "
                f"it is tried again at {int(np.ceil((1 + GROWTH) * tried[1]))}"
            )

    def _encode(self, plan: _Plan, slot: OpenSlot) -> dict[str, Vectors]:
        texts = plan.texts()[: self._left - self.passes]
        encoded = forward(texts, slot.active_model.backbone.encode, self._run)
        self.passes += len(encoded)
        if self._run.cancelled:
            raise _NotTakenError("cancelled")
        if len(encoded) < plan.least():
            raise _NotTakenError("the time is over")
        return encoded

    def _take(
        self, began: OpenSlot, prompt: bytes, plan: _Plan, encoded: dict[str, Vectors]
    ) -> Prompted:
        """Fit and judge, with the labels of now; commit the model where it is better.

        Where the prompt is not proven better its embeddings are dropped: nothing of it is kept.
        """
        installed, task = self._installed, self._installed.own

        def attempt(slots: Sequence[OpenSlot]) -> Prompted:
            (active,) = slots
            if active.record.prompt is not None:
                raise _NotTakenError(_OTHER_MODEL)
            slot = active.with_prompt(prompt)
            with self._run.stage("read"):
                snapshot = Snapshot(task.store, self._ngrams)
                if not {row.id for row in snapshot.examples()} >= plan.ids(plan.chosen):
                    raise _NotTakenError("an example of the prompt was forgotten meanwhile")
                snapshot.add(slot.record.backbone, encoded)
                space = Space.of_slot(task.store, active, task.previous)
                space = replace(space, backbone=slot.record.backbone, bridges=[])
            # Old logits as the active model has them: all is as it is, but for the prompt.
            result = refit(snapshot, space, task.positive(space.head), run=self._run)
            if result.judged is None:
                raise _NotTakenError("there is no label left to judge the prompt by")
            with self._run.stage("compare"):
                rows, judging = result.rows, plan.ids(plan.judging)
                pairs = zip(rows.ids, rows.missing, strict=True)
                judges = {row for row, missing in pairs if row in judging and not missing}
                compared = compare(task, active, result, result.judged, judges)
            better = compared.to_old is not None and compared.to_old.better
            report = self._report(plan, compared, taken=better)
            if not better:
                _note_tried(task, active, plan.labelled)
                return Prompted(report)
            with self._run.stage("commit"):
                model = self._commit(active, slot, result, encoded, plan)
            _note_tried(task, active, plan.labelled)
            return Prompted(report, model)

        with installed.work:
            return until_committed([task], attempt, [began])

    def _commit(
        self,
        active: OpenSlot,
        slot: OpenSlot,
        result: Refit,
        encoded: dict[str, Vectors],
        plan: _Plan,
    ) -> Judged | None:
        """Install the model with the prompt; returns what was fitted last.

        Raises:
            DeviceChangedError: Another model is active by now.
        """
        installed, task, model = self._installed, self._installed.own, result.judged
        if model is None:
            return None
        # Before it is active: whoever forgets an example finds what the prompt was made of.
        with task.store.transaction():
            task.store.slots.note_prompt(slot.record.backbone, plan.ids(plan.chosen))
        snapshot, space = result.snapshot, result.space
        if installed.trials.running() is not None:
            # On trial the prompt is a part of what is tried: the way back stays what it was.
            task.commit(slot, model.change(snapshot.data, encoded))
            return model
        # The active model's logits stand in where there is no label, as in a replacement.
        old = None if active.model.is_vendor else old_logits(snapshot, active)
        space = replace(space, differences={} if old is None else old.differences())
        positive = task.positive(space.head)
        model = refit(snapshot, space, positive).judged or model
        moves = [
            Move(
                task, active, active.bundle, model.change(snapshot.data, encoded),
                None if old is None else (old.logits, old.vendor), snapshot.data, slot.record,
            )
        ]  # fmt: skip
        moves += [_unchanged(further) for further in installed.further()]
        installed.install(moves, slot.active_model.backbone)
        return model

    def _report(self, plan: _Plan, compared: Comparison, *, taken: bool) -> PromptReport:
        difference = compared.to_old
        if difference is None:
            reason = f"{compared.labelled} labels are too few to judge the prompt by"
        else:
            verdict = "better" if taken else "not proven better"
            reason = (
                f"with the prompt the personal model is {verdict}: cross-entropy of "
                f"{compared.labelled} labels, each left out, {compared.carried:.3f} against "
                f"{compared.old:.3f}, a difference of {difference.mean:.3f} ± "
                f"{difference.margin:.3f}"
            )
        return PromptReport(
            taken, reason, self.passes, compared.labelled, compared.old, compared.carried,
            difference, len(plan.chosen),
        )  # fmt: skip


def drop_prompts(task: Task, gone: set[int]) -> None:
    """Let no slot read texts with a prompt of forgotten examples. In ``Task.changing``.

    The vendor's model stands in, to be fitted again to embeddings that were made without a prompt.

    Args:
        task: The task.
        gone: The examples' ids.
    """
    for slot in (task.active, task.previous):
        if slot is None or slot.record.prompt is None:
            continue
        if not task.store.slots.prompt_is_of(slot.record.backbone, gone):
            continue
        plain = slot.with_prompt(None)
        task.store.slots.set_tried_prompts(None, None)
        # A loss, whatever it is, marks a slot that was fitted: it is fitted again.
        change = Change(slot.model.head.vendor_model(), loss=slot.record.loss or 0.0)
        if slot.record.name == task.active.record.name:
            task.commit(plain, change)
        else:
            task.rewrite(changed_record(plain, change))
            task.store.slots.set_fit(slot.record.name, None)


def _note_tried(task: Task, active: OpenSlot, labelled: int) -> None:
    with task.store.transaction():
        task.store.slots.set_tried_prompts(active.bundle.digest, labelled)


def _unchanged(task: Task) -> Move:
    """A further task's part: the same model in its other slot, so that all go back together."""
    active, snapshot = task.active, Snapshot(task.store)
    logits = None
    if not active.model.is_vendor:
        old = old_logits(snapshot, active)
        logits = old.logits, old.vendor
    fit = task.store.slots.fit(active.record.name)
    change = Change(active.model, active.record.threshold, active.record.loss, {}, fit)
    return Move(task, active, active.bundle, change, logits, snapshot.data)


def _newest_texts(rows: Rows) -> list[int]:
    """Rows of the single texts that were encoded without a prompt, the newest first."""
    single = (
        position
        for position, example in enumerate(rows.examples)
        if isinstance(example, str) and len(segments(example)) == 1 and not rows.missing[position]
    )
    return sorted(single, key=lambda position: -rows.ids[position])


def _classes(labels: NDArray[np.float64]) -> NDArray[np.int64]:
    """The class of every example by its shares (n, C); without a label it means nothing."""
    if labels.shape[1] == 1:
        return (labels[:, 0] > 0.5).astype(np.int64)
    return np.asarray(labels.argmax(axis=1), np.int64)
