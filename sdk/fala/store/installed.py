"""A device's folder and what answers in it; every change of model goes through here."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, RLock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceChangedError, DeviceError
from fala.examples import Example
from fala.model.answering import Answering
from fala.model.heads import PersonalModel
from fala.store.database import doctor
from fala.store.open_slot import OpenSlot
from fala.store.records import FitRecord
from fala.store.slots import SLOTS, install, model_digest, slot_record, sweep
from fala.store.store import Store
from fala.store.trial import ODD, TRIES, Trials, answer_probes, is_proof
from fala.store.versions import note_version

_log = logging.getLogger("fala.store")

#: The setting that tells what was known when the other slot was left.
_LEFT_AT = "left at"

Logits = Mapping[int, NDArray[np.float32]]
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Change:
    """What is to answer, to be written in one transaction.

    Attributes:
        model: The personal model.
        threshold: Its decision threshold.
        loss: Its cross-entropy on the labelled examples, each left out; None where it is not known.
        embeddings: Embeddings of the model's backbone to keep with it, by text.
        fit: What it was fitted to; None where nothing can be added to that.
    """

    model: PersonalModel
    threshold: float = 0.0
    loss: float | None = None
    embeddings: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    fit: FitRecord | None = None


class Installed:
    """A device's folder with its store, and the model that answers.

    Attributes:
        path: The folder.
        store: Its store, open.
        work: Held by whoever reads, fits and writes; never while texts are encoded for long.
        trials: The trial of a slot that has not proved itself.
        behind: Whether the device fell back here to a model that lacks what was said since.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store
        self.work = RLock()
        self.trials = Trials(path, store)
        self.behind = False
        self._swap = RLock()
        self._proving = Lock()
        try:
            self._now = self._open()
        except BundleError as error:
            raise type(error)(f"{error}; {doctor(path)}") from error
        store.task = self._now.model.head.task

    def close(self) -> None:
        """Close the store."""
        self.trials.flush()
        self.store.close()

    @property
    def now(self) -> OpenSlot:
        """What answers: in this folder, so also what another process has installed meanwhile."""
        if self.store.version().generation != self._now.generation:
            with self._swap:
                if self.store.version().generation != self._now.generation:
                    self._now = self._open()
        return self._now

    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """What answers, loaded: one on trial must first answer probes here, or gives way.

        Args:
            examples: What it is about to be asked: the first few are among the probes.

        Raises:
            BundleError: It cannot answer, and there is nothing to fall back to.
        """
        while True:
            now = self.now
            if now.trial is None or self.trials.has_passed(now.trial):
                return now
            with self._proving:
                if not self.trials.has_passed(now.trial):
                    self._prove(now, now.trial, examples)

    def ask(
        self,
        examples: Sequence[Example],
        how: Callable[[Answering, Sequence[Example]], Answer],
    ) -> Answer:
        """Ask what answers; where it is on trial and fails, the earlier slot answers.

        Raises:
            BundleError: It cannot answer, and there is nothing to fall back to.
        """
        now = self.ready(examples)
        try:
            with self.expecting(now):
                answer = how(now.answering, examples)
        except DeviceChangedError:  # its release was swept away before it was loaded
            return self.ask(examples, how)
        except BundleError as error:
            if not is_proof(error) or not self._fall_back(now.generation, str(error)):
                raise
            return self.ask(examples, how)
        if now.trial is not None:
            self.trials.answered(now.trial, len(examples))
        return answer

    @contextlib.contextmanager
    def expecting(self, now: OpenSlot) -> Iterator[None]:
        """Use a slot's files, and those of the earlier one, which another process may sweep away.

        Raises:
            DeviceChangedError: They are gone, and something else answers by now.
            BundleError: They cannot be used.
        """
        try:
            yield
        except BundleError as error:
            gone = isinstance(error.__cause__, FileNotFoundError)
            if not gone or self.store.version().generation == now.generation:
                raise
            raise DeviceChangedError(
                f"{self.path}: the device's model was changed meanwhile"
            ) from error

    def confirm(self) -> None:
        """End the trial of what answers: it has proved itself."""
        with self.store.transaction():
            if self.trials.running() is not None:
                self.trials.end()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """All that is changed inside, examples and what answers, is kept at once or not at all."""
        with self.work, self._swap:
            before = self._now
            try:
                with self.store.transaction():
                    yield
            except BaseException:
                self._now = before
                raise

    def earlier(self) -> OpenSlot | None:
        """What answered before the last replacement; None where nothing did, or it is damaged."""
        _, previous = self.store.active()
        if previous is None:
            return None
        try:
            return OpenSlot.open(self.path, self.store, previous, self._now.generation)
        except (BundleError, DeviceError) as error:
            _log.warning("the earlier slot cannot be used: %s", error)
            return None

    def roll_back(self) -> bool:
        """Let what answered before the last replacement answer again.

        Returns:
            Whether anything was said or forgotten since that replacement.

        Raises:
            DeviceError: If no earlier model is kept.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        with self.work, self._swap:
            with self.store.transaction():
                generation = self.store.version().generation
                slot, previous = self.store.active()
                if previous is None:
                    raise DeviceError(f"{self.path}: there is no earlier model to go back to")
                # Verified before it answers.
                earlier = OpenSlot.open(self.path, self.store, previous, generation + 1)
                self.store.activate(previous, slot)
                self.store.advance(generation)
                trial = self.trials.resume(previous, generation + 1)
                data = str(self.store.version().data)
                said = self.store.get(_LEFT_AT) != data
                self.store.set(_LEFT_AT, data)
            self._now = replace(earlier, trial=trial)
        return said

    def keep(self, base: OpenSlot, change: Change) -> OpenSlot:
        """Let another personal model of the same bundle answer.

        Args:
            base: The slot that the model was fitted for.
            change: The model.

        Raises:
            DeviceChangedError: Something else answers by now.
        """
        record = slot_record(
            base.record.name, base.bundle, change.model, base.record.teacher,
            base.record.teacher_vendor, threshold=change.threshold,
            loss=change.loss,
        )  # fmt: skip
        with self._swap:
            with self.store.transaction():
                self.store.add_embeddings(base.record.backbone, change.embeddings)
                self.store.put_slot(record)
                self.store.set_fit(record.name, change.fit)
                generation = self.store.advance(base.generation)
            now = base.changed(generation, record, change.model)
            self._now = now
        return now

    def keep_embeddings(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep embeddings of a backbone, by text."""
        with self.store.transaction():
            self.store.add_embeddings(backbone, embeddings)

    def commit(
        self,
        base: OpenSlot,
        bundle: Bundle,
        backbone: Backbone,
        change: Change,
        taught: tuple[Logits, Logits] | None,
    ) -> OpenSlot:
        """Install a release in the idle slot, and let it answer, on trial, in one transaction.

        The release is copied inside the transaction: no other process sweeps it away before its
        row is there. What answered is what the device goes back to: its own trial, if it was on
        one, ends with that. It has answered in this process (see ``ready``), and whoever replaces
        it says that they would come back to it.

        Args:
            base: The slot that answered while all this was prepared.
            bundle: The release.
            backbone: Its backbone, loaded.
            change: Its personal model.
            taught: What the old model and its vendor's say of examples, by id: kept.

        Raises:
            DeviceError: The folder cannot be written.
            DeviceChangedError: Something else answers by now.
        """
        store, idle = self.store, next(name for name in SLOTS if name != base.record.name)
        teachers: tuple[str, ...] = ()
        if taught is not None:
            vendor = base.model.head.vendor_model()
            teachers = base.record.model, model_digest(base.bundle, vendor)
        try:
            with self._swap, self.expecting(base):
                sources = {*bundle.bridges(), *base.bundle.bridges()}
                with store.transaction():
                    generation = store.advance(base.generation)
                    installed = install(bundle, self.path)
                    record = slot_record(
                        idle, installed, change.model, *teachers, threshold=change.threshold,
                        loss=change.loss,
                    )  # fmt: skip
                    store.add_embeddings(bundle.backbone_digest, change.embeddings)
                    for name, values in zip(teachers, taught or (), strict=True):
                        store.add_logits(name, values)
                    store.put_slot(record)
                    store.set_fit(idle, change.fit)
                    store.activate(idle, base.record.name)
                    self.trials.begin(idle, generation)
                    note_version(store, bundle.manifest, base.bundle.manifest)
                    store.set(_LEFT_AT, str(store.version().data))
                    store.prune(sources)
                self._now = OpenSlot.of(
                    generation, record, installed, change.model, backbone, generation
                )
        except OSError as error:
            raise DeviceError(f"{self.path}: {error.strerror or error}") from error
        finally:
            # What a failed installation left goes too.
            with contextlib.suppress(DeviceError), store.transaction():
                sweep(self.path, store.bundles())
        return self._now

    def _open(self) -> OpenSlot:
        """The active slot, as it is at one generation."""
        while True:
            generation = self.store.version().generation
            if self._given_up(generation):
                continue
            try:
                trial = self.trials.running()
                slot = OpenSlot.open(self.path, self.store, self.store.active()[0], generation)
            except (BundleError, DeviceError) as error:
                # Another process may have swept its bundle away, having installed others.
                if self.store.version().generation != generation:
                    continue
                if not is_proof(error) or not self._fall_back(generation, str(error)):
                    raise
                continue
            if self.store.version().generation == generation:
                return slot if trial is None else replace(slot, trial=trial.began)

    def _given_up(self, generation: int) -> bool:
        """Fall back from a slot that too many processes died of; nobody loads it for that."""
        trial = self.trials.running()
        if trial is None or trial.tries < TRIES:
            return False
        with self.trials.alone() as alone:  # else the last try is still going on
            trial = self.trials.running()
            if not alone or trial is None or trial.tries < TRIES:
                return False
            died = f"{trial.tries} processes in a row ended while it was loaded, or first asked"
            return self._fall_back(generation, died)

    def _prove(self, now: OpenSlot, began: int, examples: Sequence[Example]) -> None:
        """Let a slot on trial answer probes, with a try counted before and taken back after."""
        with self.trials.alone() as alone:
            trial = self.trials.running()
            if trial is None or trial.began != began:  # confirmed, or left, by somebody else
                self.trials.passed(began, 0)
                return
            if alone:
                self.trials.count(began, trial.tries + 1)
            try:
                answer_probes(now.answering, examples, self.store.newest_texts(len(ODD)))
            except BundleError as error:
                if not is_proof(error) or not self._fall_back(now.generation, str(error)):
                    raise
                return
            if alone:
                self.trials.count(began, 0)
            self.trials.passed(began, trial.answered)

    def _fall_back(self, generation: int, reason: str) -> bool:
        """Let the earlier slot answer in place of one on trial, which is given up.

        Returns:
            Whether something else answers now; False where the slot is not on trial, or the
            earlier one is no better.
        """
        try:
            with self._swap:
                with self.store.transaction():
                    if self.store.version().generation != generation:
                        return True  # somebody else was first
                    _, previous = self.store.active()
                    if previous is None or self.trials.running() is None:
                        return False
                    earlier = OpenSlot.open(self.path, self.store, previous, generation + 1)
                    # No way back to it: what cannot answer is nothing to go back to.
                    self.store.activate(previous, None)
                    self.store.advance(generation)
                    self.trials.end(reason)
                    said = self.store.get(_LEFT_AT) != str(self.store.version().data)
                self._now = earlier
        except (BundleError, DeviceError) as error:
            _log.warning("the earlier slot cannot take over: %s", error)
            return False
        self.behind = self.behind or said
        name = earlier.bundle.manifest.name
        _log.warning("%s: fell back to %s: %s", self.path, name, reason)
        return True
