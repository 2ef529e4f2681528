"""What an operation reads of a task: one immutable value for each generation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fala.errors import DataError
from fala.model.active import ActiveModel
from fala.model.heads import Head, PersonalModel
from fala.model.prior import PopulationPrior
from fala.slots.bundles import lexical_weight, model_digest
from fala.slots.release import Release
from fala.store.records import SlotRecord, TaskState, Trial, Version


@dataclass(frozen=True, eq=False)
class OpenSlot:
    """A slot as it was at one generation of the store; nothing in it changes.

    Attributes:
        record: The slot's row.
        release: Its release.
        active_model: Its personal model on its backbone, with the threshold.
    """

    record: SlotRecord
    release: Release
    active_model: ActiveModel

    @classmethod
    def of(cls, record: SlotRecord, release: Release) -> OpenSlot:
        """Open the personal model of a slot's row.

        Raises:
            DataError: It does not fit the release, or is not the one that was stored.
        """
        head = release.head.in_order(record.labels)
        words = lexical_weight(record.lexical, head)
        model = PersonalModel(head, record.weight, record.bias, words)
        if record.backbone != release.bundle.backbone_digest:
            raise DataError("the backbone is not the bundle's")
        if record.model != model_digest(release.bundle, model):
            raise DataError("the personal model is not the one that was kept: its digest differs")
        return cls.with_model(record, release, model)

    @classmethod
    def with_model(cls, record: SlotRecord, release: Release, model: PersonalModel) -> OpenSlot:
        """A slot of parts that are open."""
        return cls(record, release, ActiveModel(model, release.backbone, record.threshold))

    def changed(self, record: SlotRecord, model: PersonalModel) -> OpenSlot:
        """Another row, and its personal model, on the same release."""
        active_model = self.active_model.changed(model, record.threshold)
        return replace(self, record=record, active_model=active_model)

    @property
    def model(self) -> PersonalModel:
        """The personal model."""
        return self.active_model.model

    @property
    def teachers(self) -> tuple[str, str]:
        """Digests of the personal and the vendor's model, the provenance of their logits."""
        vendor = self.model.head.vendor_model()
        return self.record.model, model_digest(self.release.bundle, vendor)

    @property
    def prior(self) -> PopulationPrior | None:
        """The release's population prior, for the labels in the device's order."""
        return self.release.prior_for(self.model.head.labels)

    @property
    def never_fitted(self) -> bool:
        """Whether nothing was ever fitted in it: a fit leaves its loss, or a personal model."""
        return self.model.is_vendor and self.record.loss is None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A task at one generation.

    Attributes:
        adapter: Its adapter; empty for the device's own task.
        state: Which slots it has.
        active: The active slot.
        trial: Of the device's own task: the trial of the active release, if it is on trial.
        fell_back: Of the device's own task: why the device fell back from its last release, if it
            did.
    """

    adapter: str
    state: TaskState
    active: OpenSlot
    trial: Trial | None
    fell_back: str | None

    @property
    def generation(self) -> int:
        """The task's."""
        return self.state.version.generation

    @property
    def release(self) -> Release:
        """The active release."""
        return self.active.release

    @property
    def model(self) -> PersonalModel:
        """The active personal model."""
        return self.active.model

    @property
    def head(self) -> Head:
        """The head of the active personal model."""
        return self.active.model.head

    @property
    def backbone(self) -> str:
        """The digest of the active backbone."""
        return self.active.record.backbone

    @property
    def positive(self) -> str | None:
        """The label that a ranking, and of two labels the threshold, is about; None without one."""
        return self.head.kept_positive(self.state.positive)

    def at(self, version: Version) -> Snapshot:
        """The same at another count of changes of examples and labels."""
        return replace(self, state=replace(self.state, version=version))

    def is_of_release(self, other: Snapshot) -> bool:
        """Whether the same release is active, in the same slot."""
        ours, theirs = self.active.record, other.active.record
        return (ours.name, ours.bundle) == (theirs.name, theirs.bundle)

    def changed(self, generation: int, record: SlotRecord, model: PersonalModel) -> Snapshot:
        """The task with another personal model in the active slot."""
        version = Version(generation, self.state.version.data)
        state = replace(self.state, version=version, to_fit=False)
        return replace(self, state=state, active=self.active.changed(record, model))
