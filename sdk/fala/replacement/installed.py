"""A device's folder and what answers in it; every change of model goes through here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala.backbones import Backbone
from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceError
from fala.model.answering import Answering
from fala.replacement.fitting import Fitted
from fala.replacement.representing import Knowledge
from fala.store.slots import SLOTS, install, model_digest, slot_record, sweep
from fala.store.store import Store


class Installed:
    """A device's folder with its store, and the model that answers.

    Attributes:
        path: The folder.
        store: Its store, open.
        now: What answers.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self.store = store
        self.now = Answering.open(path, store, store.active()[0])

    def earlier(self) -> Answering | None:
        """What answered before the last replacement; None where nothing did, or it is damaged."""
        _, previous = self.store.active()
        if previous is None:
            return None
        with contextlib.suppress(BundleError, DeviceError):
            return Answering.open(self.path, self.store, previous)
        return None

    def roll_back(self) -> None:
        """Let what answered before the last replacement answer again.

        Raises:
            DeviceError: If no earlier model is kept.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        slot, previous = self.store.active()
        if previous is None:
            raise DeviceError(f"{self.path}: there is no earlier model to go back to")
        earlier = Answering.open(self.path, self.store, previous)  # verified before it answers
        with self.store.transaction():
            self.store.activate(previous, slot)
        self.now = earlier

    def keep(
        self, fitted: Fitted, embeddings: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        """Let another personal model of the same bundle answer.

        Args:
            fitted: The model.
            embeddings: Embeddings to keep with it, by text.
        """
        now = self.now
        record = slot_record(
            now.record.name, now.bundle, fitted.model, now.record.teacher,
            now.record.teacher_vendor, threshold=fitted.threshold, view=fitted.view,
        )  # fmt: skip
        with self.store.transaction():
            self.store.add_embeddings(now.record.backbone, embeddings or {})
            self.store.put_slot(record)
        self.now = now.changed(record, fitted.model)

    def commit(
        self,
        bundle: Bundle,
        backbone: Backbone,
        fitted: Fitted,
        taught: tuple[Sequence[int], Knowledge] | None,
        embeddings: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        """Write the idle slot, then let it answer, in one transaction.

        Args:
            bundle: The release; it is copied.
            backbone: Its backbone, loaded.
            fitted: Its personal model.
            taught: Examples' ids, and what the old model says of them: its logits are kept.
            embeddings: New embeddings to keep, by text.

        Raises:
            DeviceError: The folder cannot be written.
        """
        now, store = self.now, self.store
        idle = next(name for name in SLOTS if name != now.record.name)
        teachers: tuple[str, ...] = ()
        if taught is not None:
            teachers = now.record.model, model_digest(now.bundle, now.model.head.vendor_model())
        try:
            installed = install(bundle, self.path)
            record = slot_record(
                idle, installed, fitted.model, *teachers,
                threshold=fitted.threshold, view=fitted.view,
            )  # fmt: skip
            with store.transaction():
                store.add_embeddings(bundle.backbone_digest, embeddings or {})
                if taught is not None:
                    ids, knowledge = taught
                    logits = (knowledge.logits, knowledge.vendor_logits)
                    for name, values in zip(teachers, logits, strict=True):
                        store.add_logits(name, dict(zip(ids, values, strict=True)))
                store.put_slot(record)
                store.activate(idle, now.record.name)
                store.prune({*bundle.bridges(), *now.bundle.bridges()})
        except OSError as error:
            raise DeviceError(f"{self.path}: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(DeviceError):
                sweep(self.path, store.bundles())
        view = None
        if fitted.view is not None:
            own = fitted.view.bundle == now.record.bundle
            view = now.bundle if own else now.view_bundle
        self.now = Answering(record, installed, fitted.model, view, backbone=backbone)
