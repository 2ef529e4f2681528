"""The model of a slot, with the earlier view that has a say beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fala.backbones import Backbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import DataError, DeviceError
from fala.examples import Example, unique_texts
from fala.model.heads import PersonalModel, Vectors
from fala.solver.blend import View
from fala.store.slots import bundle_digest, bundle_path, open_release
from fala.store.store import SlotRecord, Store


class Answering:
    """A slot's model, ready to answer.

    Args:
        record: The slot's row.
        bundle: Its bundle.
        model: Its personal model.
        view_bundle: The earlier view's bundle, where the record has a view.
        backbone: The backbone, if it is loaded already; it is loaded when first needed.
        view_backbone: The earlier view's.
    """

    def __init__(
        self,
        record: SlotRecord,
        bundle: Bundle,
        model: PersonalModel,
        view_bundle: Bundle | None = None,
        *,
        backbone: Backbone | None = None,
        view_backbone: Backbone | None = None,
    ) -> None:
        self.record = record
        self.bundle = bundle
        self.model = model
        self.view_bundle = view_bundle
        self._backbone = backbone
        self._view_backbone = view_backbone
        self.view: View | None = None
        if record.view is not None and view_bundle is not None:
            head = view_bundle.head()
            if head is None:
                raise DataError(f"{view_bundle.path}: a view without a head")
            view_model = PersonalModel(head, record.view.theta, record.view.bias)
            self.view = View(view_model, record.view.weight)

    @classmethod
    def open(cls, device: Path, store: Store, slot: str) -> Answering:
        """Open a slot's bundles, verified.

        Raises:
            BundleError: A bundle is damaged.
            DeviceError: A bundle is not the one installed, or the slot's row is damaged.
        """
        record = store.slot(slot)
        bundle, head = open_release(bundle_path(device, record.bundle))
        view_bundle = None
        opened = [(bundle, record.bundle)]
        if record.view is not None:
            view_bundle = Bundle.open(bundle_path(device, record.view.bundle))
            opened.append((view_bundle, record.view.bundle))
        for one, digest in opened:
            if bundle_digest(one) != digest:
                raise DeviceError(f"{one.path}: not the bundle that was installed")
        try:
            model = PersonalModel(head, record.theta, record.bias)
            return cls(record, bundle, model, view_bundle)
        except DataError as error:
            raise DeviceError(f"{device}: slot {slot} is damaged: {error}") from error

    def changed(self, record: SlotRecord, model: PersonalModel) -> Answering:
        """Another personal model, and weight of the view, on the same backbones."""
        return Answering(
            record,
            self.bundle,
            model,
            None if record.view is None else self.view_bundle,
            backbone=self._backbone,
            view_backbone=self._view_backbone,
        )

    @property
    def backbone(self) -> Backbone:
        """The backbone; loading it costs a session, which looking at a device does not need."""
        if self._backbone is None:
            self._backbone = self.bundle.backbone()
        return self._backbone

    @property
    def view_backbone(self) -> Backbone | None:
        """The earlier view's backbone, None without a view."""
        if self._view_backbone is None and self.view_bundle is not None:
            self._view_backbone = self.view_bundle.backbone()
        return self._view_backbone

    @property
    def blended(self) -> bool:
        """Whether the earlier view has a say: its weight is 0 where the vendor's model won."""
        return self.view is not None and bool(self.view.weight.any())

    def logits(self, examples: Sequence[Example]) -> Vectors:
        """Logits of n examples, shape (n, C)."""
        texts = unique_texts(examples)
        embeddings = dict(zip(texts, self.backbone.encode(texts), strict=True))
        z = self.model.logits(self.model.head.inputs(examples, embeddings))
        if self.view is not None and self.view_backbone is not None and self.blended:
            seen = dict(zip(texts, self.view_backbone.encode(texts), strict=True))
            z = z + self.view.logits(self.view.model.head.inputs(examples, seen))
        return np.asarray(z, dtype=np.float32)

    def costs(self) -> list[dict[str, Any]]:
        """Which views answer and what each costs; see ``Report.views``."""
        ones = np.ones_like(self.model.bias)
        views = [(self.bundle, ones)]
        if self.view is not None and self.view_bundle is not None and self.blended:
            views.append((self.view_bundle, self.view.weight))
        return [
            {
                "name": bundle.manifest.name,
                "weight": [round(float(value), 4) for value in weight],
                "forward_passes": 0 if bundle.manifest.kind == WORD_VECTORS else 1,
                "bytes": bundle.path.stat().st_size,
            }
            for bundle, weight in views
        ]
