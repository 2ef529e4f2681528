"""Where the files of a device's releases are, and where they come from."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from fala.base.errors import BundleError, DataError, shown
from fala.base.files import keep_private, remove, write_atomically
from fala.bundle.archive import write_archive
from fala.bundle.reading import Bundle

#: The folder of a device's bundles.
BUNDLES = "bundles"
#: A digest of a bundle.
DIGEST = re.compile("[0-9a-f]{64}")


class ReleaseFiles:
    """Give each device a copy of its own of a release's file.

    This is all that a device knows about other devices: ``fala.Releases``, which shares the files
    and the checks of releases, takes the place of this class.
    """

    def knows(self, digest: str, *, signed: bool) -> bool:
        """Return whether a release was validated elsewhere, for devices that verify it or not."""
        return False

    def install(self, bundle: Bundle, device: Path) -> Bundle:
        """Install a bundle in a device's folder.

        Args:
            bundle: One that is held is written as it was verified, even if its file has changed.
            device: The device's folder.

        Returns:
            The installed bundle.

        Raises:
            BundleDigestError: The source of a bundle that is not held changed meanwhile.
            OSError: It cannot be written.
        """
        target = bundle_path(device, bundle.digest)
        # An existing file may be damaged: then it is replaced.
        with contextlib.suppress(BundleError):
            if Bundle.open(target).digest == bundle.digest:
                return bundle.at(target)
        write_copy(bundle, target)
        return bundle.at(target)

    def restore(self, digest: str, device: Path) -> None:
        """Restore an installed bundle's file, as far as it is known here.

        Raises:
            BundleError: It is damaged, and not kept here.
            DeviceError: It cannot be written.
        """


#: No file is shared.
COPIES = ReleaseFiles()


def release_files(value: object) -> ReleaseFiles:
    """Return where an app wants releases' files to come from; None is a copy for each device.

    Raises:
        DataError: It is another object.
    """
    if value is None:
        return COPIES
    if isinstance(value, ReleaseFiles):
        return value
    raise DataError(f"releases must be fala.Releases(folder), not {shown(value)}")


def bundle_path(device: Path, digest: str) -> Path:
    """Return where a device keeps a bundle."""
    # By content: installing a bundle never touches the file of another.
    return device / BUNDLES / f"{digest}.fala"


def write_copy(bundle: Bundle, file: Path) -> None:
    """Write a bundle's verified bytes to a file, whatever it was.

    Raises:
        BundleDigestError: The source of a bundle that is not held changed meanwhile.
        OSError: It cannot be written.
    """
    contents = bundle.files()
    if file.is_dir():
        remove(file)

    def write(temporary: Path) -> None:
        write_archive(temporary, contents)
        keep_private(temporary)

    write_atomically(file, write)
