"""A folder of releases that many devices share: each is kept once.

A device refers to a release by a hard link to its file. So a reference without its file cannot
exist, the file system counts the references, and a device's folder is whole by itself: it is opened
without this one. Where the file system has no such links, a device gets a copy.

Beside a release's file is the record of its checks: that it was validated, and whether it has what
only a signed release may have. A device that has not verified its signature validates such a one
itself, and refuses it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fala.backbones import Backbone
from fala.backbones.external import Encoder, Encoders
from fala.base.errors import BundleError, DataError, DeviceError, ReleaseInUseError, counted, shown
from fala.base.files import (
    check_path,
    device_errors,
    failure,
    keep_private,
    remove,
    sync_directory,
    write_atomically,
)
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.slots.admit import Signed, admit_loaded
from fala.slots.installing import DIGEST, ReleaseFiles, bundle_path, write_copy
from fala.slots.release import backbone_of, open_bundle
from fala.slots.validation import VALIDATED
from fala.store.turns import FileLock

_log = logging.getLogger("fala.many")

_SUFFIX, _RECORD = ".fala", ".json"
#: The checks that a record is about: it rises with every check that is added, after which earlier
#: records count no more.
_CHECKS = 1
_LOCK = "lock"
# Seconds that a writer waits for another, who writes one file; and between the first two tries.
_PATIENCE, _PAUSE = 30.0, 0.004


class Releases(ReleaseFiles):
    """A folder of releases for any number of devices of this machine.

    A release is kept once, under its digest, however many devices use it, and is audited and
    validated once. Pass the object to ``Device.create``, and to ``Device.open`` of a device that
    will be replaced. Threads may share it, and processes a folder. It has to be on the devices' own
    file system, which needs hard links (those of Linux, macOS and Windows have them; not FAT); else
    every device has a copy.

    Args:
        folder: The folder; it is made if there is none.

    Raises:
        DeviceError: It cannot be made.

    Examples:
        >>> releases = fala.Releases("releases")
        >>> glove = fala_sim.sample_release("glove")
        >>> for user in ("ann", "bob"):
        ...     fala.Device.create(user, glove, releases=releases).close()
        >>> [releases.devices(digest) for digest in releases]
        [2]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = check_path(folder, "folder")
        #: So that a release is read once, however many devices are created of it.
        self._open: dict[str, Bundle] = {}
        with device_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            keep_private(self.path)

    def add(
        self,
        bundle: str | os.PathLike[str],
        *,
        trust: Trust | None = None,
        encoder: Encoder | None = None,
    ) -> Bundle:
        """Add a release, audited and validated; nothing is done if it is there.

        ``Device.create`` and ``replace`` add theirs themselves.

        Args:
            bundle: The release's file; it is copied.
            trust: The key that must have signed it; see ``Device.replace``.
            encoder: The app's own encoder, for a release that has none.

        Returns:
            The release as it is kept.

        Raises:
            BundleError: The release cannot be trusted.
            DeviceError: The folder cannot be written.
        """
        path = check_path(bundle, "bundle")
        release = admit_loaded(path, Signed(trust), Encoders(encoder), self)
        return release.bundle.at(self.keep(release.bundle))

    def backbone(self, digest: str) -> Backbone:
        """Load a release's backbone, which all devices of this process then share.

        It is loaded as long as a device uses it, or the app keeps what is returned: then no
        prediction waits until it is loaded.

        Raises:
            DataError: There is none of this digest.
            EncoderError: It is the app's own encoder.
            BundleError: It is damaged.
        """
        return backbone_of(self[digest])

    def remove(self, digest: str) -> None:
        """Delete a release that no device uses.

        Raises:
            ReleaseInUseError: A device uses it.
            DataError: There is none of this digest.
            DeviceError: It cannot be deleted.
        """
        count = self.devices(digest)
        if count:
            raise ReleaseInUseError(
                f"{self.path}: the release {digest[:12]} is used by {counted(count, 'device')}, "
                "or is the one that they can go back to; it can be deleted when they have been "
                "replaced twice, or are erased"
            )
        with device_errors(self.path):
            # A device that is created meanwhile has a link of its own, which stays.
            self._file(digest).unlink(missing_ok=True)
            self._record(digest).unlink(missing_ok=True)
        self._open.pop(digest, None)

    def devices(self, digest: str) -> int:
        """Return the number of devices that use a release, or can go back to it.

        Those with a copy are not known here.

        Raises:
            DataError: There is none of this digest.
        """
        with device_errors(self.path):
            return self._existing(digest).stat().st_nlink - 1

    def __iter__(self) -> Iterator[str]:
        """Iterate over the digests of the releases."""
        with device_errors(self.path):
            digests = sorted(file.stem for file in self.path.glob(f"*{_SUFFIX}"))
        return filter(DIGEST.fullmatch, digests)

    def __getitem__(self, digest: str) -> Bundle:
        """Return a release.

        Raises:
            DataError: There is none of this digest.
            BundleError: It is damaged; ``add`` replaces it.
        """
        return open_bundle(self._existing(digest))

    def __contains__(self, digest: object) -> bool:
        """Return whether a release of this digest is kept."""
        return (
            isinstance(digest, str)
            and DIGEST.fullmatch(digest) is not None
            and self._file(digest).is_file()
        )

    def __repr__(self) -> str:
        return f"<Releases {self.path}>"

    def __reduce__(self) -> tuple[type[Releases], tuple[Path]]:
        return Releases, (self.path.absolute(),)

    def knows(self, digest: str, *, signed: bool) -> bool:
        """Return whether a release was validated, for devices that verify its signature or not."""
        return self._needs_signature(digest) in (False, signed)

    def keep(self, bundle: Bundle) -> Path:
        """Keep a bundle that is admitted, or installed already; record what was validated here.

        Args:
            bundle: The bundle.

        Returns:
            Its file here, whole.

        Raises:
            BundleError: The bundle changed meanwhile.
            DeviceError: The folder cannot be written.
        """
        file = self._file(bundle.digest)
        with device_errors(self.path):
            if not self._is_whole(bundle.digest):
                with self._turn():
                    if not self._is_whole(bundle.digest):  # another process may have been first
                        self._write(bundle)
            self._note(bundle.digest)
        return file

    def install(self, bundle: Bundle, device: Path) -> Bundle:
        """Make a device's file a link to a bundle; see ``ReleaseFiles.install``."""
        target = bundle_path(device, bundle.digest)
        return bundle.at(target) if self._link(bundle, target) else super().install(bundle, device)

    def restore(self, digest: str, device: Path) -> None:
        """Make a device's file a link again, where it is a copy, damaged or gone.

        Raises:
            BundleError: It is damaged, and not kept here.
            DeviceError: The folder cannot be written.
        """
        file, target = self._file(digest), bundle_path(device, digest)
        with contextlib.suppress(OSError):
            if file.samefile(target):
                return
        kept = self._is_whole(digest)
        bundle = open_bundle(file if kept else target)
        if bundle.digest == digest:
            with device_errors(target):  # of a store that was restored alone
                target.parent.mkdir(mode=0o700, exist_ok=True)
            self._link(bundle, target)

    def _link(self, bundle: Bundle, target: Path) -> bool:
        """Make a file a link to a bundle, whatever it was; False where there are no links.

        Raises:
            BundleError: The bundle changed meanwhile.
            DeviceError: The folder cannot be written.
        """
        source = self.keep(bundle)
        with device_errors(target):
            if target.is_dir():
                remove(target)
        try:
            try:
                _link(source, target)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                # A file has as many links as it can: a second one takes its name.
                with device_errors(self.path), self._turn():
                    self._write(bundle)
                _link(source, target)
        except OSError as error:
            _log.warning("%s: a copy, as it cannot be a link: %s", target, failure(error))
            return False
        return True

    def _file(self, digest: str) -> Path:
        return self.path / f"{digest}{_SUFFIX}"

    def _record(self, digest: str) -> Path:
        return self.path / f"{digest}{_RECORD}"

    def _needs_signature(self, digest: str) -> bool | None:
        """Return whether a validated release must be signed; None if it was not validated."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            record = json.loads(self._record(digest).read_bytes())
            if record["checks"] == _CHECKS and isinstance(record["must_be_signed"], bool):
                return bool(record["must_be_signed"])
        return None

    def _note(self, digest: str) -> None:
        """Record what this process has found when it validated a release."""
        needed = VALIDATED.get(digest)
        if needed in (None, self._needs_signature(digest)):
            return
        with self._turn():
            content = json.dumps({"checks": _CHECKS, "must_be_signed": needed}).encode()

            def write(file: Path) -> None:
                file.write_bytes(content)
                keep_private(file)

            write_atomically(self._record(digest), write)

    def _existing(self, digest: str) -> Path:
        if digest not in self:
            raise DataError(f"{self.path}: no release of the digest {shown(digest)}")
        return self._file(digest)

    def _is_whole(self, digest: str) -> bool:
        """Return whether a bundle is kept, and its file is whole; it is read once."""
        with contextlib.suppress(BundleError):
            bundle = open_bundle(self._file(digest))
            if bundle.digest == digest:
                self._open[digest] = bundle
                return True
        return False

    def _write(self, bundle: Bundle) -> None:
        """Write a bundle's file. In a turn."""
        file = self._file(bundle.digest)
        write_copy(bundle, file)
        if not self._is_whole(bundle.digest):
            raise DeviceError(f"{file}: not what was written; try another disk")

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Write alone, and delete what killed writers have left.

        Raises:
            DeviceError: Another process writes for too long.
        """
        lock = FileLock(self.path / _LOCK)
        try:
            if not lock.wait(time.monotonic() + _PATIENCE, _PAUSE):
                raise DeviceError(f"{self.path}: another process writes to it; try again")
            for part in self.path.glob(".*.part"):
                part.unlink(missing_ok=True)
            yield
        finally:
            lock.close()


def _link(source: Path, target: Path) -> None:
    """Make a file a link to another, whole or not at all."""
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.part")
    try:
        os.link(source, temporary)
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        # Also where both names were links to one file: then nothing is replaced.
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
