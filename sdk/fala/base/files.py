"""Files that are written completely or not at all, private files, and temporary folders."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from fala.base.errors import DataError, DeviceError, shown

#: Advice for a disk that cannot be read or written.
FAILING_DISK = "try again, and if that does not help copy the folder to another disk"
#: Advice for a full disk.
FULL_DISK = "free some space, and try again"
#: Advice for a device's folder that the process may not read or write.
NO_PERMISSION = (
    "use the folder as its owner, on a disk that can be written, or change the permissions of the "
    "folder and its files"
)
_ADVICE = {errno.EIO: FAILING_DISK, errno.ENOSPC: FULL_DISK}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

_log = logging.getLogger("fala.store")


#: A file's device, inode, size in bytes, and time of its last change in nanoseconds.
Identity = tuple[int, int, int, int]


def identity_of(path: Path) -> Identity | None:
    """Return a file's identity, which changes with its content, or None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def check_path(value: object, name: str) -> Path:
    """Check a path from an app or vendor, and return it.

    Args:
        value: A text or a path.
        name: The argument's name.

    Raises:
        DataError: The value is not a path.
    """
    path: object = value
    if isinstance(value, os.PathLike):
        with contextlib.suppress(Exception):  # an app's own path may raise anything
            path = os.fspath(value)
    if isinstance(path, str) and path and "\0" not in path:
        with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate
            os.fsencode(path)
            return Path(path)
    raise DataError(f"{name} must be a path, not {shown(value)}")


def bytes_or_file(value: object, name: str, most: int) -> bytes:
    """Return bytes from an app or vendor, or the first bytes of the file that it names.

    Args:
        value: The bytes, or the file's path.
        name: The argument's name, with what it is.
        most: The most bytes that are read from a file.

    Raises:
        DataError: The value is neither, or the file cannot be read.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not isinstance(value, str | os.PathLike):
        raise DataError(f"{name} must be bytes or a file, not {shown(value)}")
    path = check_path(value, name)
    try:
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise DataError(f"{name}: {path} cannot be read: {failure(error)}") from error


def failure(error: OSError) -> str:
    """Describe the operating system's error at a file, and what to do about it."""
    message = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0)
    return message if advice is None else f"{message}; {advice}"


@contextlib.contextmanager
def device_errors(path: Path) -> Iterator[None]:
    """Raise the operating system's errors at a device's file or folder as FaLA's errors.

    Raises:
        DeviceError: The operating system raised an error.
    """
    try:
        yield
    except OSError as error:
        advice = f"; {NO_PERMISSION}" if error.errno in _DENIED else ""
        raise DeviceError(f"{path}: {failure(error)}{advice}") from error


def remove(path: Path) -> None:
    """Delete a file, or the folder that took its place, if there is one.

    Raises:
        OSError: It cannot be deleted.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file beside ``path`` with ``write``, then rename it to ``path``.

    The content reaches the disk before the name does, and nothing is left behind if ``write``
    fails or is interrupted.

    Args:
        path: The file to create or replace.
        write: Called with a path; creates the file there.

    Raises:
        OSError: The file cannot be written, or another kind of file has the name.
    """
    if path.exists() and not path.is_file():
        # The file would replace a folder, or a device such as /dev/null.
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    try:
        write(temporary)
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        if error.filename == os.fspath(temporary):  # report the caller's path
            error.filename = os.fspath(path)
        raise
    finally:
        try:  # noqa: SIM105 - an interrupt may come before a ``with`` has begun
            os.unlink(temporary)  # noqa: PTH108 - or before a function of Python has
        except FileNotFoundError:
            pass


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that is deleted afterwards, no matter when Ctrl-C comes.

    ``tempfile`` makes its folder before the cleanup is in place, so an interrupt between the two
    leaves the folder behind.

    Raises:
        OSError: The folder cannot be made.
    """
    folder = Path(tempfile.gettempdir()) / f"fala-{os.urandom(8).hex()}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to the disk."""
    # Windows cannot open a directory; its rename is durable with the file's own flush.
    with contextlib.suppress(PermissionError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def keep_private(path: Path) -> None:
    """Hide a file or folder from the machine's other users, whatever the umask is.

    Raises:
        OSError: The file or folder is gone.
    """
    try:
        path.chmod(0o700 if path.is_dir() else 0o600)
    except PermissionError:  # a file system without modes, or another user's folder
        _log.warning("%s: cannot be kept from other users", path)
