"""``fala.sample_release``: real releases to try FaLA with, made here of the built-in models."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from fala.bundle.reading import Bundle
from fala.errors import BundleError, DataError, shown
from fala.files import temporary_folder, write_atomically
from fala.playground import walk as trial
from fala.playground.built_in import built_in
from fala.playground.sample import sample_rows

_log = logging.getLogger("fala.sample")

_OLD, _NEW = NAMES = ("glove", "bert")

#: Counts the ways in which one version of the SDK has made them; a kept file of another is left.
_MADE = 1


def sample_release(name: str) -> Path:
    """A release to try FaLA with: a head of the labels ``"0"`` and ``"1"``, with weights of words.

    The task is that of the built-in synthetic sample: is a post unwelcome (1) or not (0)? Both
    releases are made the first time that one is asked for, in a few seconds and without a network,
    from models that come with the package, and are kept in the user's cache folder; where that
    cannot be written, in a temporary folder that is gone when the process ends.

    Args:
        name: ``"glove"``, word vectors; or ``"bert"``, a small transformer, with a bridge from
            ``"glove"``.

    Returns:
        The release's file, for ``Device.create`` and ``Device.replace``. It is not yours to change.

    Raises:
        DataError: There is none of that name.
        OSError: There is no place for it at all.
    """
    if name not in NAMES:
        raise DataError(f"no sample release {shown(name)}; one of {', '.join(NAMES)}")
    kept = _folder() / f"{name}.fala"
    if _whole(kept):
        return kept
    try:
        _make(kept.parent)
    except OSError as error:
        _log.info("%s: %s; sample releases go to a temporary folder", kept.parent, error)
        kept = _temporary() / kept.name
        if not _whole(kept):
            _make(kept.parent)
    return kept


def _folder() -> Path:
    return user_cache_path("fala", appauthor=False) / f"{version('fala-sdk')}-{_MADE}"


@functools.cache
def _temporary() -> Path:
    """One folder for the life of the process."""
    folder = Path(tempfile.mkdtemp(prefix="fala-"))
    # A fork of this process has the folder, too, but it is not the fork's to delete.
    atexit.register(_delete, folder, os.getpid())
    return folder


def _delete(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _whole(file: Path) -> bool:
    """Whether a file of an earlier call is there, to the last byte."""
    try:
        Bundle.open(file)
    except BundleError:
        return False
    return True


def _make(folder: Path) -> None:
    """Write both releases; processes that do so at once write the same, each file at once.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    known = built_in()
    with temporary_folder() as work:
        sides = trial.prepare(
            Bundle.open(known[_OLD]), Bundle.open(known[_NEW]),
            sample_rows(users=1), [], work, _unseen,
        )  # fmt: skip
        for name, side in zip(NAMES, sides, strict=True):
            write_atomically(
                folder / f"{name}.fala", functools.partial(shutil.copyfile, side.release)
            )
    _log.info("%s: made the sample releases in %.1f s", folder, time.monotonic() - began)


def _unseen(chunks: Iterable[list[str]], _label: str, _total: int) -> Iterable[list[str]]:
    return chunks
