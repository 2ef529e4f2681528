"""Learn: first store examples, then encode them, then fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from fala.base.errors import DeviceError
from fala.base.examples import Example
from fala.model.heads import Vectors
from fala.model.scales import Scales
from fala.personal.encode import Encoded, encode_free, encode_missing, item_vectors
from fala.personal.forget import forget, unlabel
from fala.personal.gather import GatheredRows, Reading, Space, gather
from fala.personal.refit import Refit, refit_active, space_of
from fala.personal.run import Run
from fala.report import Forgotten, LearnReport
from fala.slots.folder import Prepared, Snapshot, Task
from fala.slots.switching import opened, use
from fala.solver.decision import Decision
from fala.solver.fit import State
from fala.solver.training import personal_of
from fala.store.examples import StoredExample
from fala.store.slots import FitRecord
from fala.store.texts import NOT_KEPT

_log = logging.getLogger("fala.learn")

#: Below this number of examples a full fit costs next to nothing.
SMALL = 200
#: The largest growth of a fit by added or relabelled examples before a full fit, as a share of its
#: size.
LARGEST_GROWTH = 0.25


@dataclass(frozen=True, eq=False)
class LastFit:
    """A fit to which further examples can be added.

    Attributes:
        generation: The task's generation after the fit's commit.
        record: The fit's record in the store.
        state: The state of the fit.
        space: The space of the fit's rows.
        positions: The positions of the rows in the state, by example.
        waiting: The examples that have no row before their texts are encoded.
        reason: Why the active model was chosen.
    """

    generation: int
    record: FitRecord
    state: State
    space: Space
    positions: dict[int, int]
    waiting: frozenset[int]
    reason: str


class Learner:
    """What a task does with its examples: decide them, keep them, fit to them and forget them.

    A learner holds the last fit, to which further labels are added.

    Args:
        task: The task.

    Attributes:
        task: The argument.
        store: The task's part of the store.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.store = task, task.store
        self._last: LastFit | None = None
        #: The generation at which labels after a fall back could not be fitted.
        self._failed: int | None = None

    def logits(self, snapshot: Snapshot, examples: Sequence[Example]) -> tuple[Snapshot, Vectors]:
        """Return the active model's logits, (n, C), and the task with that model.

        After a fall back, the model is first fitted to the newer labels.

        Raises:
            BundleError: If the model cannot predict, and there is nothing to fall back to.
        """
        snapshot, z = self._ask(examples, snapshot)
        self._drop_older(snapshot)
        if snapshot.state.to_fit and self._catch_up(snapshot):
            return self._ask(examples)
        return snapshot, z

    def _ask(
        self, examples: Sequence[Example], snapshot: Snapshot | None = None
    ) -> tuple[Snapshot, Vectors]:
        """Ask the active model, and count its predictions for a trial."""
        answer = use(self.task, lambda now: now.active.logits(examples), examples, snapshot)
        self.task.folder.trials.count_predictions(len(examples))
        return answer

    def ready(self) -> None:
        """Probe a release on trial; if it fails, the previous one becomes active."""
        snapshot, _ = use(self.task, lambda _: None)
        self._drop_older(snapshot)
        if snapshot.state.to_fit:
            self._catch_up(snapshot)

    def _catch_up(self, snapshot: Snapshot) -> bool:
        """Fit to newer labels after a fall back, unless others write, and return whether it did."""
        if snapshot.generation == self._failed:
            return False
        try:
            with self.store.turn(wait=False):
                self.fit()
        except DeviceError as error:  # a full disk must not stop predictions
            self._failed = snapshot.generation
            _log.warning("labels since the replacement are not fitted yet: %s", error)
            return False
        return True

    def remember(
        self, snapshot: Snapshot, examples: Sequence[Example], labels: Sequence[str | None]
    ) -> list[int]:
        """Store examples and labels, and return their ids once they are on the disk."""
        ids = self._keep(snapshot, examples, labels)
        if not self.store.texts.kept():  # the texts cannot be encoded later
            snapshot, encoded = self._encode(snapshot, examples, Run())
            self.task.keep_embeddings(snapshot.backbone, encoded)
        return ids

    def learn(
        self,
        snapshot: Snapshot,
        examples: Sequence[Example],
        labels: Sequence[str | None],
        run: Run,
    ) -> LearnReport:
        """Keep, encode and fit examples; see ``Device.learn``.

        Args:
            snapshot: The snapshot of the task with which the examples and labels were checked.
            examples: The examples.
            labels: The labels, as stored.
            run: The run, which reports progress and can be cancelled.
        """
        # Examples are stored before any computation, so a failure there loses no user data.
        ids = self._keep(snapshot, examples, labels)
        before, encoded = self._encode(snapshot, examples, run)
        with self.store.turn():
            snapshot = opened(self.task)
            if snapshot.backbone != before.backbone:
                self.task.keep_embeddings(before.backbone, encoded)
                encoded = {}
            report = self._add(snapshot, ids, encoded)
            return self._fit(snapshot, encoded) if report is None else report

    def fit(self) -> LearnReport:
        """Fit to all labels and old logits, and commit the model; see ``Device.fit``."""
        with self.store.turn():
            return self._fit(opened(self.task), {})

    def forget(self, ids: Iterable[int]) -> Forgotten:
        """Delete examples, and fit to the others; see ``Device.forget``."""
        count = forget(self.task, set(ids))
        self._last = None
        return Forgotten(count, self.store.scrub())

    def ids(self, examples: Sequence[Example]) -> list[int]:
        """Return the ids of those examples that the task has."""
        return self.store.examples.ids(self.store.texts.named(examples))

    def unlabel(self, ids: Iterable[int]) -> LearnReport:
        """Withdraw labels, and fit to the others; see ``Device.unlabel``."""
        deleted = unlabel(self.task, set(ids))
        self._last = None
        if deleted is None:
            return self.fit()
        self.store.scrub()
        return self.report(*deleted)

    def _keep(
        self, snapshot: Snapshot, examples: Sequence[Example], labels: Sequence[str | None]
    ) -> list[int]:
        """Store examples with their labels, and the vectors of items; return the examples' ids."""
        store = self.store
        vectors = item_vectors(snapshot, examples)
        named = store.texts.named(examples)
        with store.transaction():
            ids = store.examples.remember(named, labels)
            store.embeddings.add(snapshot.backbone, vectors)
        return ids

    def _encode(
        self, snapshot: Snapshot, examples: Sequence[Example], run: Run
    ) -> tuple[Snapshot, Encoded]:
        """Encode texts without an embedding, and return the task whose backbone encoded them."""
        return use(self.task, lambda now: encode_missing(now, examples, run), examples, snapshot)

    def _fit(self, snapshot: Snapshot, encoded: Encoded) -> LearnReport:
        """Fit to everything. The caller has the turn to write."""
        reading = Reading(snapshot)
        reading.add(snapshot.backbone, encoded)
        encode_free(snapshot, reading)
        fitted, result = refit_active(snapshot, reading, space_of(snapshot), encoded)
        self._last = _last_fit(fitted, result)
        return self.report(fitted, result)

    def _drop_older(self, snapshot: Snapshot) -> None:
        """Let go of the last fit if the task was changed since, for example by another object."""
        last = self._last
        if last is not None and last.generation < snapshot.generation:
            self._last = None

    def close(self) -> None:
        """Let go of the last fit and the slots."""
        self._last = None
        self.task.drop()

    def report(self, snapshot: Snapshot, result: Refit) -> LearnReport:
        """Report a full fit."""
        rows, verdict = result.rows, result.verdict
        count, labelled = self.store.examples.counts()
        decision, reason = verdict.decision, verdict.reason
        fitted = int(rows.training.used.sum())
        if result.fit is None:
            decision = snapshot.active.decision
            if rows.pending and not self.store.texts.kept():
                reason = f"{NOT_KEPT}: no example with a label has an embedding of this backbone"
        else:
            _log.info("fitted to %d examples: %s", fitted, reason)
        return LearnReport(
            count, labelled, fitted, decision, reason, waiting=len(rows.pending),
            scales=result.scales, loss=result.loss, scores=verdict.scores,
        )  # fmt: skip

    def _add(self, snapshot: Snapshot, ids: Sequence[int], encoded: Encoded) -> LearnReport | None:
        """Add the examples since the last fit to it, at its scales; None if a full fit is needed.

        The caller has the turn to write.

        Args:
            snapshot: The snapshot of the task.
            ids: The ids of examples that may have been encoded since.
            encoded: The new embeddings, by text.
        """
        # the fit is edited in place, and after a failure it is found again
        last, self._last = self._last, None
        if last is not None and last.generation != snapshot.generation:
            last = None  # another process has fitted
        record = snapshot.active.record.fit if last is None else last.record
        if record is None:
            return None
        changed = self.store.examples.since(record.data)
        further = record.further + len(changed)
        if not SMALL <= record.fitted + further <= (1 + LARGEST_GROWTH) * record.fitted:
            return None
        known = {row.id for row in changed}
        changed += self.store.examples.all([row for row in ids if row not in known])
        if last is None:
            last = self._resumed(snapshot, record, encoded)
        else:
            last = self._more(snapshot, last, changed, encoded)
        if last is None:
            return None
        model, active = snapshot.model, snapshot.active.record
        if record.decision != "vendor":  # the vendor's model stays until the next full fit
            mixed = last.state.model(record.mixing)
            model = personal_of(snapshot.head, mixed.weights, mixed.bias)
        record = replace(last.record, further=further)
        slot = snapshot.active.fitted(model, active.loss, record)
        committed = self.task.commit(Prepared(snapshot, slot, encoded))
        self._last = replace(last, generation=committed.generation, record=record)
        count, labelled = self.store.examples.counts()
        return LearnReport(
            count, labelled, len(last.positions), cast(Decision, record.decision), last.reason,
            waiting=len(last.waiting), exact=False, scales=record.scales, loss=active.loss,
        )  # fmt: skip

    def _more(
        self, snapshot: Snapshot, last: LastFit, changed: list[StoredExample], encoded: Encoded
    ) -> LastFit | None:
        """Return the last fit with the labelled examples added; None if one cannot be used."""
        labelled = [row for row in changed if row.label is not None]
        reading = Reading(snapshot, only=labelled)
        reading.add(snapshot.backbone, encoded)
        rows = gather(reading, last.space)
        if not rows.training.used.all():
            return None
        state, positions = last.state, last.positions
        if rows.ids:
            state = state.more(rows.training, [positions.get(row) for row in rows.ids])
            positions.update((row, last.state.count + at) for at, row in enumerate(rows.ids))
        waiting = last.waiting | {row.id for row in changed}
        record = replace(last.record, data=reading.data)
        return replace(last, record=record, state=state, waiting=waiting.difference(rows.ids))

    def _resumed(self, snapshot: Snapshot, record: FitRecord, encoded: Encoded) -> LastFit | None:
        """Return the active model's fit with all present examples; None if a full fit is needed.

        A device that was just opened has only the fit's model, not its state.
        """
        if record.decision == "vendor":
            return None
        reading = Reading(snapshot)
        reading.add(snapshot.backbone, encoded)
        rows = gather(reading, space_of(snapshot))
        if not rows.training.labelled.any():
            return None
        state = State.of_model(
            rows.training,
            Scales.of_numbers(record.scales),
            rows.logits(snapshot.model),
            record.mixing,
        )
        return _fit_of(snapshot, rows, record, state, "added to the last fit")


def fit_all(own: Task) -> None:
    """Fit the models of all tasks of a device, given its own task."""
    for task in (own, *own.adapted()):
        Learner(task).fit()


def _last_fit(snapshot: Snapshot, result: Refit) -> LastFit | None:
    """Return a full fit that further examples can be added to; None if there is none."""
    rows, record = result.rows, snapshot.active.record.fit
    if record is None or result.fit is None or result.fit.state is None:
        return None
    if not rows.training.labelled.any() or (1 + LARGEST_GROWTH) * record.fitted < SMALL:
        return None
    return _fit_of(snapshot, rows, record, result.fit.state, result.verdict.reason)


def _fit_of(
    snapshot: Snapshot, rows: GatheredRows, record: FitRecord, state: State, reason: str
) -> LastFit:
    used = np.flatnonzero(rows.training.used).tolist()
    return LastFit(
        snapshot.generation, replace(record, data=rows.reading.data), state, rows.space,
        {rows.ids[position]: at for at, position in enumerate(used)},
        frozenset(row.id for row in rows.pending), reason,
    )  # fmt: skip
