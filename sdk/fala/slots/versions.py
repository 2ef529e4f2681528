"""The versions of a product on a device: they only increase."""

from __future__ import annotations

from fala.bundle.manifest import Manifest
from fala.errors import OlderReleaseError
from fala.store.store import Store


def newest_version(store: Store, product: str | None, active: Manifest | None = None) -> int | None:
    """The newest version of a product that was ever installed, whatever is active now.

    Args:
        store: The device's.
        product: The product; None for releases that name none.
        active: The active release: a device of an earlier SDK has no record of it.

    Returns:
        None if no release with a version was installed.
    """
    versions = [store.settings.newest_version(product)]
    if active is not None and active.product == product:
        versions.append(active.version)
    return max((version for version in versions if version is not None), default=None)


def note_version(store: Store, installed: Manifest, active: Manifest | None = None) -> None:
    """Note that a release is installed. In a transaction.

    Args:
        store: The device's.
        installed: The release.
        active: The release that was active before.
    """
    for manifest in (installed, active):
        if manifest is not None and manifest.version is not None:
            newest = newest_version(store, manifest.product, manifest)
            store.settings.set_newest_version(manifest.product, newest or manifest.version)


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
    newest = newest_version(store, new.product, active)
    if new.version is not None and newest is not None and new.version < newest:
        raise OlderReleaseError(
            f"version {new.version}, and this device has had version {newest} already; rollback "
            f"goes back to the release before the last, and {hint}"
        )
