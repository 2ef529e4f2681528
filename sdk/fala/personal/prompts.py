"""A prompt of the user's own texts: compiled by one forward pass, and installed if it is better.

A release that was trained with hard prompts (PerPLM, 2023) reads a text behind other texts of its
writer. The user's own, the newest first, are compiled to keys and values. A prompt changes every
embedding, so the personal model is fitted anew, and compared with the active one on labels of other
texts. A prompt is dropped when one of its texts is forgotten. Only this module creates and drops
prompts: for all others they are a part of the slot's backbone.
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
from fala.errors import BundleError, DataError, DeviceChangedError, be, counted
from fala.examples import CLASSIFICATION, segments
from fala.model.heads import Vectors
from fala.personal.compare import compare
from fala.personal.encode import forward
from fala.personal.gather import Rows, Snapshot, Space, gather, old_logits
from fala.personal.refit import Refit, refit, until_committed
from fala.personal.run import Run
from fala.report import Comparison, PromptReport
from fala.slots.bundles import Change
from fala.slots.folder import Folder
from fala.slots.installing import Move, install_release
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task, changed_record, further_tasks
from fala.solver.judge import MIN_LABELLED, MIN_OF_A_LABEL, can_judge
from fala.store.texts import NOT_KEPT

_log = logging.getLogger("fala.prompts")

#: Whether a prompt is tried: never, or if the release was trained with prompts of texts.
Prompts: TypeAlias = Literal["off", "auto"]
#: New labels before the next attempt, as a share of those at the last one: with an attempt every
#: night, some prompt would sooner or later be better by chance.
GROWTH = 0.25

_MODEL_CHANGED = "another release or prompt was installed meanwhile"


@dataclass(frozen=True, eq=False)
class Prompted:
    """The result of an attempt with a prompt.

    Attributes:
        report: The report.
        model: The model with the prompt; None if it was not installed.
    """

    report: PromptReport
    model: Refit | None = None


class _NoPromptError(Exception):
    """No prompt is installed; the message is the reason."""


def try_prompt(folder: Folder, run: Run, limit: int) -> Prompted:
    """Compile the user's texts to a prompt, and install it if it is better.

    Args:
        folder: The device's folder.
        run: Has the deadline, and times the stages.
        limit: Forward passes, at most.
    """
    attempt = _Attempt(folder, run, max(0, limit))
    try:
        prompted = attempt.run()
    except (_NoPromptError, DeviceChangedError) as error:
        reason = _MODEL_CHANGED if isinstance(error, DeviceChangedError) else str(error)
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
        context: The tokens to compile.
        chosen: The examples whose texts are in it, which cannot judge it: each would be read
            behind itself.
        judging: Other labelled examples, which judge it, the newest first.
        labelled: How many labelled examples were encoded.
    """

    context: Context
    chosen: Mapping[int, str]
    judging: Mapping[int, str]
    labelled: int


class _Attempt:
    """An attempt with a prompt; see ``try_prompt``."""

    def __init__(self, folder: Folder, run: Run, limit: int) -> None:
        self._folder, self._run, self._limit = folder, run, limit
        self._task = Task(folder)
        self.passes = 0

    def run(self) -> Prompted:
        task = self._task
        active = task.active
        with task.expecting(active):
            length = self._check_usable(task, active)
            with self._run.stage("read"):
                snapshot = Snapshot(task.store, self._run)
                rows = gather(snapshot, Space.of_slot(task.store, active, task.previous))
            encoder = plain_of(active.active_model.backbone.loaded)
            if active.model.head.task != CLASSIFICATION or not isinstance(encoder, OnnxEncoder):
                raise _NoPromptError("prompts of texts are for a transformer's texts of one user")
            plan = self._plan(encoder, rows, length)
            self._check_tried(active, plan.labelled)
            with self._run.stage("forward"):
                texts = [*plan.chosen.values(), *plan.judging.values()][: max(0, self._limit - 1)]
                why = (
                    f"{counted(self._limit, 'forward pass')} {be(self._limit)} left of the "
                    "budget, 1 of them to compile"
                )
                self._check_judges(rows, plan, texts, why)
                self.passes += 1
                prompt = compiled_bytes(encoder.compile_context(plan.context))
                backbone = active.with_prompt(prompt).active_model.backbone
                encoded = forward(texts, backbone.encode, self._run)
                self.passes += len(encoded)
            if self._run.cancelled:
                raise _NoPromptError("cancelled")
            self._check_judges(rows, plan, encoded, "the time is over")
        return self._install_if_better(active, prompt, plan, encoded)

    def _check_usable(self, task: Task, active: OpenSlot) -> int:
        """Check that a prompt can be made; returns how many tokens it may have."""
        if active.record.prompt is not None:
            raise _NoPromptError("a prompt is in use already")
        length = hard_prompt_length(active.bundle.manifest)
        if not length:
            raise _NoPromptError(
                f"{active.bundle.manifest.name} was not trained with prompts of texts"
            )
        if not task.store.texts.kept:
            raise _NoPromptError(NOT_KEPT)
        return length

    def _plan(self, encoder: OnnxEncoder, rows: Rows, length: int) -> _Plan:
        """Choose the texts to compile, the newest, and those to judge by."""
        pairs = zip(rows.ids, rows.examples, rows.missing, strict=True)
        encoded = {row: str(example) for row, example, missing in pairs if not missing}
        newest = sorted(encoded, reverse=True)
        single = [row for row in newest if len(segments(encoded[row])) == 1]
        single = single[:length]  # each takes a token at least
        context = encoder.context([encoded[row] for row in single], length)
        if not context.ids:
            raise _NoPromptError("there is no text for a prompt, or it has no room for one")
        chosen = {single[position]: encoded[single[position]] for position in context.texts}
        labelled = set(rows.labelled()) & set(encoded)
        judging = {row: encoded[row] for row in newest if row in labelled and row not in chosen}
        plan = _Plan(context, chosen, judging, len(labelled))
        self._check_judges(
            rows, plan, judging.values(),
            f"the encoded texts outside of the prompt have {counted(len(judging), 'label')}",
        )  # fmt: skip
        return plan

    def _check_judges(self, rows: Rows, plan: _Plan, texts: Collection[str], reason: str) -> None:
        """Check that the labels of some texts are enough to judge by."""
        texts = set(texts)
        judges = [row for row, text in plan.judging.items() if text in texts]
        if not can_judge(rows.shares(judges), rows.space.head.link):
            raise _NoPromptError(
                f"{reason}; {MIN_LABELLED} labels of texts that are not in the prompt, "
                f"{MIN_OF_A_LABEL} of each of two labels, judge it"
            )

    def _check_tried(self, active: OpenSlot, labelled: int) -> None:
        """Check that there are enough new labels since a prompt was tried."""
        tried = self._folder.store.slots.tried_prompts()
        if tried is None or tried[0] != active.bundle.digest:
            return
        if labelled < (1 + GROWTH) * tried[1]:
            raise _NoPromptError(
                f"a prompt was tried on {tried[1]} labelled examples, and there are {labelled}; "
                f"it is tried again at {int(np.ceil((1 + GROWTH) * tried[1]))}"
            )

    def _install_if_better(
        self, initial: OpenSlot, prompt: bytes, plan: _Plan, encoded: dict[str, Vectors]
    ) -> Prompted:
        """Fit and judge, with the current labels; commit the model if it is better.

        Nothing is stored of a prompt that is not proven better.
        """
        task = self._task

        def attempt(slots: Sequence[OpenSlot]) -> Prompted:
            (active,) = slots
            if active.record.prompt is not None:
                raise _NoPromptError(_MODEL_CHANGED)
            slot = active.with_prompt(prompt)
            with self._run.stage("read"):
                snapshot = Snapshot(task.store, self._run)
                if not {row.id for row in snapshot.examples()} >= plan.chosen.keys():
                    raise _NoPromptError("an example of the prompt was forgotten meanwhile")
                snapshot.add(slot.record.backbone, encoded)
                space = Space.of_slot(task.store, active, task.previous)
                space = replace(space, backbone=slot.record.backbone, bridges=[])
            # With the active model's old logits: only the prompt differs.
            model = refit(snapshot, space)
            with self._run.stage("compare"):
                comparison = compare(task, active, model, plan.judging)
            better = comparison.to_old is not None and comparison.to_old.better
            report = self._report(plan, comparison, better=better)
            if better:
                model = self._commit(active, slot, model, encoded, plan)
            with task.store.transaction():
                task.store.slots.set_tried_prompts(active.bundle.digest, plan.labelled)
            return Prompted(report, model if better else None)

        with self._folder.work:
            return until_committed([task], attempt, [initial])

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
        task = self._task
        # Before the prompt is active, so that forgetting an example always finds it.
        with task.store.transaction():
            task.store.slots.note_prompt(slot.record.backbone, set(plan.chosen))
        if self._folder.trials.running() is not None:
            # On trial the prompt is a part of the trial: the previous slot stays.
            with self._run.stage("commit"):
                task.commit(slot, model.change(encoded))
            return model
        # The active model's logits replace missing labels, as in a replacement.
        snapshot, space = model.rows.snapshot, model.rows.space
        old = None if active.model.is_vendor else old_logits(snapshot, active)
        space = replace(space, differences={} if old is None else old.differences())
        model = refit(snapshot, space)
        moves = [
            Move(
                task, active, active.bundle, model.change(encoded),
                None if old is None else (old.logits, old.vendor), snapshot.data, slot.record,
            )
        ]  # fmt: skip
        moves += [_unchanged(further) for further in further_tasks(self._folder)]
        with self._run.stage("commit"):
            install_release(self._folder, moves, slot.active_model.backbone)
        return model

    def _report(self, plan: _Plan, comparison: Comparison, *, better: bool) -> PromptReport:
        difference = comparison.to_old
        if difference is None:
            reason = (
                f"{counted(comparison.labelled, 'label')} {be(comparison.labelled)} too few to "
                "judge the prompt by"
            )
        else:
            verdict = "better" if better else "not proven better"
            reason = (
                f"with the prompt the personal model is {verdict}: cross-entropy of "
                f"{comparison.labelled} labels, each left out, {comparison.carried:.3f} against "
                f"{comparison.old:.3f}, a difference of {difference.mean:.3f} ± "
                f"{difference.margin:.3f}"
            )
        return PromptReport(
            better, reason, self.passes, comparison.labelled, comparison.old, comparison.carried,
            difference, len(plan.chosen),
        )  # fmt: skip


def drop_prompts(task: Task, deleted: set[int]) -> None:
    """Drop prompts of forgotten examples from every slot. In ``Task.changing``.

    The vendor's model replaces the personal one, until a fit to embeddings without a prompt.

    Args:
        task: The task.
        deleted: The examples' ids.
    """
    for slot in (task.active, task.previous):
        if slot is None or slot.record.prompt is None:
            continue
        if not task.store.slots.prompt_is_of(slot.record.backbone, deleted):
            continue
        plain = slot.with_prompt(None)
        task.store.slots.set_tried_prompts(None, None)
        # Any loss marks a slot as fitted, so that it is fitted again.
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
