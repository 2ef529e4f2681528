"""A writer's prompt for this user: a replacement of what texts are read with, not of the backbone.

A release's K prompts are of writers that the vendor knows. By the labels of a few of the user's
texts each has a likelihood under the release's own head; the mixture has their posterior under a
flat prior as its weights. A release that was trained with hard prompts brings none: the user's own
texts, the newest first, are compiled to one, by one forward pass. A changed prompt changes every
embedding, so that the personal model is fitted anew, and compared with what answers on labels that
had no part in the prompt. Only forward passes, no gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone, OnnxEncoder
from fala.backbones.backbone import plain_of
from fala.backbones.onnx_encoder import Context
from fala.backbones.state import provenance
from fala.bundle.prompts import (
    UserPrompt,
    compiled,
    compiled_bytes,
    hard_prompt_length,
    mixed,
    prompt_state,
)
from fala.errors import BundleError, DataError, DeviceChangedError, shown
from fala.examples import CLASSIFICATION, unique_texts
from fala.model.heads import Vectors
from fala.model.losses import cross_entropy, softmax
from fala.personal.budget import Budget, Follower
from fala.personal.compare import Compared, compare_fits
from fala.personal.encode import forward
from fala.personal.fitting import Fitted, fit_recalled
from fala.personal.memory import Memory, Recalled, Target, recall, taught_by
from fala.personal.mixing import NotMixedError, Plan, newest_texts, plan_of, plan_of_texts
from fala.personal.refine import same_release
from fala.personal.stages import Stages
from fala.report import PromptReport
from fala.selection.next_texts import most_undecided
from fala.slots.installed import Installed, Move
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Change, Task
from fala.store.texts import NOT_KEPT
from fala.text.lexicon import CachedRows

_log = logging.getLogger("fala.prompts")

#: Whether the release's prompts are mixed for the user: where that is proven to help, or never.
Prompts: TypeAlias = Literal["off", "auto"]
#: Labels that are to be said since the last attempt before another one, as a share of those then:
#: who asks every night takes, sooner or later, what is better by chance.
GROWTH = 0.25

_TAKEN = "another model answers now"


@dataclass(frozen=True, eq=False)
class Prompted:
    """What became of a release's prompts.

    Attributes:
        report: In words and figures.
        fitted: What answers with the prompt; None where none was taken.
    """

    report: PromptReport
    fitted: Fitted | None = None


def prompts_of(value: Prompts, adapter: str | None = None) -> bool:
    """Whether prompts are to be mixed, by an app's word.

    Raises:
        DataError: It is none of the words, or an adapter's task is asked for.
    """
    if value not in ("off", "auto"):
        raise DataError(f'prompts is "off" or "auto", not {shown(value)}')
    if value == "auto" and adapter is not None:
        raise DataError(
            f'prompts="auto" is for the device\'s own task, and not for the adapter '
            f"{shown(adapter)}, whose texts are read without one; leave one of them out"
        )
    return value == "auto"


def mix_prompts(
    installed: Installed, budget: Budget, left: int, stages: Stages, follower: Follower
) -> Prompted:
    """Make a prompt for the user as the release allows, and take it where it is better.

    Args:
        installed: The device.
        budget: Its seconds, since the stages began.
        left: Forward passes that are left of it.
        stages: Times what is done.
        follower: Told of the texts that are encoded.
    """
    mixing = _Prompting(installed, budget, left, stages, follower)
    try:
        prompted = mixing.run()
    except NotMixedError as found:
        prompted = Prompted(PromptReport(False, str(found), forward_passes=mixing.passes))
    except DeviceChangedError:
        prompted = Prompted(PromptReport(False, _TAKEN, forward_passes=mixing.passes))
    except (BundleError, DataError, np.linalg.LinAlgError, ArithmeticError) as error:
        why = f"the release's prompts cannot be used: {error}"
        _log.warning(why)
        prompted = Prompted(PromptReport(False, why, forward_passes=mixing.passes))
    _log.info("prompts: %s", prompted.report.reason)
    return prompted


class _Prompting:
    def __init__(
        self, installed: Installed, budget: Budget, left: int, stages: Stages, follower: Follower
    ) -> None:
        self._installed, self._left = installed, max(0, left)
        self._stages, self._follower = stages, follower
        self._deadline = None if budget.seconds is None else stages.started + budget.seconds
        self._last = CachedRows(installed.store.texts.ngrams)
        self.passes = 0

    def run(self) -> Prompted:
        installed = self._installed
        now = installed.now
        with installed.expecting(now):
            if now.record.prompt:
                own = isinstance(now.record.prompt, bytes)
                raise NotMixedError(f"a {'compiled' if own else 'mixed'} prompt is in use already")
            prompts, length = now.bundle.prompts(), hard_prompt_length(now.bundle.manifest)
            if prompts is None and not length:
                raise NotMixedError(f"{now.bundle.manifest.name} brings no prompts")
            if not installed.store.texts.kept:
                raise NotMixedError(NOT_KEPT)
            with self._stages.stage("read"):
                memory = Memory(installed.store, self._last)
                target = Target.of_slot(installed.store, now, installed.earlier())
                recalled = recall(memory, target)
            if prompts is not None:
                plan = self._within(target, plan_of(recalled, len(prompts)))
                with self._stages.stage("forward"):
                    prompt = mixed(prompts, self._weights(now, prompts, plan))
            else:
                encoder, context, plan = self._texts(now, recalled, length)
                plan = self._within(target, plan)
                with self._stages.stage("forward"):
                    self.passes += 1
                    prompt = compiled(compiled_bytes(encoder.compile_context(context)))
            with self._stages.stage("forward"):
                texts = plan.texts[: self._left - self.passes]
                encoded = self._forward(texts, now.reading(prompt.state), plan.least)
        return self._take(now, prompt, plan, encoded)

    def _texts(
        self, now: OpenSlot, recalled: Recalled, length: int
    ) -> tuple[OnnxEncoder, Context, Plan]:
        """Of what texts a hard prompt is; and who reads them."""
        encoder = plain_of(now.answering.backbone.loaded)
        if now.model.head.task != CLASSIFICATION or not isinstance(encoder, OnnxEncoder):
            raise NotMixedError("prompts of texts are for a transformer's texts of one user")
        newest = newest_texts(recalled)[:length]  # of each a token at least
        context = encoder.context([str(recalled.examples[place]) for place in newest], length)
        if not context.ids:
            raise NotMixedError("there is no text for a prompt, or it has no room for one")
        return encoder, context, plan_of_texts(recalled, [newest[at] for at in context.texts])

    def _within(self, target: Target, plan: Plan) -> Plan:
        """The plan for what is left of the budget; the most undecided are read first."""

        def undecided() -> list[int]:
            with self._stages.stage("solve"):
                fitted = fit_recalled(target, plan.recalled, self._positive)
            return [int(place) for place in most_undecided(fitted.left_out)]

        self._check_tried(plan.labelled)
        return plan.within(self._left, undecided)

    @property
    def _positive(self) -> int:
        return self._installed.positive(self._installed.now.model.head)

    def _check_tried(self, labelled: int) -> None:
        """Whether the labels are about as many as when the same prompts were tried."""
        tried = self._installed.store.slots.tried_prompts()
        if tried is None:
            return
        digest, then = tried
        if digest == self._installed.now.bundle.digest and labelled < (1 + GROWTH) * then:
            raise NotMixedError(
                f"the prompts were tried on {then} labelled examples, and there are {labelled}; "
                f"they are tried again at {int(np.ceil((1 + GROWTH) * then))}"
            )

    def _note_tried(self, now: OpenSlot, labelled: int) -> None:
        with self._installed.store.transaction():
            self._installed.store.slots.set_tried_prompts(now.bundle.digest, labelled)

    def _weights(self, now: OpenSlot, prompts: NDArray[np.float16], plan: Plan) -> list[float]:
        """The posterior of the prompts under a flat prior: by the likelihood of the labels."""
        head, texts = now.model.head, unique_texts(plan.examples)
        words = head.words(plan.examples, self._last)
        likelihoods = []
        for prompt in prompts:
            backbone = now.reading(prompt_state(prompt))
            inputs = head.inputs(plan.examples, self._forward(texts, backbone, len(texts)))
            z = np.asarray(head.vendor_model().logits(inputs, words), np.float64)
            likelihoods.append(-cross_entropy(plan.shares, z).sum())
        return [float(weight) for weight in softmax(np.array(likelihoods)[None])[0]]

    def _forward(self, texts: Sequence[str], backbone: Backbone, least: int) -> dict[str, Vectors]:
        encoded = forward(texts, backbone.encode, self._deadline, self._follower)
        self.passes += len(encoded)
        if self._follower.cancelled:
            raise NotMixedError("cancelled")
        if len(encoded) < least:
            raise NotMixedError("the time is over")
        return encoded

    def _take(
        self, began: OpenSlot, prompt: UserPrompt, plan: Plan, encoded: dict[str, Vectors]
    ) -> Prompted:
        """Fit and judge; let the prompt's model answer where it is better.

        What was learned meanwhile counts. Where the prompt is not proven its embeddings go:
        nothing else is of it.
        """
        installed = self._installed
        digest = provenance(began.bundle.backbone_digest, prompt.state)
        with installed.work:
            while True:
                with self._stages.stage("read"):
                    now = installed.now
                    if not same_release(now, began) or now.record.prompt:
                        raise NotMixedError(_TAKEN)
                    memory = Memory(installed.store, self._last)
                    if not {row.id for row in memory.examples()}.issuperset(plan.mixers):
                        raise NotMixedError("an example that the prompt is made of was forgotten")
                    memory.add(digest, encoded)
                    target = Target.of_slot(installed.store, now, installed.earlier())
                    target = replace(target, backbone=digest, bridges=[])
                    recalled = recall(memory, target)
                # With what older logits the model that answers has: each as it is, but for the
                # prompt.
                with self._stages.stage("solve"):
                    fitted = fit_recalled(target, recalled, self._positive)
                with self._stages.stage("compare"):
                    read = zip(recalled.ids, recalled.missing, strict=True)
                    judges = {row for row, missing in read if row in plan.judges and not missing}
                    compared = compare_fits(installed, now, memory, recalled, fitted, judges)
                better = compared.to_old is not None and compared.to_old.better
                report = self._report(prompt, plan, compared, taken=better)
                if not better:
                    self._note_tried(now, plan.labelled)
                    return Prompted(report)
                with self._stages.stage("commit"):
                    try:
                        fitted = self._commit(
                            now, prompt, memory, target, fitted, encoded, plan.mixers
                        )
                    except DeviceChangedError:
                        continue
                self._note_tried(now, plan.labelled)
                return Prompted(report, fitted)

    def _commit(
        self,
        now: OpenSlot,
        prompt: UserPrompt,
        memory: Memory,
        target: Target,
        fitted: Fitted,
        encoded: dict[str, Vectors],
        by: Sequence[int],
    ) -> Fitted:
        """Let the prompt's model answer; gives what was fitted at last.

        Raises:
            DeviceChangedError: Something else answers by now.
        """
        installed, slot = self._installed, now.with_prompt(prompt)
        # Before it answers: that nobody finds it who does not know of what examples it is made.
        with installed.store.transaction():
            installed.store.slots.note_prompt(slot.record.backbone, by)
        if installed.trials.running() is not None:
            # The release has still to prove itself: the way back is to the one before it.
            installed.keep(slot, fitted.change(memory.data, encoded))
            return fitted
        # What the earlier model says stands in where there is no label, as in a replacement.
        taught = None if now.model.is_vendor else taught_by(memory, now)
        target = replace(target, differences={} if taught is None else taught.differences())
        fitted = fit_recalled(target, recall(memory, target), self._positive)
        logits = None if taught is None else (taught.logits, taught.vendor)
        change = fitted.change(memory.data, encoded)
        moves = [Move(installed, now, now.bundle, change, logits, prompt)]
        moves += [_same(task) for task in installed.further()]
        installed.commit(moves, slot.answering.backbone)
        return fitted

    def _report(
        self, prompt: UserPrompt, plan: Plan, compared: Compared, *, taken: bool
    ) -> PromptReport:
        kind = "mixed" if prompt.weights else "compiled"
        against = compared.to_old
        if against is None:
            reason = f"{compared.labelled} labels are too few to judge the {kind} prompt by"
        else:
            told = "better" if against.better else "not better by more than a standard error"
            reason = (
                f"with the {kind} prompt the personal model is {told}: cross-entropy of "
                f"{compared.labelled} labels, each left out, {compared.carried:.3f} against "
                f"{compared.old:.3f}, a difference of {against.mean:.3f} with a standard error of "
                f"{against.error:.3f}"
            )
        return PromptReport(
            taken, reason, prompt.weights, self.passes, compared.labelled, compared.old,
            compared.carried, against, 0 if prompt.weights else len(plan.mixing),
        )  # fmt: skip


def _same(task: Task) -> Move:
    """A further task's part: the same model in its other slot, so that all go back together."""
    now = task.now
    logits = None
    if not now.model.is_vendor:
        taught = taught_by(Memory(task.store), now)
        logits = taught.logits, taught.vendor
    fit = task.store.slots.fit(now.record.name)
    change = Change(now.model, now.record.threshold, now.record.loss, {}, fit)
    return Move(task, now, now.bundle, change, logits)
