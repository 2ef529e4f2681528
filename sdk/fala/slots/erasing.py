"""Leaving nothing on the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from fala.errors import DeviceError
from fala.files import failure
from fala.slots.bundles import BUNDLES
from fala.store.store import Store

#: How the name of a file begins that a repair has kept aside.
ASIDE = "damaged-"
#: A device's folders; updates keep their metadata in the second.
_FOLDERS = (BUNDLES, "updates")
#: Bytes that are overwritten at once.
_PIECE = 1 << 20


def scrub(folder: Path, store: Store) -> None:
    """Let nothing of what was deleted be left on the disk.

    What a repair has kept aside goes, too: nobody can delete a single example in it.
    """
    store.scrub()
    for file in folder.glob(f"{ASIDE}*"):
        file.unlink(missing_ok=True)


def erase(folder: Path, store: Store) -> None:
    """Delete all that is a device's, and its folder where nothing else lies in it.

    Raises:
        DeviceError: Something cannot be deleted; what can be is gone.
    """
    store.erase()
    try:
        for file in folder.glob(f"*{store.path.name}*"):
            _overwrite(file)
            file.unlink(missing_ok=True)
        for inner in _FOLDERS:
            if (folder / inner).exists():
                shutil.rmtree(folder / inner)
        with contextlib.suppress(OSError):  # something else lies in it
            folder.rmdir()
    except OSError as error:
        raise DeviceError(f"{folder}: {failure(error)}") from error


def _overwrite(file: Path) -> None:
    """Let nothing of a file be left where it lay, as far as the disk keeps its place."""
    with contextlib.suppress(OSError), file.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        for _ in range(0, size, _PIECE):
            stream.write(bytes(_PIECE))
        stream.truncate(size)
        os.fsync(stream.fileno())
