"""Read and write a vendor's repository as files, which any static web server can serve.

    metadata/N.root.json  N.snapshot.json  N.targets.json  N.PRODUCT.json  timestamp.json
    targets/PRODUCT/SHA256.release.fala

Files are only added, except ``timestamp.json``, which names the others. It is written after them,
and a new root is written after all metadata that its keys have signed. A process that is killed
midway therefore leaves a valid repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from securesystemslib.exceptions import StorageError
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp

from fala.updates import METADATA
from fala_export.base.errors import ExportError
from fala_export.base.files import write_file
from fala_export.updates.state import (
    ROOT,
    SNAPSHOT,
    TARGETS,
    TIMESTAMP,
    RepositoryState,
    check_state,
)

#: File of a repository that locks it against other writers.
LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a repository against other writers.

    Raises:
        ExportError: Another process holds the lock, or the folder does not exist.
    """
    if not folder.is_dir():
        raise ExportError(
            f"{folder}: there is no such repository; make one with fala-export repository begin"
        )
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is publishing in it; try again later"
        ) from error


def load_repository(folder: Path) -> RepositoryState:
    """Read a repository, and check its signatures.

    Raises:
        ExportError: The repository does not exist, a file is missing, or a signature is wrong.
    """
    try:
        root = newest_root(folder)
        timestamp: Metadata[Timestamp] = _read(folder, f"{TIMESTAMP}.json")
        version = timestamp.signed.snapshot_meta.version
        snapshot: Metadata[Snapshot] = _read(folder, f"{version}.{SNAPSHOT}.json")
        targets: dict[str, Metadata[Targets]] = {}
        for name in sorted(snapshot.signed.meta, key=lambda name: name != f"{TARGETS}.json"):
            meta = snapshot.signed.meta[name]
            targets[name.removesuffix(".json")] = _read(folder, f"{meta.version}.{name}")
        state = RepositoryState(root, timestamp, snapshot, targets)
        check_state(state)
    except (RepositoryError, StorageError, ValueError, KeyError) as error:
        raise ExportError(f"{folder}: is not a complete repository: {error}") from error
    return state


def newest_root(folder: Path) -> Metadata[Root]:
    """Return the last root of the chain from the first, each signed by the root before it.

    Raises:
        RepositoryError: There is no root, or the chain is broken.
    """
    root: Metadata[Root] = _read(folder, f"1.{ROOT}.json")
    while (folder / METADATA / f"{root.signed.version + 1}.{ROOT}.json").exists():
        next_root: Metadata[Root] = _read(folder, f"{root.signed.version + 1}.{ROOT}.json")
        root.signed.verify_delegate(ROOT, next_root.signed_bytes, next_root.signatures)
        root = next_root
    return root


def write_repository(
    folder: Path, state: RepositoryState, metadata: dict[str, bytes], *, root_first: bool = False
) -> None:
    """Write new metadata.

    Args:
        folder: The repository.
        state: The repository's state.
        metadata: Metadata by role, in the order of writing; see ``state.sign``.
        root_first: Write the root first, if its old keys have signed nothing else.

    Raises:
        ExportError: The metadata cannot be written.
    """
    roles = list(metadata)
    if root_first and ROOT in metadata:
        roles = [ROOT, *(role for role in roles if role != ROOT)]
    for role in roles:
        name = f"{role}.json" if role == TIMESTAMP else f"{state[role].signed.version}.{role}.json"
        write_file(folder / METADATA / name, metadata[role])


def _read(folder: Path, name: str) -> Metadata:
    return Metadata.from_file(str(folder / METADATA / name))
