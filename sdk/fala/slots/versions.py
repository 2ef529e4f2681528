"""The versions of a product on a device: they only increase."""

from __future__ import annotations

from fala.bundle.manifest import Manifest
from fala.errors import OlderReleaseError
from fala.store.store import Store


def note_version(store: Store, installed: Manifest) -> None:
    """Note that a release is installed. In a transaction.

    Args:
        store: The device's.
        installed: The release.
    """
    if installed.version is not None:
        newest = store.settings.newest_version(installed.product)
        version = max(installed.version, newest or installed.version)
        store.settings.set_newest_version(installed.product, version)


def check_version(store: Store, active: Manifest, new: Manifest) -> None:
    """Refuse a release that is older than one that this device has had, or of another product.

    A release without a version, or without a product, is not compared.

    Raises:
        OlderReleaseError: It is older, or of another product.
    """
    hint = "with allow_older=True it is installed all the same"
    if new.product is not None and active.product is not None and new.product != active.product:
        raise OlderReleaseError(
            f"a release of {new.product}, and this device has one of {active.product}; {hint}"
        )
    newest = store.settings.newest_version(new.product)
    if new.version is not None and newest is not None and new.version < newest:
        raise OlderReleaseError(
            f"version {new.version}, and this device has had version {newest} already; rollback "
            f"goes back to the release before the last, and {hint}"
        )
