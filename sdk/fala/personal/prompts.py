"""A prompt of the user's own texts: compiled by one forward pass, and taken where it is better.

A release that was trained with hard prompts (PerPLM, 2023) reads a text behind other texts of its
writer. The user's own, the newest first, are compiled to keys and values. A prompt changes every
embedding, so the personal model is fitted anew, and compared with the active one on labels of other
texts. Where one of its texts is forgotten the prompt goes. Only this module makes and drops a
prompt: all others take it as a part of the slot's backbone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fala.backbones import OnnxEncoder
from fala.backbones.backbone import plain_of
from fala.backbones.onnx_encoder import Context
from fala.bundle.prompts import compiled_bytes, hard_prompt_length
from fala.errors import BundleError, DataError, DeviceChangedError
from fala.examples import CLASSIFICATION, segments
from fala.model.heads import Vectors
from fala.personal.compare import compare
from fala.personal.encode import forward
from fala.personal.gather import Rows, Snapshot, Space, gather, old_logits
from fala.personal.refit import Refit, refit, until_committed
from fala.personal.run import Run
from fala.report import Comparison, PromptReport
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
        model: The model with the prompt; None where it was not taken.
    """

    report: PromptReport
    model: Refit | None = None


class _NotTakenError(Exception):
    """No prompt is taken; says why."""


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
        context: What is compiled.
        chosen: The examples whose texts are in it. They judge nothing: each would be read behind
            itself.
        judging: Other labelled examples, which judge it, the newest first.
        labelled: How many labelled examples were encoded.
    """

    context: Context
    chosen: Mapping[int, str]
    judging: Mapping[int, str]
    labelled: int


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
                rows = gather(snapshot, Space.of_slot(task.store, active, task.previous))
            encoder = plain_of(active.active_model.backbone.loaded)
            if active.model.head.task != CLASSIFICATION or not isinstance(encoder, OnnxEncoder):
                raise _NotTakenError("prompts of texts are for a transformer's texts of one user")
            plan = self._plan(encoder, rows, length)
            self._check_tried(active, plan.labelled)
            with self._run.stage("forward"):
                texts = [*plan.chosen.values(), *plan.judging.values()][: max(0, self._left - 1)]
                why = f"{self._left} forward passes are left of the budget, 1 of them to compile"
                self._check_judges(rows, plan, texts, why)
                self.passes += 1
                prompt = compiled_bytes(encoder.compile_context(plan.context))
                backbone = active.with_prompt(prompt).active_model.backbone
                encoded = forward(texts, backbone.encode, self._run)
                self.passes += len(encoded)
            if self._run.cancelled:
                raise _NotTakenError("cancelled")
            self._check_judges(rows, plan, encoded, "the time is over")
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

    def _plan(self, encoder: OnnxEncoder, rows: Rows, length: int) -> _Plan:
        """Which texts are compiled, the newest, and which judge."""
        pairs = zip(rows.ids, rows.examples, rows.missing, strict=True)
        encoded = {row: str(one) for row, one, missing in pairs if not missing}
        newest = sorted(encoded, reverse=True)
        single = [row for row in newest if len(segments(encoded[row])) == 1]
        single = single[:length]  # of each a token at least
        context = encoder.context([encoded[row] for row in single], length)
        if not context.ids:
            raise _NotTakenError("there is no text for a prompt, or it has no room for one")
        chosen = {single[position]: encoded[single[position]] for position in context.texts}
        with_label = set(rows.labelled()) & set(encoded)
        judging = {row: encoded[row] for row in newest if row in with_label and row not in chosen}
        plan = _Plan(context, chosen, judging, len(with_label))
        self._check_judges(
            rows, plan, judging.values(),
            f"{len(judging)} labelled examples were encoded that are not in the prompt",
        )  # fmt: skip
        return plan

    def _check_judges(self, rows: Rows, plan: _Plan, texts: Collection[str], why: str) -> None:
        """Check that the labels of some texts are enough to judge by."""
        texts = set(texts)
        judges = [row for row, text in plan.judging.items() if text in texts]
        if not can_judge(rows.shares(judges), rows.space.head.link):
            raise _NotTakenError(
                f"{why}; {MIN_LABELLED} labels of texts that are not in the prompt, "
                f"{MIN_OF_A_LABEL} of each of two labels, judge it"
            )

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
                if not {row.id for row in snapshot.examples()} >= plan.chosen.keys():
                    raise _NotTakenError("an example of the prompt was forgotten meanwhile")
                snapshot.add(slot.record.backbone, encoded)
                space = Space.of_slot(task.store, active, task.previous)
                space = replace(space, backbone=slot.record.backbone, bridges=[])
            # Old logits as the active model has them: all is as it is, but for the prompt.
            model = refit(snapshot, space, task.positive(space.head), run=self._run)
            with self._run.stage("compare"):
                compared = compare(task, active, model, plan.judging)
            better = compared.to_old is not None and compared.to_old.better
            report = self._report(plan, compared, taken=better)
            if better:
                with self._run.stage("commit"):
                    model = self._commit(active, slot, model, encoded, plan)
            with task.store.transaction():
                task.store.slots.set_tried_prompts(active.bundle.digest, plan.labelled)
            return Prompted(report, model if better else None)

        with installed.work:
            return until_committed([task], attempt, [began])

    def _commit(
        self,
        active: OpenSlot,
        slot: OpenSlot,
        model: Refit,
        encoded: dict[str, Vectors],
        plan: _Plan,
    ) -> Refit:
        """Install the model with the prompt; returns what was fitted last.

        Raises:
            DeviceChangedError: Another model is active by now.
        """
        installed, task = self._installed, self._installed.own
        # Before it is active: whoever forgets an example finds what the prompt was made of.
        with task.store.transaction():
            task.store.slots.note_prompt(slot.record.backbone, set(plan.chosen))
        if installed.trials.running() is not None:
            # On trial the prompt is a part of what is tried: the way back stays what it was.
            task.commit(slot, model.change(encoded))
            return model
        # The active model's logits stand in where there is no label, as in a replacement.
        snapshot, space = model.rows.snapshot, model.rows.space
        old = None if active.model.is_vendor else old_logits(snapshot, active)
        space = replace(space, differences={} if old is None else old.differences())
        model = refit(snapshot, space, task.positive(space.head))
        moves = [
            Move(
                task, active, active.bundle, model.change(encoded),
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
