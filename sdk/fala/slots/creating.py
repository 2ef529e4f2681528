"""Create and open a device's folder."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from fala.backbones.external import Encoders
from fala.base.errors import BundleError, DeviceError
from fala.base.files import device_errors, keep_private
from fala.bundle.signature import Trust, key_bytes
from fala.model.labels import OneLabel
from fala.slots.admit import admit_loaded
from fala.slots.erasing import finish_erasing, tidy
from fala.slots.folder import EMPTY, STORE, Folder, Task
from fala.slots.installing import BUNDLES, ReleaseFiles
from fala.slots.repair import finish_repair
from fala.slots.slot import slot_record
from fala.slots.switching import check_tries, opened, sweep, unused_files
from fala.store.access import check_access
from fala.store.database import doctor
from fala.store.encryption import Codec
from fala.store.settings import Admission
from fala.store.slots import SLOTS
from fala.store.store import Store


def create(
    path: Path,
    bundle: Path,
    *,
    positive: OneLabel | None,
    trust: Trust | None,
    codec: Codec,
    text_key: bytes,
    encoders: Encoders,
    releases: ReleaseFiles,
) -> Task:
    """Create a device's folder with a release installed, and return the device's own task.

    Args:
        path: The folder.
        bundle: The release's file.
        positive: The label by which the device ranks, or None.
        trust: The key that must have signed every release, or None.
        codec: The codec that writes the store's records.
        text_key: The key of the digests that replace texts; empty keeps texts.
        encoders: The app's own encoders.
        releases: Where the files of the device's releases come from.

    Raises:
        BundleError: If the release cannot be trusted.
        DataError: If ``positive`` is not one of the release's labels.
        DeviceError: If the folder is in use, or cannot be written.
    """
    signer = None if trust is None else key_bytes(trust)
    release = admit_loaded(bundle, signer, encoders, releases)
    label = release.head.positive(positive)
    with contextlib.ExitStack() as undo, device_errors(path):
        finish_erasing(path)
        remove = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        keep_private(path)
        present = {file.name for file in path.iterdir()} - {BUNDLES}
        if not all(name.startswith(STORE) for name in present):
            raise DeviceError(f"{path}: the folder is not empty; choose another one")
        store = Store.open(path / STORE, create=True, codec=codec)
        undo.callback(store.close)
        # This is one transaction, so a creation that is killed leaves no device, and the second of
        # two concurrent creations finds the device of the first one.
        with store.transaction():
            if store.is_complete():
                raise DeviceError(
                    f"{path}: the folder is not empty; use Device.open to open the device in it"
                )
            undo.callback(_undo, path, store, remove=remove)
            store.write_mark(codec.renewed())
            store.texts.set_key(text_key)
            shutil.rmtree(path / BUNDLES, ignore_errors=True)
            (path / BUNDLES).mkdir()
            keep_private(path / BUNDLES)
            installed = replace(release, bundle=releases.install(release.bundle, path))
            model = release.head.vendor_model()
            store.slots.put(slot_record(SLOTS[0], installed.bundle, model))
            store.slots.activate(SLOTS[0], None)
            manifest = release.bundle.manifest
            admission = Admission(signer).with_version(manifest.product, manifest.version)
            store.settings.set_admission(admission)
            if label is not None:
                store.slots.set_positive(str(label))
        folder = Folder(path, store, encoders, releases)
        folder.hold(installed)
        task = Task(folder)
        task.snapshot()
        undo.pop_all()
    return task


def open_folder(path: Path, codec: Codec, encoders: Encoders, releases: ReleaseFiles) -> Task:
    """Open a device's folder, and return the device's own task.

    Args:
        path: The folder.
        codec: The codec that reads the store's records.
        encoders: The app's own encoders.
        releases: Where the files of the device's releases come from.

    Raises:
        DeviceError: If the folder is missing or damaged, or the key is not the store's. Nothing is
            changed then.
        BundleError: If the installed release is damaged.
    """
    with device_errors(path):
        if finish_erasing(path):
            raise DeviceError(f"{path}: the device was erased; make another with Device.create")
        finish_repair(path)
        exists = (path / STORE).exists()
    if not exists:
        raise DeviceError(f"{path}: not a device folder; make one with Device.create")
    store = Store.open(path / STORE, codec=codec)
    try:
        if not store.is_complete():
            raise DeviceError(f"{path}: {EMPTY}")
        tidy(path, store)
        folder = Folder(path, store, encoders, releases)
        _tidy_bundles(folder)
        check_tries(folder)
        task = Task(folder)
        active = opened(task).release.bundle
        if active.encoder is not None and not active.probes[0]:
            encoders.assign(active.encoder)
        store.rest()
        return task
    except BundleError as error:
        store.close()
        check_access(error)
        raise type(error)(f"{error}; {doctor(path)}") from error
    except BaseException:
        store.close()
        raise


def _tidy_bundles(folder: Folder) -> None:
    """Delete what a killed installation has left, and share the files that can be shared."""
    with contextlib.suppress(OSError):
        if unused_files(folder):
            sweep(folder, wait=False)
    for digest in folder.store.slots.bundles():
        # A damaged bundle raises an error when it is opened.
        with contextlib.suppress(BundleError, DeviceError):
            folder.releases.restore(digest, folder.path)


def _undo(folder: Path, store: Store, *, remove: bool) -> None:
    """Delete the files of ``create``."""
    store.close()
    shutil.rmtree(folder / BUNDLES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for file in folder.glob(f"{STORE}*"):
            file.unlink()
        if remove:
            folder.rmdir()
