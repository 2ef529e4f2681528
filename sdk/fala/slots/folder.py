"""The state that all tasks of a device share: the open store, releases, and snapshots."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from threading import RLock

from fala.backbones.external import Encoders
from fala.base.errors import BundleError, DataError, DeviceError
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.model.heads import Vectors
from fala.slots.admit import Signed
from fala.slots.installing import COPIES, DIGEST, ReleaseFiles, bundle_path
from fala.slots.sharing import backbone_of, giving_back, open_bundle
from fala.slots.snapshot import Change, OpenSlot, Release, Snapshot
from fala.slots.trial import Trials
from fala.store.database import damaged, doctor
from fala.store.store import Store

_log = logging.getLogger("fala.store")

#: The store's file in a device's folder.
STORE = "store.sqlite3"
#: Why a store has no release, and what to do. Its first data are in the log beside it.
EMPTY = (
    f"{STORE} has no release: its creation was never finished (call Device.create again), or it "
    f"was copied without {STORE}-wal (copy the whole folder again, while no app uses it)"
)


class Folder:
    """A device's folder, open.

    Readers take a task's snapshot, and touch nothing else: none of them waits for a writer. Whoever
    writes has the turn (``Store.turn``), and publishes its snapshot when it is committed.

    Args:
        path: The folder.
        store: Its store, open.
        encoders: The app's own encoders.
        releases: Where its releases' files come from.

    Attributes:
        path: See above.
        store: See above.
        encoders: See above.
        releases: See above.
        probing: Held while a release on trial is probed.
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
        self._opening = RLock()
        self._stores: dict[str, Store] = {"": store}
        self._snapshots: dict[str, Snapshot] = {}
        self._previous: dict[str, tuple[int, OpenSlot | None]] = {}
        self._releases: dict[tuple[str, str], Release] = {}

    def store_of(self, adapter: str) -> Store:
        """The task's part of the store."""
        if adapter not in self._stores:
            self._stores[adapter] = self.store.of(adapter)
        return self._stores[adapter]

    def snapshot(self, adapter: str = "") -> Snapshot:
        """A task as it is now, even if another process has just changed it.

        Raises:
            UnknownAdapterError: No adapter of the task's name is installed.
            BundleError: Its bundle is damaged.
            DeviceError: Its row is damaged.
        """
        slots = self.store_of(adapter).slots
        while True:
            version = slots.version()
            snapshot = self._snapshots.get(adapter)
            if snapshot is not None and snapshot.state.version == version:
                return snapshot
            if snapshot is not None and snapshot.generation == version.generation:
                return snapshot.at(version)
            try:
                with self._opening:  # one thread opens a release
                    self.publish(self._read(adapter))
            except (BundleError, DeviceError):
                # Another process may have installed a release, and deleted this one.
                if slots.version().generation == version.generation:
                    raise

    def held(self) -> Snapshot:
        """The device's own task as it was read or committed here last, from memory alone.

        Raises:
            DeviceError: The device is closed, or erased.
        """
        if closed := self.store.database.turns.closed:
            raise DeviceError(f"{self.path}: {closed}")
        return self._snapshots[""]

    def publish(self, snapshot: Snapshot) -> None:
        """Make a snapshot that is committed the task's."""
        self._snapshots[snapshot.adapter] = snapshot

    def previous(self, snapshot: Snapshot) -> OpenSlot | None:
        """The slot before the last replacement; None where there is none, or it is damaged."""
        with self._opening:
            generation, slot = self._previous.get(snapshot.adapter, (-1, None))
            if generation != snapshot.generation:
                slot = self._open_previous(snapshot)
                self._previous[snapshot.adapter] = snapshot.generation, slot
        return slot

    def drop_previous(self, adapter: str) -> None:
        """Let go of the slot before a task's last replacement, which was changed."""
        with self._opening:
            self._previous.pop(adapter, None)

    def open_slot(
        self, adapter: str, name: str, base: Release | None, *, verify: bool = False
    ) -> OpenSlot:
        """Open a slot.

        Args:
            adapter: Its task.
            name: Its name.
            base: For an adapter's slot: the release that it adapts.
            verify: Verify its bundle, even if that is open.

        Raises:
            BundleError: A bundle is damaged, or an adapter's is for another base.
            DeviceError: A bundle is not the one installed, or the slot's row is damaged.
        """
        record, path = self.store_of(adapter).slots.get(name), self.store.path
        try:
            if verify:
                self._verified(record.bundle)
            return OpenSlot.of(record, self._release(record.bundle, base))
        except DataError as error:
            raise DeviceError(damaged(path, f"slot {name:.60} is damaged: {error}")) from error

    def commit(self, snapshot: Snapshot, change: Change | None) -> Snapshot:
        """Make another personal model of the same release the active one, in one transaction.

        Args:
            snapshot: The task, as the model was fitted.
            change: The model; None notes that there is nothing that it could be fitted to.

        Returns:
            The task with it.

        Raises:
            DeviceChangedError: Another model is active by now.
        """
        store = self.store_of(snapshot.adapter)
        active = snapshot.active if change is None else snapshot.active.changed(change)
        with store.transaction():
            generation = store.slots.advance(snapshot.generation)
            if change is not None:
                store.embeddings.add(active.record.backbone, change.embeddings)
                store.slots.put(active.record)
            committed = snapshot.changed(generation, active)
            store.after_commit(lambda: self.publish(committed))
        return committed

    def keep_embeddings(self, backbone: str, embeddings: Mapping[str, Vectors]) -> None:
        """Store embeddings of a backbone, by text."""
        if embeddings:
            with self.store.transaction():
                self.store.embeddings.add(backbone, embeddings)

    def close(self) -> None:
        """Close the store, and let the releases go, with their backbones."""
        self.trials.flush()
        self.trials.close()
        self.store.close()
        with self._opening, giving_back():
            for held in (self._releases, self._snapshots, self._previous):
                held.clear()

    def _read(self, adapter: str) -> Snapshot:
        base = self.snapshot() if adapter else None
        store = self.store_of(adapter)
        with store.reading():
            state = store.slots.state()
            slot = self.open_slot(adapter, state.slot, None if base is None else base.release)
            store.examples.task = slot.model.head.task
            trial = None if adapter else self.trials.running()
            fell_back = None if adapter else store.settings.fell_back()
        return Snapshot(adapter, state, slot, trial, fell_back)

    def _open_previous(self, snapshot: Snapshot) -> OpenSlot | None:
        name, base = snapshot.state.previous, None
        if name is None:
            return None
        if snapshot.adapter:
            own = self.previous(self.snapshot())
            if own is None:
                return None
            base = own.release
        try:
            return self.open_slot(snapshot.adapter, name, base)
        except (BundleError, DeviceError) as error:
            _log.warning("the previous slot cannot be used: %s", error)
            return None

    def _release(self, digest: str, base: Release | None) -> Release:
        """An installed release, or adapter, verified once."""
        key = digest, "" if base is None else base.bundle.digest
        with self._opening:
            if key not in self._releases:
                bundle = self._verified(digest)
                if base is None:
                    encoders = self.encoders  # not the folder, which would refer to itself
                    release = Release.of(bundle, lambda: backbone_of(bundle, encoders))
                else:
                    release = Release.of_adapter(bundle, base)
                self.hold(release, base)
            return self._releases[key]

    def _verified(self, digest: str) -> Bundle:
        """An installed bundle, verified.

        Raises:
            BundleError: It is damaged.
            DeviceError: It is not the one that was installed.
            DataError: No bundle has such a digest.
        """
        if not DIGEST.fullmatch(digest):
            raise DataError("no digest of a bundle")
        bundle = open_bundle(bundle_path(self.path, digest))
        if bundle.digest != digest:  # installed under its digest
            raise DeviceError(
                f"{bundle.path}: not the bundle that was installed; {doctor(self.path)}"
            )
        return bundle

    def sources_of(self, digest: str) -> set[str]:
        """See ``Release.sources``, of an installed bundle.

        Raises:
            BundleError: It is damaged.
        """
        for (held, _), release in self._releases.items():
            if held == digest:
                return release.sources
        bundle = open_bundle(bundle_path(self.path, digest))
        return {bundle.backbone_digest, *bundle.bridges()}

    def signed(self, trust: Trust | None) -> Signed:
        """How a release's origin is to be known.

        Args:
            trust: The key that must have signed it; None takes the one of the device's creation.
        """
        return Signed(self.store.settings.trust() if trust is None else trust)

    def note_active(self, digest: str) -> None:
        """Make the active release's file the newest one, once the transaction is committed.

        A repair takes the newest where the store does not say any more which one was active. A file
        that devices share stays as it is: of those the release that was added last is the newest.
        """

        def touch() -> None:
            with contextlib.suppress(OSError):  # a disk that cannot be written
                file = bundle_path(self.path, digest)
                if file.stat().st_nlink == 1:
                    os.utime(file)

        self.store.after_commit(touch)

    def hold(self, release: Release, base: Release | None = None) -> None:
        """Use a release that has just been installed, with its backbone loaded."""
        with self._opening:
            key = release.bundle.digest, "" if base is None else base.bundle.digest
            self._releases[key] = release
            self._drop_unused(key)

    def _drop_unused(self, newest: tuple[str, str]) -> None:
        """Let releases go that no slot has any more, with their backbones."""
        with contextlib.suppress(DeviceError):
            used = self.store.slots.bundles() | {newest[0]}
            for key in [key for key in self._releases if key[0] not in used]:
                del self._releases[key]
