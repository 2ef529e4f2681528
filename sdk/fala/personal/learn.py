"""Learning: kept first, then encoded, then fitted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from fala.errors import BundleError, DeviceChangedError, DeviceError
from fala.examples import Example, unique_texts
from fala.model.active import ActiveModel
from fala.model.heads import Head
from fala.personal.budget import Follower
from fala.personal.encode import encode_missing
from fala.personal.fitting import fit_recalled
from fala.personal.forget import forget
from fala.personal.memory import Memory, Target, recall
from fala.personal.refine import encode_free
from fala.report import LearnReport
from fala.slots.erasing import scrub
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Answer, Change, Task
from fala.solver.fit import LARGEST, State, resume
from fala.solver.judge import Decision
from fala.solver.training import Inputs, TrainingSet, blocks_of, personal_of
from fala.store.records import FitRecord, Version
from fala.store.texts import NOT_KEPT
from fala.text.lexicon import CachedRows

_log = logging.getLogger("fala.learn")

#: Below so many examples a fit of all costs next to nothing.
SMALL = 200
#: Examples that are added to a fit before all are fitted again, as a share of that fit's.
LARGEST_GROWTH = 0.25
# Labelled examples that tell how far one more moves a model that was fitted to very many.
_SAMPLE = 500


@dataclass(frozen=True, eq=False)
class Learned:
    """The last fit, to which further examples can be added.

    Attributes:
        version: The store's, with that fit in it.
        state: The fit.
        head: What its numbers move.
        rows: Its examples' rows, by id; of a fit that was taken up again those of some.
        record: What it was, and what answers.
        reason: Why.
        threshold: The decision threshold.
        loss: See ``Change``.
    """

    version: Version
    state: State
    head: Head
    rows: dict[int, int]
    record: FitRecord
    reason: str
    threshold: float
    loss: float | None


class Learner:
    """Fits what answers to what is known.

    Args:
        task: The device's own task, or a further one.
    """

    def __init__(self, task: Task) -> None:
        self.task = self._installed = task
        self._last: Learned | None = None

    def ask(
        self,
        examples: Sequence[Example],
        how: Callable[[ActiveModel, Sequence[Example]], Answer],
    ) -> Answer:
        """Ask what answers; again, where the device fell back in between and has caught up."""
        answer = self._installed.ask(examples, how)
        return self._installed.ask(examples, how) if self._caught_up() else answer

    def ready(self) -> None:
        """Let what is on trial answer first; it may give way."""
        self._installed.ready()
        self._caught_up()

    def _caught_up(self) -> bool:
        """Fit to what was said since, where the device fell back; gives whether it did."""
        if not self._installed.behind:
            return False
        self._installed.behind = False
        try:
            self.fit()
        except DeviceError as error:  # a full disk must not keep a device from answering
            _log.warning("what was said since the replacement waits for a fit: %s", error)
        return True

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Keep examples and labels; gives their ids. On the disk when it returns."""
        store = self._installed.store
        ids = self._keep(store.texts.named(examples), labels)
        if not store.texts.kept:  # nobody can do it later
            self._encode(examples)
        return ids

    def _keep(self, named: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        with self._installed.store.transaction():
            return self._installed.store.examples.remember(named, labels)

    def learn(self, examples: Sequence[Example], labels: Sequence[str | None]) -> LearnReport:
        """Keep, encode, fit; see ``Device.learn``."""
        installed = self._installed
        with installed.work:
            now, last = installed.now, self._last
            before = installed.store.slots.version()
            named = installed.store.texts.named(examples)
            if last is None or last.version != before:
                try:
                    last = self._taken_up(now, before, named)
                except BundleError:  # nothing that is wrong with a release may cost an example
                    last = None
            # Kept before anything else is made: whatever happens there, the user's data is safe.
            ids = self._keep(named, labels)
            now = self._encode(examples)
            after = Version(before.generation, before.data + 1)
            alone = installed.store.slots.version() == after and installed.now is now
            if last is not None and alone:
                report = self._add(now, last, ids, named, labels)
                if report is not None:
                    return report
            return self.fit()

    def fit(self) -> LearnReport:
        """Fit to all labels, and to what older logits say, and keep it; see ``Device.fit``."""
        installed = self._installed
        with installed.work:
            while True:
                now = installed.now
                memory = Memory(installed.store)
                try:
                    with installed.expecting(now):
                        encode_free(installed, now, memory, Follower(None))
                        target = Target.of_slot(installed.store, now, installed.earlier())
                except DeviceChangedError:
                    continue
                recalled = recall(memory, target)
                count, labelled = installed.store.examples.counts()
                if not recalled.training.used.any():
                    self._last = None
                    decision: Decision = "vendor" if now.model.is_vendor else "personal"
                    reason = "there is neither a label nor an old logit to fit to"
                    if recalled.waiting and not installed.store.texts.kept:
                        reason = f"{NOT_KEPT}: this backbone has seen none that tells anything"
                    return LearnReport(count, labelled, 0, decision, reason)
                fitted = fit_recalled(target, recalled, installed.positive(now.model.head))
                try:
                    now = installed.keep(now, fitted.change(memory.data))
                except DeviceChangedError:
                    continue
                used = recalled.training.used
                state = None if fitted.fit is None else fitted.fit.state
                record = fitted.record(memory.data)
                self._last = None
                if state is not None and record and recalled.training.labelled.any():
                    chosen = [recalled.ids[position] for position in np.flatnonzero(used).tolist()]
                    rows = {row: place for place, row in enumerate(chosen)}
                    kept = Version(now.generation, memory.data)
                    self._last = Learned(
                        kept, state, target.head, rows, record, fitted.reason, fitted.threshold,
                        fitted.loss,
                    )  # fmt: skip
                _log.info("fitted to %d examples: %s", used.sum(), fitted.reason)
                return LearnReport(
                    count, labelled, int(used.sum()), fitted.decision, fitted.reason, True,
                    fitted.scales, fitted.loss,
                )  # fmt: skip

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples, and fit to the others; gives how many there were.

        One transaction: killed on its way, the device knows all of them, or none.
        """
        installed = self._installed
        with installed.work:
            self._last = None
            with installed.changing():
                gone = forget(installed, ids, installed.positive)
                if gone:
                    report = self.fit()
                    if not report.fitted:
                        self._vendor()
            if gone:
                scrub(installed.path, installed.store)
            return gone

    def _vendor(self) -> None:
        """Let the vendor's own model answer: nothing is left that anything personal is from."""
        installed = self._installed
        while True:
            now = installed.now
            try:
                installed.keep(now, Change(now.model.head.vendor_model()))
            except DeviceChangedError:
                continue
            return

    def _taken_up(
        self, now: OpenSlot, before: Version, examples: Sequence[Example]
    ) -> Learned | None:
        """The last fit of very many examples, made from a sample; None where all is to be fitted.

        After opening a device nothing of the fit is left but the model: a sample tells how far one
        more label moves it.
        """
        store = self._installed.store
        record = store.slots.fit(now.record.name)
        if record is None or record.data != before.data or record.fitted <= LARGEST:
            return None
        # What is known of the very examples is taken back, if they have another label now.
        ids = sorted({*store.examples.some_labelled(_SAMPLE), *store.examples.ids(examples)})
        earlier = self._installed.earlier() if now.bundle.bridges() else None
        target = Target.of_model(now, earlier, record.scales)
        recalled = recall(Memory(store, ids=ids), target)
        training = recalled.training
        if not training.labelled.any():
            return None
        state = resume(training, record.scales, record.fitted, record.further)
        rows = {row: place for place, row in enumerate(recalled.ids)}
        return Learned(
            before, state, target.head, rows, record, "added to what was fitted before",
            now.record.threshold, now.record.loss,
        )  # fmt: skip

    def _encode(self, examples: Sequence[Example]) -> OpenSlot:
        """Make and keep the embeddings that texts lack; gives whose they are."""
        installed, texts = self._installed, unique_texts(examples)
        while True:
            now = installed.ready(examples)
            digest = now.record.backbone
            try:
                with installed.expecting(now):
                    backbone = now.answering.backbone
                    fresh = encode_missing(installed.store, digest, backbone, texts)
            except DeviceChangedError:
                continue
            installed.keep_embeddings(digest, fresh)
            return now

    def _add(
        self,
        now: OpenSlot,
        last: Learned,
        ids: Sequence[int],
        examples: Sequence[Example],
        labels: Sequence[str | None],
    ) -> LearnReport | None:
        """Add labelled examples to the last fit, at its scales; None where all is to be fitted."""
        state, record = last.state, last.record
        rows = state.fitted + state.further + len(ids)
        if rows < SMALL or rows > (1 + LARGEST_GROWTH) * state.fitted:
            return None
        said = {row: place for place, row in enumerate(ids) if labels[place] is not None}
        chosen = list(said.values())
        head = now.model.head
        if said:
            known = [examples[place] for place in chosen]
            training = self._training(now, last.head, known, [labels[place] for place in chosen])
            replaced = {
                position: last.rows[row] for position, row in enumerate(said) if row in last.rows
            }
            state = state.more(training, replaced)
        start = last.state.count
        places = {**last.rows, **{row: start + at for at, row in enumerate(said)}}
        installed = self._installed
        data = installed.store.slots.version().data
        record = replace(record, data=data, further=state.further)
        if record.decision != "vendor":  # that answers until the next check
            full, calibrated = state.candidates()
            one = calibrated.towards(full, record.trust)
            model = personal_of(head, one.weights, one.bias)
            try:
                now = installed.keep(now, Change(model, last.threshold, last.loss, fit=record))
            except DeviceChangedError:
                return None
        self._last = replace(
            last, version=Version(now.generation, data), state=state, rows=places, record=record
        )
        count, labelled = installed.store.examples.counts()
        return LearnReport(
            count, labelled, state.fitted + state.further, cast(Decision, record.decision),
            last.reason, False, record.scales, last.loss,
        )  # fmt: skip

    def _training(
        self, now: OpenSlot, head: Head, examples: Sequence[Example], labels: Sequence[str | None]
    ) -> TrainingSet:
        texts = unique_texts(examples)
        store = self._installed.store
        inputs = head.inputs(examples, store.embeddings.get(now.record.backbone, texts))
        shares = head.label_shares(labels)
        words = head.words(examples, CachedRows(store.texts.ngrams))
        blocks = blocks_of(head, Inputs(inputs), words, None)
        return TrainingSet(blocks, head.bias, shares, np.full(shares.shape, np.nan))
