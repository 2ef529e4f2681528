"""A device's folder, its tasks, what an operation reads of a task, and what it commits."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock

from fala.backbones.external import Encoders
from fala.base.errors import BundleError, DataError, DeviceError
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, key_bytes
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.labels import HeadLabel
from fala.slots.installing import COPIES, DIGEST, ReleaseFiles, bundle_path
from fala.slots.release import Release, backbone_of, giving_back, loading, open_bundle
from fala.slots.slot import Slot
from fala.slots.tries import Trials
from fala.store.database import damaged, doctor
from fala.store.settings import Trial
from fala.store.slots import TaskState
from fala.store.store import Store

_log = logging.getLogger("fala.store")

#: The store's file in a device's folder.
STORE = "store.sqlite3"
#: Why a store has no release, and what to do. The first data of a store are in the log beside it.
EMPTY = (
    f"{STORE} has no release: its creation was never finished (call Device.create again), or it "
    f"was copied without {STORE}-wal (copy the whole folder again, while no app uses it)"
)


class Folder:
    """A device's open folder.

    Args:
        path: The folder.
        store: The folder's open store.
        encoders: The app's own encoders.
        releases: Where the files of the folder's releases come from.

    Attributes:
        path, store, encoders, releases: The arguments.
        probing: A lock that is held while a release on trial is probed.
        trials: The trial of the active release.
    """

    def __init__(
        self, path: Path, store: Store, encoders: Encoders, releases: ReleaseFiles = COPIES
    ) -> None:
        self.path = path
        self.store = store
        self.encoders = encoders
        self.releases = releases
        self.probing = RLock()
        self.trials = Trials(path, store)
        self._releases: dict[tuple[str, str], Release] = {}

    def close(self) -> None:
        """Close the store, and let go of the releases and their backbones."""
        self.trials.flush()
        self.trials.close()
        self.store.close()
        with giving_back():
            self._releases.clear()

    def release(self, digest: str, base: Release | None) -> Release:
        """Return an installed release or adapter, which is verified once."""
        key = digest, "" if base is None else base.bundle.digest
        with loading(digest):
            if (held := self._releases.get(key)) is not None:
                return held
            bundle = self.verified(digest)
            if base is None:
                # the folder itself would refer to itself through the release
                encoders = self.encoders
                release = Release.of(bundle, lambda: backbone_of(bundle, encoders))
            else:
                release = Release.of_adapter(bundle, base)
            self._releases[key] = release
        # called without the lock, which a reader of the store may be waiting for
        self.hold(release, base)
        return release

    def verified(self, digest: str) -> Bundle:
        """Return an installed bundle, verified.

        Raises:
            BundleError: If the bundle is damaged.
            DeviceError: If the bundle is not the one that was installed.
            DataError: If no bundle can have such a digest.
        """
        if not DIGEST.fullmatch(digest):
            raise DataError("not the digest of a bundle")
        bundle = open_bundle(bundle_path(self.path, digest))
        if bundle.digest != digest:  # a bundle is installed under its digest
            raise DeviceError(
                f"{bundle.path}: this is not the bundle that was installed; {doctor(self.path)}"
            )
        return bundle

    def sources_of(self, digest: str) -> set[str]:
        """Return the backbones whose embeddings an installed bundle can use.

        Raises:
            BundleError: If the bundle is damaged.
        """
        for (held, _), release in [*self._releases.items()]:
            if held == digest:
                return release.sources
        bundle = open_bundle(bundle_path(self.path, digest))
        return {bundle.backbone_digest, *bundle.bridges()}

    def key(self, trust: Trust | None = None) -> bytes | None:
        """Return the key that must have signed a release; None if no signature is required.

        Args:
            trust: The app's key; None takes the key that the device was created with.
        """
        return self.store.settings.admission().key if trust is None else key_bytes(trust)

    def hold(self, release: Release, base: Release | None = None) -> None:
        """Use a release that has just been installed, whose backbone is loaded."""
        key = release.bundle.digest, "" if base is None else base.bundle.digest
        self._releases[key] = release
        # Let go of the releases that no slot has any more, and of their backbones.
        with contextlib.suppress(DeviceError):
            used = self.store.slots.bundles() | {release.bundle.digest}
            for key in [*self._releases]:
                if key[0] not in used:
                    self._releases.pop(key, None)


class Task:
    """One head with its examples and its models: the device's own task, or that of an adapter.

    Readers take a snapshot of the task, and touch nothing else, so none of them waits for a writer.
    A writer holds the turn (``Store.turn``), and publishes the snapshot once it is committed.

    Args:
        folder: The device's folder.
        name: The name of the task's adapter, whether one is loaded or not; empty for the device's
            own task.
        own: The device's own task, for the task of an adapter.

    Attributes:
        folder, name: The arguments.
        store: The task's part of the store.
    """

    def __init__(self, folder: Folder, name: str = "", own: Task | None = None) -> None:
        self.folder, self.name, self._own = folder, name, own
        self.store = folder.store.of(name) if name else folder.store
        #: The fields of the snapshot, because the snapshot itself would refer to this task.
        self._held: tuple[TaskState, Slot, Trial | None] | None = None

    @property
    def own(self) -> Task:
        """The device's own task, which may be this one."""
        return self if self._own is None else self._own

    def adapted(self) -> list[Task]:
        """Return the device's further tasks, one for every loaded adapter, sorted by name."""
        names = self.store.slots.adapters()
        return [self if name == self.name else Task(self.folder, name, self.own) for name in names]

    def snapshot(self) -> Snapshot:
        """Return the task as it is now, even if another process has just changed it.

        Raises:
            UnknownAdapterError: If no adapter of the task's name is installed.
            BundleError: If the task's bundle is damaged.
            DeviceError: If the task's row is damaged.
        """
        slots = self.store.slots
        while True:
            state, held = slots.state(), self._held
            if held is not None and held[0].generation == state.generation:
                return Snapshot(self, state, *held[1:])
            try:
                self._held = self._read()
            except (BundleError, DeviceError):
                # Another process may have installed a release, and deleted this one.
                if slots.state().generation == state.generation:
                    raise

    def held(self) -> Snapshot:
        """Return the task as it was last read or committed here, from memory alone.

        Raises:
            DeviceError: If the device is closed or erased.
        """
        if closed := self.store.database.turns.closed:
            raise DeviceError(f"{self.folder.path}: {closed}")
        return self.snapshot() if self._held is None else Snapshot(self, *self._held)

    def previous(self, snapshot: Snapshot) -> Slot | None:
        """Return the slot before the last replacement; None if there is none, or it is damaged."""
        name, base = snapshot.state.previous, None
        if name is None:
            return None
        if self.name:
            base = self.own.previous(self.own.snapshot())
            if base is None:
                return None
        try:
            return self.open_slot(name, None if base is None else base.release)
        except (BundleError, DeviceError) as error:
            _log.warning("the previous slot cannot be used: %s", error)
            return None

    def drop(self) -> None:
        """Let go of the active slot."""
        self._held = None

    def open_slot(self, name: str, base: Release | None = None, *, verify: bool = False) -> Slot:
        """Open a slot.

        Args:
            name: The name of the slot.
            base: The release that the slot adapts, for an adapter's slot.
            verify: Whether to verify the bundle even if it is open already.

        Raises:
            BundleError: If a bundle is damaged, or an adapter's bundle is for another base.
            DeviceError: If a bundle is not the installed one, or the slot's row is damaged.
        """
        record, path = self.store.slots.get(name), self.store.path
        try:
            if verify:
                self.folder.verified(record.bundle)
            return Slot.of(record, self.folder.release(record.bundle, base))
        except DataError as error:
            raise DeviceError(damaged(path, f"slot {name:.60} is damaged: {error}")) from error

    def commit(self, prepared: Prepared) -> Snapshot:
        """Make another personal model of the same release the active one, in one transaction.

        Returns:
            The snapshot of the task with that model.

        Raises:
            DeviceChangedError: If another model has become active meanwhile.
        """
        before, slot, store = prepared.before, prepared.slot, self.store
        with store.transaction():
            generation = store.slots.advance(before.generation)
            if slot is not before.active:
                store.embeddings.add(slot.record.backbone, prepared.embeddings)
                store.slots.put(slot.record)
                store.examples.prune_labels()
            state = replace(before.state, generation=generation, to_fit=False)
            committed = replace(before, state=state, active=slot)
            store.after_commit(lambda: self._publish(committed))
        return committed

    def keep_embeddings(self, backbone: str, embeddings: Mapping[str, Vectors]) -> None:
        """Store embeddings of a backbone, by text."""
        if embeddings:
            with self.store.transaction():
                self.store.embeddings.add(backbone, embeddings)

    def _publish(self, snapshot: Snapshot) -> None:
        self._held = snapshot.state, snapshot.active, snapshot.trial

    def _read(self) -> tuple[TaskState, Slot, Trial | None]:
        base = self.own.snapshot().release if self.name else None
        store = self.store
        with store.reading():
            state = store.slots.state()
            slot = self.open_slot(state.slot, base)
            store.examples.task = slot.model.head.task
            trial = None if self.name else self.folder.trials.running()
        return state, slot, trial


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A task at one generation, as its operations read it; nothing in it changes.

    Attributes:
        task: The task.
        state: The state of the task's slots.
        active: The active slot.
        trial: The trial of the active release, if it is on trial; only for the device's own task.
    """

    task: Task
    state: TaskState
    active: Slot
    trial: Trial | None

    @property
    def generation(self) -> int:
        """The task's generation."""
        return self.state.generation

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
    def positive(self) -> HeadLabel | None:
        """The label that rankings are by; None if there is none."""
        return self.head.kept_positive(self.state.positive)

    def is_of_release(self, other: Snapshot) -> bool:
        """Return whether the same release is active, in the same slot."""
        ours, theirs = self.active.record, other.active.record
        return (ours.name, ours.bundle) == (theirs.name, theirs.bundle)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What an operation will commit to a task, in one transaction.

    Attributes:
        before: The snapshot of the task from which the change was prepared.
        slot: The slot that will be active.
        embeddings: Embeddings of the slot's backbone to store with it, by text.
        logits: Old logits of the slot's teacher to store with it, by example.
    """

    before: Snapshot
    slot: Slot
    embeddings: Mapping[str, Vectors] = field(default_factory=dict)
    logits: Mapping[int, Vectors] = field(default_factory=dict)
