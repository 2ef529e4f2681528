"""Learn: store examples first, then encode, then fit."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from fala.errors import BundleError, DeviceChangedError, DeviceError
from fala.examples import Example, unique_texts
from fala.personal.encode import encode_free, encode_missing, item_vectors
from fala.personal.forget import forget
from fala.personal.gather import Snapshot, Space, gather
from fala.personal.refit import Refit, refit_active, until_committed
from fala.report import Forgotten, LearnReport
from fala.slots.bundles import Change
from fala.slots.erasing import drop_copies
from fala.slots.folder import Folder
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task, further_tasks
from fala.solver.fit import LARGEST, Resumed, State, resume
from fala.solver.judge import Decision, public_threshold
from fala.solver.training import personal_of
from fala.store.records import FitRecord, Version
from fala.store.texts import NOT_KEPT

_log = logging.getLogger("fala.learn")

#: Below this number of examples a full fit costs next to nothing.
SMALL = 200
#: Growth of a fit by added examples, as a share of its size, before a full fit.
LARGEST_GROWTH = 0.25
# Labelled examples, sampled, from which a fit of very many resumes.
_SAMPLE = 500


@dataclass(frozen=True, eq=False)
class LastFit:
    """The last fit, to which further examples can be added.

    Attributes:
        version: The store's version after its commit.
        state: The fit.
        space: The space of its rows.
        positions: Positions of its rows, by example; of a resumed fit those of the sample.
        record: Its record in the store.
        reason: Why the active model was chosen.
    """

    version: Version
    state: State | Resumed
    space: Space
    positions: dict[int, int]
    record: FitRecord
    reason: str


class Learner:
    """Fits a task's model to its examples, and holds the last fit.

    Args:
        task: The device's own task, or a further one.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._last: LastFit | None = None

    def catch_up(self) -> bool:
        """Fit to newer labels after a fall back; returns whether there was one."""
        if not self.task.take_behind():
            return False
        try:
            self.fit()
        except DeviceError as error:  # a full disk must not stop predictions
            _log.warning("labels since the replacement are not fitted yet: %s", error)
        return True

    def ready(self) -> None:
        """Probe a slot on trial first; if it fails, the previous slot becomes active."""
        self.task.ready()
        self.catch_up()

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Store examples and labels, on the disk when it returns; returns their ids."""
        ids = self._keep(examples, labels)
        if not self.task.store.texts.kept:  # they cannot be encoded later
            self._encode(examples)
        return ids

    def learn(self, examples: Sequence[Example], labels: Sequence[str | None]) -> LearnReport:
        """Keep, encode, fit; see ``Device.learn``."""
        task = self.task
        with task.folder.work:
            active, last = task.active, self._last
            before = task.store.slots.version()
            named = task.store.texts.named(examples)
            if last is None or last.version != before:
                try:
                    last = self._resumed(active, before, named)
                except BundleError:  # a fault of the release must not lose an example
                    last = None
            # Stored before any computation: a failure there loses no user data.
            ids = self._keep(examples, labels)
            active = self._encode(examples)
            after = Version(before.generation, before.data + 1)
            unchanged = task.store.slots.version() == after and task.active is active
            if last is not None and unchanged:
                report = self._add(active, last, ids, labels)
                if report is not None:
                    return report
            return self.fit()

    def fit(self) -> LearnReport:
        """Fit to all labels and old logits, and commit the model; see ``Device.fit``."""
        task = self.task

        def attempt(slots: Sequence[OpenSlot]) -> tuple[OpenSlot, Refit]:
            (active,) = slots
            snapshot = Snapshot(task.store)
            encode_free(task, active, snapshot)
            return refit_active(task, active, task.previous, snapshot)

        with task.folder.work:
            active, result = until_committed([task], attempt)
            self._last = _last_fit(active, result)
        rows, verdict = result.rows, result.verdict
        count, labelled = task.store.examples.counts()
        if result.fit is None:
            decision: Decision = "vendor" if active.model.is_vendor else "personal"
            reason = verdict.reason
            if rows.pending and not task.store.texts.kept:
                reason = f"{NOT_KEPT}: no example with a label has an embedding of this backbone"
            return LearnReport(count, labelled, 0, decision, reason)
        fitted = int(rows.training.used.sum())
        _log.info("fitted to %d examples: %s", fitted, verdict.reason)
        return LearnReport(
            count, labelled, fitted, verdict.decision, verdict.reason, True, result.scales,
            result.loss, verdict.scores,
        )  # fmt: skip

    def forget(self, ids: Iterable[int]) -> Forgotten:
        """Delete examples, and fit to the others; see ``Device.forget``.

        One transaction: if the process is killed, either all examples are deleted or none.
        """
        task = self.task
        with task.folder.work:
            self._last = None
            with task.changing():
                count = forget(task, ids)
                if count and not self.fit().fitted:
                    # No personal evidence is left.
                    head = task.active.model.head
                    threshold = public_threshold(head.link, task.positive(head))
                    vendor = Change(head.vendor_model(), threshold)
                    task.commit(task.active, vendor)
                if count:
                    drop_copies(task.folder.path)
            return Forgotten(count, overwritten=task.store.scrub())

    def _keep(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Store examples with their labels, and the vectors of items."""
        active, store = self.task.active, self.task.store
        vectors, named = item_vectors(store, active, examples), store.texts.named(examples)
        with store.transaction():
            ids = store.examples.remember(named, labels)
            store.embeddings.add(active.record.backbone, vectors)
        return ids

    def _encode(self, examples: Sequence[Example]) -> OpenSlot:
        """Encode texts without an embedding, and store the result; returns the active slot."""
        task, texts = self.task, unique_texts(examples)

        def encode(active: OpenSlot) -> OpenSlot:
            digest, backbone = active.record.backbone, active.active_model.backbone
            fresh = encode_missing(task.store, digest, backbone, texts)
            task.keep_embeddings(digest, fresh)
            return active

        return task.using(encode, examples)

    def _resumed(
        self, active: OpenSlot, before: Version, examples: Sequence[Example]
    ) -> LastFit | None:
        """Resume the last fit of very many examples from a sample; None if it needs a full fit.

        An opened device has only the fit's model, not its state.
        """
        store = self.task.store
        record = store.slots.fit(active.record.name)
        if record is None or record.data != before.data or record.fitted <= LARGEST:
            return None
        # With the new examples' earlier rows: they are removed if the label changed.
        ids = sorted({*store.examples.some_labelled(_SAMPLE), *store.examples.ids(examples)})
        previous = self.task.previous if active.bundle.bridges() else None
        space = Space.of_model(active, previous, record.scales)
        rows = gather(Snapshot(store, ids=ids), space)
        training = rows.training
        if not training.labelled.any():
            return None
        state = resume(training, record.scales, record.fitted, record.further)
        positions = {row: position for position, row in enumerate(rows.ids)}
        return LastFit(before, state, space, positions, record, "added to the last fit")

    def _add(
        self,
        active: OpenSlot,
        last: LastFit,
        ids: Sequence[int],
        labels: Sequence[str | None],
    ) -> LearnReport | None:
        """Add labelled examples to the last fit, at its scales; None if it needs a full fit."""
        task, state, record = self.task, last.state, last.record
        total = state.fitted + state.further + len(ids)
        if total < SMALL or total > (1 + LARGEST_GROWTH) * state.fitted:
            return None
        labelled = {row for row, label in zip(ids, labels, strict=True) if label is not None}
        positions = dict(last.positions)
        if labelled:
            new = gather(Snapshot(task.store, ids=sorted(labelled)), last.space)
            replaced = {at: positions[row] for at, row in enumerate(new.ids) if row in positions}
            positions |= {row: state.count + at for at, row in enumerate(new.ids)}
            state = state.more(new.training, replaced)
        data = task.store.slots.version().data
        record = replace(record, data=data, further=state.further)
        if record.decision != "vendor":  # the vendor's model stays until the next check
            full, calibrated = state.candidates()
            blended = calibrated.towards(full, record.trust)
            model = personal_of(active.model.head, blended.weights, blended.bias)
            change = Change(model, active.record.threshold, active.record.loss, fit=record)
            try:
                active = task.commit(active, change)
            except DeviceChangedError:
                return None
        version = Version(active.generation, data)
        self._last = replace(last, version=version, state=state, positions=positions, record=record)
        count, with_label = task.store.examples.counts()
        return LearnReport(
            count, with_label, state.fitted + state.further, cast(Decision, record.decision),
            last.reason, False, record.scales, active.record.loss,
        )  # fmt: skip


def fit_all(folder: Folder) -> None:
    """Fit the models of all tasks of a folder."""
    for task in (Task(folder), *further_tasks(folder)):
        Learner(task).fit()


def _last_fit(active: OpenSlot, result: Refit) -> LastFit | None:
    """The fit that further examples can be added to; None without one."""
    rows, data = result.rows, result.rows.snapshot.data
    record = result.record(data)
    if record is None or result.fit is None or result.fit.state is None:
        return None
    if not rows.training.labelled.any():
        return None
    used = np.flatnonzero(rows.training.used).tolist()
    positions = {rows.ids[position]: at for at, position in enumerate(used)}
    return LastFit(
        Version(active.generation, data), result.fit.state, rows.space, positions, record,
        result.verdict.reason,
    )  # fmt: skip
