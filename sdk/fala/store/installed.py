"""A device's folder and what answers in it; every change of model goes through here."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceError
from fala.model.heads import PersonalModel
from fala.store.database import doctor
from fala.store.open_slot import OpenSlot
from fala.store.records import FitRecord
from fala.store.slots import SLOTS, install, model_digest, slot_record, sweep
from fala.store.store import Store
from fala.store.versions import note_version

_log = logging.getLogger("fala.store")

#: The setting that tells what was known when the other slot was left.
_LEFT_AT = "left at"

Logits = Mapping[int, NDArray[np.float32]]


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
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store
        self.work = RLock()
        self._swap = RLock()
        try:
            self._now = self._open()
        except BundleError as error:
            raise type(error)(f"{error}; {doctor(path)}") from error
        store.task = self._now.model.head.task

    @property
    def now(self) -> OpenSlot:
        """What answers: in this folder, so also what another process has installed meanwhile."""
        if self.store.version().generation != self._now.generation:
            with self._swap:
                if self.store.version().generation != self._now.generation:
                    self._now = self._open()
        return self._now

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
                data = str(self.store.version().data)
                said = self.store.get(_LEFT_AT) != data
                self.store.set(_LEFT_AT, data)
            self._now = earlier
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
        """Install a release in the idle slot, and let it answer, in one transaction.

        The release is copied inside the transaction: no other process sweeps it away before its
        row is there.

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
            with self._swap:
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
                    note_version(store, bundle.manifest, base.bundle.manifest)
                    store.set(_LEFT_AT, str(store.version().data))
                    store.prune({*bundle.bridges(), *base.bundle.bridges()})
                self._now = OpenSlot.of(generation, record, installed, change.model, backbone)
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
            try:
                slot = OpenSlot.open(self.path, self.store, self.store.active()[0], generation)
            except (BundleError, DeviceError):
                # Another process may have swept its bundle away, having installed others.
                if self.store.version().generation == generation:
                    raise
                continue
            if self.store.version().generation == generation:
                return slot
