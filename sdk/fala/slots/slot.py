"""A slot, which is a release with its personal model, and its row in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fala.base.errors import DataError
from fala.base.examples import Example
from fala.bundle.reading import Bundle
from fala.model.heads import PersonalModel, Vectors
from fala.model.logits import logits, probe
from fala.slots.release import Release
from fala.solver.decision import Decision
from fala.store.slots import FitRecord, SlotRecord


@dataclass(frozen=True, eq=False)
class Slot:
    """A release with its personal model; nothing in it changes.

    Attributes:
        record: The slot's row.
        release: The slot's release.
        model: The slot's personal model.
    """

    record: SlotRecord
    release: Release
    model: PersonalModel

    @classmethod
    def of(cls, record: SlotRecord, release: Release) -> Slot:
        """Open the personal model of a slot's row.

        Raises:
            DataError: If the model does not fit the release, or is not the one that was stored.
        """
        head = release.head.in_order(record.labels)
        model = PersonalModel(head, record.weight, record.bias, record.ngrams)
        if record.backbone != release.bundle.backbone_digest:
            raise DataError("the backbone is not the bundle's")
        if record.model != model_digest(release.bundle, model):
            raise DataError("the personal model is not the one that was stored: its digest differs")
        return cls(record, release, model)

    def fitted(
        self, model: PersonalModel, loss: float | None = None, fit: FitRecord | None = None
    ) -> Slot:
        """Return the slot with another personal model of the same release.

        Args:
            model: The personal model.
            loss: The model's leave-one-out cross-entropy on the labelled examples; None if unknown.
            fit: The record of the model's fit; None if no example can be added to it.
        """
        name, teacher = self.record.name, self.record.teacher
        record = slot_record(name, self.release.bundle, model, loss, fit, teacher)
        record = replace(record, replacement=self.record.replacement)
        return Slot(record, self.release, model)

    def logits(self, examples: Sequence[Example]) -> Vectors:
        """Return the personal model's logits of n examples, (n, C); see ``fala.model.logits``."""
        return logits(self.model, self.release.backbone.encode, examples)

    def probe(self, texts: Sequence[str]) -> Vectors:
        """Return the personal model's logits of some texts, (n, C), finite or not."""
        return probe(self.model, self.release.backbone.encode, texts)

    @property
    def decision(self) -> Decision:
        """Which of the models that model selection compares the slot's model is."""
        fit = self.record.fit
        if fit is not None and fit.decision == "calibrated":
            return "calibrated"
        return "vendor" if self.model.is_vendor else "personal"

    @property
    def never_fitted(self) -> bool:
        """Whether nothing was ever fitted in the slot: a fit leaves a loss, or a personal model."""
        return self.model.is_vendor and self.record.loss is None


def model_digest(bundle: Bundle, model: PersonalModel) -> str:
    """Return SHA-256 of backbone, head and personal weights, which is the provenance of logits."""
    digest = hashlib.sha256()
    for part in (bundle.backbone_digest, bundle.head_digest, *model.head.names):
        digest.update(part.encode())
    digest.update(model.weight.astype("<f4").tobytes())
    digest.update(model.bias.astype("<f4").tobytes())
    if (lexical := model.lexical) is not None:
        # Adding 0 makes digests equal, because a head whose labels were reversed has -0 where a
        # stored model has 0.
        digest.update((lexical + 0.0).astype("<f4").tobytes())
    return digest.hexdigest()


def slot_record(
    name: str,
    bundle: Bundle,
    model: PersonalModel,
    loss: float | None = None,
    fit: FitRecord | None = None,
    teacher: str | None = None,
) -> SlotRecord:
    """Return a slot's row for an installed bundle and a personal model.

    Args:
        name: The name of the slot.
        bundle: The bundle.
        model: The personal model.
        loss: The model's leave-one-out loss on the labelled examples; None if unknown.
        fit: The record of the model's fit; None if no example can be added to it.
        teacher: The digest of the model whose old logits the fit used, if any.
    """
    return SlotRecord(
        name=name,
        bundle=bundle.digest,
        backbone=bundle.backbone_digest,
        weight=model.weight,
        bias=model.bias,
        model=model_digest(bundle, model),
        teacher=teacher,
        labels=model.head.names,
        ngrams=model.ngrams,
        loss=loss,
        fit=fit,
    )
