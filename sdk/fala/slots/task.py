"""What answers for one task: a view of the device's store, and the slot that is active there."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.errors import BundleError, DeviceChangedError, DeviceError
from fala.examples import Example
from fala.model.active import ActiveModel
from fala.model.heads import Head, PersonalModel
from fala.slots.bundles import slot_record
from fala.slots.open_slot import OpenSlot
from fala.store.records import FitRecord, SlotRecord
from fala.store.store import Store

_log = logging.getLogger("fala.store")

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


class Task(ABC):
    """A task of a device: its store, and the model that answers for it.

    Attributes:
        path: The device's folder.
        store: Its store, open, seen for the task.
        work: Held by whoever reads, fits and writes; never while texts are encoded for long.
        swap: Held by whoever changes what answers.
        left_behind: The tasks that are ``behind``, by their adapters; the same for all of them.

    Args:
        path: See above.
        store: See above.
        work: See above; all tasks of a device have the same one.
        swap: See above; all tasks of a device have the same one.
    """

    def __init__(self, path: Path, store: Store, work: RLock, swap: RLock) -> None:
        self.path = path
        self.store = store
        self.work = work
        self.left_behind: set[str] = set()
        self.swap = swap
        self._now: OpenSlot | None = None

    @property
    def now(self) -> OpenSlot:
        """What answers: in this folder, so also what another process has installed meanwhile."""
        now = self._now
        if now is None or self.store.slots.version().generation != now.generation:
            with self.swap:
                now = self._now
                if now is None or self.store.slots.version().generation != now.generation:
                    self._now = now = self._open()
        return now

    @property
    def behind(self) -> bool:
        """Whether the device fell back here to a model that lacks what was said since."""
        return self.store.adapter in self.left_behind

    @behind.setter
    def behind(self, value: bool) -> None:
        (self.left_behind.add if value else self.left_behind.discard)(self.store.adapter)

    def positive(self, head: Head | None = None) -> int:
        """Position of the label, of two, whose F1 thresholds are for.

        Args:
            head: Whose labels; None takes what answers.
        """
        labels = self.now.model.head.labels if head is None else head.labels
        named = self.store.slots.positive()
        return labels.index(named) if named in labels else len(labels) - 1

    @abstractmethod
    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """What answers, loaded: one on trial must first answer probes here, or gives way.

        Args:
            examples: What it is about to be asked: the first few are among the probes.

        Raises:
            BundleError: It cannot answer, and there is nothing to fall back to.
        """

    @abstractmethod
    def earlier(self) -> OpenSlot | None:
        """What answered before the last replacement; None where nothing did, or it is damaged."""

    @abstractmethod
    def prune(self) -> None:
        """Drop what no slot of any task can use any more. In a transaction."""

    def ask(
        self,
        examples: Sequence[Example],
        how: Callable[[ActiveModel, Sequence[Example]], Answer],
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
            if not self.gave_way(now, error):
                raise
            return self.ask(examples, how)
        self.answered(now, len(examples))
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
            if not gone or self.store.slots.version().generation == now.generation:
                raise
            raise DeviceChangedError(
                f"{self.path}: the device's model was changed meanwhile"
            ) from error

    @abstractmethod
    def slot(self, name: str) -> OpenSlot:
        """A slot as it is by now."""

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction of several changes of what answers; nobody sees one without the others."""
        with self.swap:
            before = self.now
            try:
                with self.store.transaction():
                    if self.store.slots.version().generation != before.generation:
                        before = self._now = self._open()
                    yield
            except BaseException:
                self._now = before
                raise

    def rewrite(self, record: SlotRecord) -> None:
        """Write a slot's row; what answers stays as it is but for its teacher. In ``changing``."""
        now = self.now
        self.store.slots.put(record)
        if record.name == now.record.name:
            generation = self.store.slots.advance(now.generation)
            self._now = now.changed(generation, record, now.model)

    def drop_unusable(self) -> None:
        """Delete the slots that cannot be opened, or gone back to. In ``changing``."""
        active = self.now.record.name
        earlier = self.earlier()
        kept = None if earlier is None else earlier.record.name
        self.store.slots.activate(active, kept)
        for name in self.store.slots.names() - {active, kept}:
            self.store.slots.drop(name)

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
            loss=change.loss, backbone=base.record.backbone, prompt=base.record.prompt,
        )  # fmt: skip
        with self.swap:
            with self.store.transaction():
                self.store.embeddings.add(base.record.backbone, change.embeddings)
                self.store.slots.put(record)
                self.store.slots.set_fit(record.name, change.fit)
                generation = self.store.slots.advance(base.generation)
            now = base.changed(generation, record, change.model)
            self._now = now
        return now

    def keep_embeddings(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep embeddings of a backbone, by text."""
        with self.store.transaction():
            self.store.embeddings.add(backbone, embeddings)

    @abstractmethod
    def _open(self) -> OpenSlot:
        """The active slot, as it is at one generation."""

    @abstractmethod
    def gave_way(self, now: OpenSlot, error: BundleError) -> bool:
        """Whether what could not answer was on trial, and something else answers now."""

    @abstractmethod
    def answered(self, now: OpenSlot, count: int) -> None:
        """Count answers of what is on trial."""

    def _opened(self, name: str | None, generation: int, base: OpenSlot | None) -> OpenSlot | None:
        """A slot; None where there is none, or it is damaged."""
        if name is None:
            return None
        try:
            return OpenSlot.open(self.path, self.store, name, generation, base)
        except (BundleError, DeviceError) as error:
            _log.warning("the earlier slot cannot be used: %s", error)
            return None
