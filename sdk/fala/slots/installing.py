"""Where the files of a device's releases are kept, and where they come from."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from fala.base.errors import BundleError, DataError, shown
from fala.base.files import keep_private, remove, write_atomically
from fala.bundle.archive import write_archive
from fala.bundle.reading import Bundle

#: The name of the folder of a device's bundles.
BUNDLES = "bundles"
#: The form of a bundle's digest.
DIGEST = re.compile("[0-9a-f]{64}")


class ReleaseFiles:
    """Give each device its own copy of a release's file.

    This is everything that a device knows about other devices: ``fala.Releases``, which shares the
    files and the checks of releases, takes the place of this class.
    """

    def knows(self, digest: str, *, signed: bool) -> bool:
        """Return whether a release was validated elsewhere, for devices of the same kind.

        Args:
            digest: The digest of the release's bundle.
            signed: Whether those devices have verified its signature.
        """
        return False

    def install(self, bundle: Bundle, device: Path) -> Bundle:
        """Install a bundle in a device's folder.

        Args:
            bundle: The bundle. If it is held in memory, it is written as it was verified, even if
                its file has changed.
            device: The device's folder.

        Returns:
            The installed bundle.

        Raises:
            BundleDigestError: If the bundle is not held, and its source changed meanwhile.
            OSError: If the bundle cannot be written.
        """
        target = bundle_path(device, bundle.digest)
        # An existing file may be damaged, in which case it is replaced.
        with contextlib.suppress(BundleError):
            if Bundle.open(target).digest == bundle.digest:
                return bundle.at(target)
        write_copy(bundle, target)
        return bundle.at(target)

    def restore(self, digest: str, device: Path) -> None:
        """Restore an installed bundle's file, if its content is known here.

        Raises:
            BundleError: If the file is damaged, and its content is not kept here.
            DeviceError: If the file cannot be written.
        """


#: Shares no files: each device has its own copy.
COPIES = ReleaseFiles()


def release_files(value: object) -> ReleaseFiles:
    """Return where an app wants releases' files to come from; None means a copy per device.

    Raises:
        DataError: If the value is another object.
    """
    if value is None:
        return COPIES
    if isinstance(value, ReleaseFiles):
        return value
    raise DataError(f"releases must be fala.Releases(folder), not {shown(value)}")


def bundle_path(device: Path, digest: str) -> Path:
    """Return the path at which a device keeps a bundle."""
    # The content determines the name, so installing a bundle never touches the file of another one.
    return device / BUNDLES / f"{digest}.fala"


def write_copy(bundle: Bundle, file: Path) -> None:
    """Write a bundle's verified bytes to a file, and replace whatever was there.

    Raises:
        BundleDigestError: If the bundle is not held, and its source changed meanwhile.
        OSError: If the bundle cannot be written.
    """
    contents = bundle.files()
    if file.is_dir():
        remove(file)

    def write(temporary: Path) -> None:
        write_archive(temporary, contents)
        keep_private(temporary)

    write_atomically(file, write)
