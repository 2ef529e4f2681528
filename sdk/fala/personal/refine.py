"""Going on with a replacement: choose, encode, fit, keep, a batch at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fala.errors import DeviceChangedError
from fala.examples import unique_texts
from fala.model.heads import Vectors
from fala.model.losses import Floats
from fala.personal.budget import Budget, Follower
from fala.personal.choose import OldSpace, choose
from fala.personal.encode import forward
from fala.personal.fitting import Fitted, fit_recalled
from fala.personal.memory import Memory, Recalled, Target, recall, taught_by
from fala.personal.stages import Stages
from fala.selection.next_texts import BATCH, LARGEST_BATCH, LEAST_MOVE, move
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.store.texts import NOT_KEPT
from fala.text.lexicon import CachedRows

_log = logging.getLogger("fala.refine")


@dataclass(frozen=True, eq=False)
class Refined:
    """What a refinement did.

    Attributes:
        recalled: The examples, as the new backbone knows them at the end.
        fitted: The last fit; None where nothing was fitted.
        forward_passes: Texts through the backbone.
        solves: Least squares problems that were solved, and ``columns`` of each at most.
        columns: See ``solves``.
        flops: Floating-point operations of the fits.
        clusters: Clusters that texts were chosen from.
        queries: Strong queries asked.
        stopped: Why no more texts were encoded.
    """

    recalled: Recalled
    fitted: Fitted | None
    forward_passes: int
    solves: int
    columns: int
    flops: float
    clusters: int
    queries: int
    stopped: str


class Refinement:
    """One refinement under way.

    Args:
        installed: The device.
        stages: Times what is done.
        follower: Told of every batch.
        positive: See ``fit_recalled``.
        last: The words of texts, most of which are the device's.
    """

    def __init__(
        self,
        installed: Task,
        stages: Stages,
        follower: Follower,
        positive: int,
        last: CachedRows | None = None,
    ) -> None:
        self._last = CachedRows(installed.store.texts.ngrams) if last is None else last
        self._installed, self._stages = installed, stages
        self._follower, self._positive = follower, positive
        self._passes = self._solves = self._columns = self._clusters = self._queries = 0
        self._flops = 0.0

    def run(
        self,
        budget: Budget,
        *,
        bridged: bool = True,
        known: tuple[Recalled, Fitted] | None = None,
    ) -> Refined:
        """Encode batches of texts, each followed by a fit that is kept with them.

        Args:
            budget: Further forward passes, and seconds since the stages began.
            bridged: Whether embeddings that are not real are estimates over a bridge.
            known: What is recalled and fitted already, to choose the first texts by.
        """
        while True:
            now = self._installed.now
            try:
                with self._installed.expecting(now):
                    return self._run(now, budget, bridged, known)
            except DeviceChangedError:  # its release was swept away: others were installed
                if known is not None:
                    return self._done(known[0], None, _TAKEN)

    def _run(
        self,
        now: OpenSlot,
        budget: Budget,
        bridged: bool,
        known: tuple[Recalled, Fitted] | None,
    ) -> Refined:
        deadline = None if budget.seconds is None else self._stages.started + budget.seconds
        left = max(0, budget.passes(bridged) - self._passes)
        with self._stages.stage("read"):
            memory, earlier = Memory(self._installed.store, self._last), self._installed.earlier()
            fitted: Fitted | None = None
            if known is None:
                encode_free(self._installed, now, memory, self._follower)
                target = Target.of_slot(self._installed.store, now, earlier)
                recalled = recall(memory, target)
            else:
                recalled, fitted = known
        stopped = "the budget is spent"
        if recalled.unseen() and not self._installed.store.texts.kept:
            left, stopped = 0, NOT_KEPT
        telling = bool(recalled.training.used.any())
        if not telling and (stopped == NOT_KEPT or not recalled.waiting):
            why = NOT_KEPT if recalled.waiting else "there is no label to fit to"
            return self._done(recalled, None, why)
        if now.static and telling:
            with self._installed.work:
                kept = self._keep(now, earlier, {})
            if kept is None:
                return self._done(recalled, None, _TAKEN)
            nothing = stopped if stopped == NOT_KEPT else "there is nothing left to encode"
            return self._done(kept[2], kept[3], nothing)
        if telling and left and known is None:
            fitted = self._fit(target, recalled)
        while left:
            texts = self._choose(recalled, fitted, left, memory, earlier)
            if not texts:
                stopped = "there is nothing left to encode"
                break
            with self._stages.stage("forward"):
                encoded = forward(texts, now.answering.backbone.encode, deadline, self._follower)
            self._passes += len(encoded)
            left -= len(encoded)
            if encoded:
                before, last = recalled, fitted
                with self._installed.work:
                    kept = self._keep(now, earlier, encoded)
                if kept is None:
                    stopped = _TAKEN
                    break
                now, memory, recalled, fitted = kept
                self._follower.tell("refine", self._passes, self._passes + left)
            if self._follower.cancelled:
                stopped = "cancelled"
                break
            if len(encoded) < len(texts):
                stopped = "the time is over"
                break
            if left and not recalled.waiting and last and fitted:
                moved = _moved(before.ids, last.left_out, recalled.ids, fitted.left_out)
                if moved < LEAST_MOVE:
                    stopped = "the last texts changed next to nothing"
                    break
        return self._done(recalled, fitted, stopped)

    def _done(self, recalled: Recalled, fitted: Fitted | None, stopped: str) -> Refined:
        name = self._installed.now.bundle.manifest.name
        _log.info("%s: %d forward passes, %s", name, self._passes, stopped)
        return Refined(
            recalled, fitted, self._passes, self._solves, self._columns, self._flops,
            self._clusters, self._queries, stopped,
        )  # fmt: skip

    def _fit(self, target: Target, recalled: Recalled) -> Fitted:
        with self._stages.stage("solve"):
            fitted = fit_recalled(target, recalled, self._positive)
        if fitted.fit is not None:
            self._solves += fitted.fit.steps
            self._flops += fitted.fit.flops
            self._columns = max(self._columns, fitted.fit.columns)
        return fitted

    def _choose(
        self,
        recalled: Recalled,
        fitted: Fitted | None,
        left: int,
        memory: Memory,
        earlier: OpenSlot | None,
    ) -> Sequence[str]:
        def old() -> OldSpace | None:
            return None if earlier is None else old_space(memory, earlier)

        with self._stages.stage("select"):
            # As many as before: a long refinement spends its time on texts, not on fits.
            size = min(max(BATCH, self._passes), LARGEST_BATCH)
            left_out = np.empty((0, 1)) if fitted is None else fitted.left_out
            choice = choose(recalled, left_out, left, size, old)
        self._clusters += choice.clusters
        self._queries += choice.queries
        return choice.texts

    def _keep(
        self,
        began: OpenSlot,
        earlier: OpenSlot | None,
        encoded: dict[str, Vectors],
    ) -> tuple[OpenSlot, Memory, Recalled, Fitted | None] | None:
        """Fit to what is known by now, and write it with the embeddings that paid for it.

        What was learned since the texts were chosen counts; where another process writes between
        the fit and its commit, all is read and fitted again.

        Args:
            began: The slot that is refined.
            earlier: What answered before it: the other slot, while this one answers.
            encoded: New embeddings: what a pass cost is never paid twice.

        Returns:
            What answers, and what it was fitted to; None where another model answers by now.
        """
        installed = self._installed
        while True:
            with self._stages.stage("read"):
                now = installed.now
                if not same_release(now, began):
                    installed.keep_embeddings(began.record.backbone, encoded)
                    return None
                memory = Memory(installed.store, self._last)
                memory.add(now.record.backbone, encoded)
                target = Target.of_slot(installed.store, now, earlier)
                recalled = recall(memory, target)
            if not recalled.training.used.any():
                installed.keep_embeddings(now.record.backbone, encoded)
                return now, memory, recalled, None
            fitted = self._fit(target, recalled)
            with self._stages.stage("commit"):
                try:
                    return (
                        installed.keep(now, fitted.change(memory.data, encoded)),
                        memory,
                        recalled,
                        fitted,
                    )
                except DeviceChangedError:
                    continue


_TAKEN = "another model answers now"


def encode_free(installed: Task, now: OpenSlot, memory: Memory, follower: Follower) -> None:
    """Encode at once what costs no forward pass: word vectors."""
    backbone, digest = now.answering.backbone, now.record.backbone
    if backbone.is_transformer or not installed.store.texts.kept:
        return
    known = memory.embeddings(digest)
    texts = unique_texts(row.known for row in memory.examples())
    missing = [text for text in texts if text not in known]
    if missing:
        encoded = forward(missing, backbone.encode, None, follower)
        installed.keep_embeddings(digest, encoded)
        memory.add(digest, encoded)


def old_space(memory: Memory, earlier: OpenSlot) -> OldSpace:
    """Where examples are clustered that only an earlier backbone has seen."""
    taught = taught_by(memory, earlier)
    return OldSpace(taught.embeddings, taught.logits, earlier.model.head)


def same_release(one: OpenSlot, other: OpenSlot) -> bool:
    """Whether two snapshots are of the same slot with the same bundle."""
    return (one.record.name, one.record.bundle) == (other.record.name, other.record.bundle)


def _moved(ids: Sequence[int], before: Floats, now_ids: Sequence[int], now: Floats) -> float:
    """How much the probabilities of the examples that both fits know have moved."""
    place = {row: position for position, row in enumerate(now_ids)}
    both = [(position, place[row]) for position, row in enumerate(ids) if row in place]
    if not both:
        return np.inf
    return move(before[[one for one, _ in both]], now[[other for _, other in both]])
