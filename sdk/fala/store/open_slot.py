"""A slot, opened: its bundles, verified, and what answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fala.backbones import Backbone, LazyBackbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import BundleMismatchError, DataError, DeviceError
from fala.model.answering import Answering
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.prior import PopulationPrior
from fala.model.view import View
from fala.store.records import THETA, SlotRecord
from fala.store.slots import bundle_path, lexical_weight, open_release
from fala.store.store import Store


@dataclass(frozen=True, eq=False)
class OpenSlot:
    """A slot as it was at one generation of the store; nothing in it changes.

    Attributes:
        generation: The store's, when it was read.
        record: The slot's row.
        bundle: Its bundle.
        answering: What answers.
        view_bundle: The earlier view's bundle, where the record has a view.
        view: The earlier view, also one whose weight is 0.
    """

    generation: int
    record: SlotRecord
    bundle: Bundle
    answering: Answering
    view_bundle: Bundle | None = None
    view: View | None = None

    @classmethod
    def open(cls, device: Path, store: Store, slot: str, generation: int) -> OpenSlot:
        """Open a slot's bundles, verified.

        Raises:
            BundleError: A bundle is damaged.
            DeviceError: A bundle is not the one installed, or the slot's row is damaged.
        """
        record = store.slot(slot)
        bundle, head = open_release(bundle_path(device, record.bundle))
        view_bundle = None
        if record.view is not None:
            view_bundle = Bundle.open(bundle_path(device, record.view.bundle))
        for one in (bundle, view_bundle):
            if one is not None and one.path.stem != one.digest:  # installed under its digest
                raise DeviceError(f"{one.path}: not the bundle that was installed")
        try:
            head = ordered(head, record.labels)
            words = lexical_weight(record.lexical, head)
            omega = _omega(record.weight, record.form, head)
            model = PersonalModel(head, omega, record.bias, words)
            view = _view(record, view_bundle)
        except DataError as error:
            raise DeviceError(f"{device}: slot {slot} is damaged: {error}") from error
        return cls.of(generation, record, bundle, model, view_bundle, view)

    @classmethod
    def of(
        cls,
        generation: int,
        record: SlotRecord,
        bundle: Bundle,
        model: PersonalModel,
        view_bundle: Bundle | None,
        view: View | None,
        backbone: Backbone | None = None,
        view_backbone: LazyBackbone | None = None,
    ) -> OpenSlot:
        """A slot of parts that are open already, with backbones that are loaded already."""
        if view_backbone is None and view_bundle is not None:
            view_backbone = lazy(view_bundle)
        answering = Answering(model, lazy(bundle, backbone), record.threshold, view, view_backbone)
        return cls(generation, record, bundle, answering, view_bundle, view)

    def changed(
        self, generation: int, record: SlotRecord, model: PersonalModel, view: View | None
    ) -> OpenSlot:
        """Another personal model, and weight of the view, on the same bundles."""
        answering = self.answering.changed(model, record.threshold, view)
        return replace(self, generation=generation, record=record, answering=answering, view=view)

    @property
    def model(self) -> PersonalModel:
        """The personal model."""
        return self.answering.model

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass."""
        return self.bundle.manifest.kind == WORD_VECTORS

    def prior(self) -> PopulationPrior | None:
        """The release's population prior, for the labels in the device's order."""
        return prior_of(self.bundle, self.model.head.labels)


def lazy(bundle: Bundle, backbone: Backbone | None = None) -> LazyBackbone:
    """A bundle's backbone, loaded when it is first needed, or loaded already."""
    transformer = bundle.manifest.kind != WORD_VECTORS
    if backbone is None:
        return LazyBackbone(bundle.backbone, transformer=transformer)
    return LazyBackbone(lambda: backbone, transformer=transformer)


def ordered(head: Head, labels: tuple[str, ...]) -> Head:
    """A head with its labels in the device's order; the head's own where there is none."""
    return head.in_order(labels) if labels else head


def prior_of(bundle: Bundle, labels: tuple[str, ...]) -> PopulationPrior | None:
    """A bundle's population prior, for its labels in another order."""
    prior = bundle.prior()
    if prior is None or tuple(bundle.manifest.labels) == labels:
        return prior
    return prior.reversed()


def _view(record: SlotRecord, bundle: Bundle | None) -> View | None:
    if record.view is None or bundle is None:
        return None
    head = bundle.head()
    if head is None:
        raise BundleMismatchError(f"{bundle.path}: a view without a head")
    # Only what the earlier backbone's embeddings say: the words have a block of their own.
    head = ordered(head, record.labels).without_words()
    own = _omega(record.view.own, record.view.form, head)
    return View(PersonalModel(head, own, record.view.bias), record.view.weight)


def _omega(weight: Vectors, form: str, head: Head) -> Vectors:
    """Weights as omega: earlier versions kept the personal matrix theta = omega / w."""
    if form != THETA or weight.shape != head.weight.shape:
        return weight
    return np.asarray(weight * head.weight, dtype=np.float32)
