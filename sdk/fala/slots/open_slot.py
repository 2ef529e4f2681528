"""A slot, opened: its bundles, verified, and its model on its backbone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from fala.backbones import Backbone, LazyBackbone, OnnxEncoder
from fala.backbones.backbone import AdaptedBackbone
from fala.backbones.external import Encoders
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError, DataError, DeviceError, DimensionError, counted
from fala.model.active import ActiveModel
from fala.model.heads import Head, PersonalModel
from fala.model.prior import PopulationPrior
from fala.slots.bundles import (
    bundle_path,
    lexical_weight,
    model_digest,
    open_adapter,
    open_release,
)
from fala.store.database import damaged, doctor
from fala.store.records import SlotRecord
from fala.store.store import Store

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class OpenSlot:
    """A slot as it was at one generation of the store; nothing in it changes.

    Attributes:
        generation: The store's, when it was read.
        record: The slot's row.
        bundle: Its bundle.
        active_model: Its personal model on its backbone, with the threshold.
        trial: The generation at which its trial began, see ``Trial``; None if it is not on trial.
    """

    generation: int
    record: SlotRecord
    bundle: Bundle
    active_model: ActiveModel
    trial: int | None = None

    @classmethod
    def open(
        cls,
        store: Store,
        slot: str,
        generation: int,
        base: OpenSlot | None = None,
        encoders: Encoders | None = None,
    ) -> OpenSlot:
        """Open a slot's bundle, verified.

        Args:
            store: The store, in the device's folder.
            slot: The slot's name.
            generation: The store's.
            base: For an adapter's slot: the slot whose backbone it adapts.
            encoders: The app's own.

        Raises:
            BundleError: A bundle is damaged, or an adapter's is for another base.
            DeviceError: A bundle is not the one installed, or the slot's row is damaged.
        """
        path, device, record = store.path, store.path.parent, store.slots.get(slot)
        if not _DIGEST.fullmatch(record.bundle):
            raise DeviceError(damaged(path, f"slot {slot:.60} is damaged: no digest of a bundle"))
        open_bundle = open_release if base is None else open_adapter
        bundle, head = open_bundle(bundle_path(device, record.bundle))
        if bundle.path.stem != bundle.digest:  # installed under its digest
            raise DeviceError(f"{bundle.path}: not the bundle that was installed; {doctor(device)}")
        try:
            model = _model(record, bundle, head)
        except DataError as error:
            raise DeviceError(damaged(path, f"slot {slot:.60} is damaged: {error}")) from error
        backbone = lazy_backbone(bundle, lambda: bundle.backbone(encoders))
        if base is not None:
            backbone = adapted_backbone(bundle, base.bundle, base.active_model.backbone)
        return cls.of(generation, record, bundle, model, backbone)

    @classmethod
    def of(
        cls,
        generation: int,
        record: SlotRecord,
        bundle: Bundle,
        model: PersonalModel,
        backbone: LazyBackbone,
        trial: int | None = None,
    ) -> OpenSlot:
        """A slot of parts that are open."""
        active_model = ActiveModel(model, backbone, record.threshold)
        return cls(generation, record, bundle, active_model, trial)

    def sharing(self, earlier: OpenSlot | None) -> OpenSlot:
        """The same, with the backbone of an earlier snapshot if that is of the same release."""
        if earlier is None or earlier.bundle.digest != self.bundle.digest:
            return self
        backbone = earlier.active_model.backbone
        return replace(self, active_model=replace(self.active_model, backbone=backbone))

    def changed(self, generation: int, record: SlotRecord, model: PersonalModel) -> OpenSlot:
        """Another personal model on the same bundle."""
        active_model = self.active_model.changed(model, record.threshold)
        return replace(self, generation=generation, record=record, active_model=active_model)

    @property
    def model(self) -> PersonalModel:
        """The personal model."""
        return self.active_model.model

    @property
    def teachers(self) -> tuple[str, str]:
        """Digests of the personal and the vendor's model, the provenance of their logits."""
        vendor = self.model.head.vendor_model()
        return self.record.model, model_digest(self.bundle, vendor)

    def prior(self) -> PopulationPrior | None:
        """The release's population prior, for the labels in the device's order."""
        return prior_of(self.bundle, self.model.head.labels)


def lazy_backbone(bundle: Bundle, load: Callable[[], Backbone]) -> LazyBackbone:
    """A bundle's backbone, loaded on first use."""
    return LazyBackbone(load, transformer=bundle.manifest.kind != WORD_VECTORS)


def adapted_backbone(bundle: Bundle, release: Bundle, backbone: LazyBackbone) -> LazyBackbone:
    """A release's backbone with an adapter in it, loaded on first use.

    Args:
        bundle: The adapter's.
        release: The release that it adapts.
        backbone: Its backbone.

    Raises:
        BundleMismatchError: The adapter is for another backbone.
        DimensionError: Its head is for embeddings of another length.
    """
    bundle.check_base(release)
    if bundle.manifest.dimension != release.manifest.dimension:
        raise DimensionError(
            f"{bundle.path}: for embeddings of {counted(bundle.manifest.dimension, 'dimension')}; "
            f"its backbone gives {release.manifest.dimension}"
        )

    def load() -> Backbone:
        encoder = backbone.loaded
        if not isinstance(encoder, OnnxEncoder):
            raise BundleFormatError(
                f"{bundle.path}: an adapter for a backbone that takes none; a transformer may"
            )
        return AdaptedBackbone(encoder, bundle.adapter())

    return LazyBackbone(load, transformer=True)


def prior_of(bundle: Bundle, labels: tuple[str, ...]) -> PopulationPrior | None:
    """A bundle's population prior, for its labels in another order."""
    prior = bundle.prior()
    if prior is None or tuple(bundle.manifest.labels) == labels:
        return prior
    return prior.reversed()


def _model(record: SlotRecord, bundle: Bundle, head: Head) -> PersonalModel:
    """The personal model of a slot's row.

    Raises:
        DataError: It does not fit the bundle, or is not the one that was stored.
    """
    head = head.in_order(record.labels)
    model = PersonalModel(head, record.weight, record.bias, lexical_weight(record.lexical, head))
    if record.backbone != bundle.backbone_digest:
        raise DataError("the backbone is not the bundle's")
    if record.model != model_digest(bundle, model):
        raise DataError("the personal model is not the one that was kept: its digest differs")
    return model
