"""A folder of releases that many devices share, in which each release is kept once.

A device refers to a release by a hard link to its file. So a reference without its file cannot
exist, the file system counts the references, and a device's folder is whole by itself: it can be
opened without this folder. If the file system has no hard links, a device gets a copy.

Beside a release's file is the record of its checks: that it was validated, and whether it has
something that only a signed release may have. If so, a device that has not verified the signature
validates the release itself, and refuses it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fala.backbones import Backbone
from fala.backbones.external import EncoderFunction, Encoders
from fala.base.errors import BundleError, DataError, DeviceError, ReleaseInUseError, counted, shown
from fala.base.files import (
    check_path,
    device_errors,
    failure,
    keep_private,
    remove,
    write_atomically,
)
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, key_bytes
from fala.slots.admit import admit_loaded
from fala.slots.installing import DIGEST, ReleaseFiles, bundle_path, write_copy
from fala.slots.release import backbone_of, open_bundle
from fala.slots.validation import VALIDATED
from fala.store.turns import FileLock

_log = logging.getLogger("fala.many")

_SUFFIX, _RECORD = ".fala", ".json"
#: The version of the checks that a record is about. It rises with every check that is added, and
#: records of earlier versions no longer count.
_CHECKS = 1
_LOCK = "lock"
# Seconds that a writer waits for another one, which writes one file; and between the first two
# tries.
_PATIENCE, _PAUSE = 30.0, 0.004


class Releases(ReleaseFiles):
    """A folder of releases for any number of devices of this machine.

    A release is kept once, under its digest, however many devices use it, and is audited and
    validated once. Pass the object to ``Device.create``, and to ``Device.open`` of a device that
    will be replaced. Threads may share the object, and processes the folder. The folder has to be
    on the devices' own file system, which needs hard links (those of Linux, macOS and Windows have
    them; FAT does not); otherwise every device has a copy.

    Args:
        folder: The folder, which is made if there is none.

    Raises:
        DeviceError: If the folder cannot be made.

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
        #: The opened releases, so that each is read once, however many devices are created from it.
        self._open: dict[str, Bundle] = {}
        with device_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            keep_private(self.path)

    def add(
        self,
        bundle: str | os.PathLike[str],
        *,
        trust: Trust | None = None,
        encoder: EncoderFunction | None = None,
    ) -> Bundle:
        """Audit, validate and add a release, unless it is already there.

        ``Device.create`` and ``Device.replace`` add theirs themselves.

        Args:
            bundle: The release's file, which is copied.
            trust: The key that must have signed the release; see ``Device.replace``.
            encoder: The app's own encoder, for a release that has none.

        Returns:
            The release as it is kept.

        Raises:
            BundleError: If the release cannot be trusted.
            DeviceError: If the folder cannot be written.
        """
        path, signer = check_path(bundle, "bundle"), None if trust is None else key_bytes(trust)
        release = admit_loaded(path, signer, Encoders(encoder), self)
        return release.bundle.at(self.keep(release.bundle))

    def backbone(self, digest: str) -> Backbone:
        """Load a release's backbone, which all devices of this process then share.

        It stays loaded as long as a device uses it, or the app keeps the returned object, so no
        prediction waits until it is loaded.

        Raises:
            DataError: If there is no release with this digest.
            EncoderError: If the backbone is the app's own encoder.
            BundleError: If the release is damaged.
        """
        return backbone_of(self[digest])

    def remove(self, digest: str) -> None:
        """Delete a release that no device uses.

        Raises:
            ReleaseInUseError: If a device uses the release.
            DataError: If there is no release with this digest.
            DeviceError: If the release cannot be deleted.
        """
        count = self.devices(digest)
        if count:
            raise ReleaseInUseError(
                f"{self.path}: the release {digest[:12]} is used by {counted(count, 'device')}, "
                "or is the one that they can go back to; it can be deleted when they have been "
                "replaced twice, or are erased"
            )
        with device_errors(self.path):
            # A device that is created meanwhile has its own link, which stays.
            self._file(digest).unlink(missing_ok=True)
            self._record(digest).unlink(missing_ok=True)
        self._open.pop(digest, None)

    def devices(self, digest: str) -> int:
        """Return the number of devices that use a release, or can go back to it.

        Devices with a copy are not known here.

        Raises:
            DataError: If there is no release with this digest.
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
            DataError: If there is no release with this digest.
            BundleError: If the release is damaged; ``add`` replaces it.
        """
        return open_bundle(self._existing(digest))

    def __contains__(self, digest: object) -> bool:
        """Return whether a release with this digest is kept."""
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
        """Return whether a release was validated for devices of the same kind."""
        return self._needs_signature(digest) in (False, signed)

    def keep(self, bundle: Bundle) -> Path:
        """Keep a bundle that is admitted or already installed, and record what was validated here.

        Args:
            bundle: The bundle.

        Returns:
            The path of the complete file in this folder.

        Raises:
            BundleError: If the bundle changed meanwhile.
            DeviceError: If the folder cannot be written.
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
        """Make a device's file a link again if it is a copy, damaged or missing.

        Raises:
            BundleError: If the file is damaged, and its release is not kept here.
            DeviceError: If the folder cannot be written.
        """
        file, target = self._file(digest), bundle_path(device, digest)
        with contextlib.suppress(OSError):
            if file.samefile(target):
                return
        kept = self._is_whole(digest)
        bundle = open_bundle(file if kept else target)
        if bundle.digest == digest:
            with device_errors(target):  # the store alone may have been restored
                target.parent.mkdir(mode=0o700, exist_ok=True)
            self._link(bundle, target)

    def _link(self, bundle: Bundle, target: Path) -> bool:
        """Make a file a link to a bundle, whatever it was; False if there are no links.

        Raises:
            BundleError: If the bundle changed meanwhile.
            DeviceError: If the folder cannot be written.
        """
        source = self.keep(bundle)
        with device_errors(target):
            if target.is_dir():
                remove(target)
        try:
            try:
                write_atomically(target, partial(os.link, source))
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                # The file has as many links as it can have, so a second file takes its name.
                with device_errors(self.path), self._turn():
                    self._write(bundle)
                write_atomically(target, partial(os.link, source))
        except OSError as error:
            _log.warning(
                "%s: this is a copy, because it cannot be a link: %s", target, failure(error)
            )
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
        """Record what this process found when it validated a release."""
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
            raise DataError(f"{self.path}: no release has the digest {shown(digest)}")
        return self._file(digest)

    def _is_whole(self, digest: str) -> bool:
        """Return whether a bundle is kept and its file is complete; the file is read once."""
        with contextlib.suppress(BundleError):
            bundle = open_bundle(self._file(digest))
            if bundle.digest == digest:
                self._open[digest] = bundle
                return True
        return False

    def _write(self, bundle: Bundle) -> None:
        """Write a bundle's file. Call it in a turn."""
        file = self._file(bundle.digest)
        write_copy(bundle, file)
        if not self._is_whole(bundle.digest):
            raise DeviceError(f"{file}: the file is not what was written; try another disk")

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Write alone, after deleting what killed writers have left.

        Raises:
            DeviceError: If another process writes for too long.
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
