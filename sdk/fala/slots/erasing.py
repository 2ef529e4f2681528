"""Erase files from the disk: copies of the store, or a whole device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from fala.base.errors import DeviceError
from fala.base.files import device_errors, failure, remove, sync_directory
from fala.slots.folder import STORE
from fala.slots.installing import BUNDLES
from fala.store.database import REBUILDING
from fala.store.store import Store

#: The file that marks a folder whose erasure has begun; it is deleted last.
ERASING = f"erasing-{STORE}"
#: The prefix of the damaged files that a repair keeps.
ASIDE = "damaged-"
#: The folders in a device's folder; the second one has the metadata of updates.
_FOLDERS = (BUNDLES, "updates")
#: Number of bytes that are overwritten at a time.
_PIECE = 1 << 20


def drop_copies(folder: Path, names: Sequence[str] = (ASIDE, REBUILDING)) -> None:
    """Delete copies of the store, because single examples cannot be deleted from them.

    Call it in a transaction, so that no repair is running.

    Args:
        folder: The device's folder.
        names: Parts of the copies' names: those that a repair keeps, or leaves if it is killed.

    Raises:
        DeviceError: If a copy cannot be deleted.
    """
    with device_errors(folder):
        for name in names:
            for file in folder.glob(f"*{name}*"):
                _delete(file)


def tidy(folder: Path, store: Store) -> None:
    """Delete the remains of a killed repair, unless another process is writing."""
    # A folder that cannot be listed can still be opened.
    with contextlib.suppress(OSError, DeviceError):
        if any(folder.glob(f"{REBUILDING}*")):
            with store.transaction():
                drop_copies(folder, [REBUILDING])


def erase(folder: Path, store: Store) -> None:
    """Delete all files of a device, and its folder if it is then empty.

    If the process is killed, or a file cannot be deleted, another call finishes the erasure, and so
    does opening the folder.

    Raises:
        DeviceError: If a file cannot be deleted; the others are deleted.
    """
    mark = folder / ERASING
    with device_errors(folder):
        begun = mark.exists()
    if not begun:
        try:
            with store.transaction():
                with device_errors(folder):
                    mark.touch(mode=0o600)
                    sync_directory(folder)
                store.delete_all()
        except BaseException:
            deleted = False
            with contextlib.suppress(DeviceError):
                deleted = not store.is_complete()  # an interrupt came after the commit
            with contextlib.suppress(OSError):  # another file may be at the folder's path
                if not deleted:
                    mark.unlink(missing_ok=True)
            raise
    store.close("this device is closed: it was erased; make another with fala.Device.create")
    finish_erasing(folder)


def finish_erasing(folder: Path) -> bool:
    """Finish an erasure that has begun, and return whether one had.

    Raises:
        DeviceError: If a file cannot be deleted; the others are deleted.
    """
    mark = folder / ERASING
    with device_errors(folder):
        if not mark.exists():
            return False
    try:
        for file in folder.glob(f"*{STORE}*"):
            if file != mark and not file.is_dir():
                _delete(file)
        for inner in _FOLDERS:
            remove(folder / inner)
        mark.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder contains other files
            folder.rmdir()
    except OSError as error:
        raise DeviceError(f"{folder}: {failure(error)}; erase it again") from error
    return True


def _delete(file: Path) -> None:
    """Overwrite a file with zeros, which erases its bytes on a disk that writes in place."""
    with contextlib.suppress(OSError), file.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        for _ in range(0, size, _PIECE):
            stream.write(bytes(_PIECE))
        stream.truncate(size)
        os.fsync(stream.fileno())
    file.unlink(missing_ok=True)
