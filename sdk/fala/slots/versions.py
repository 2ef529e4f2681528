"""A product's versions, as a device has had them: they only rise."""

from __future__ import annotations

from fala.bundle.manifest import Manifest
from fala.errors import OlderReleaseError
from fala.store.store import Store


def newest_version(store: Store, product: str | None, now: Manifest | None = None) -> int | None:
    """The newest version of a product that was ever installed, whatever is active now.

    Args:
        store: The device's.
        product: The product; None for releases that name none.
        now: The active release: a device of an earlier SDK has noted nothing yet.

    Returns:
        None where none with a version was.
    """
    versions = [store.settings.newest_version(product)]
    if now is not None and now.product == product:
        versions.append(now.version)
    return max((one for one in versions if one is not None), default=None)


def note_version(store: Store, installed: Manifest, now: Manifest | None = None) -> None:
    """Note that a release is installed. In a transaction.

    Args:
        store: The device's.
        installed: The release.
        now: The release that was active before.
    """
    for manifest in (installed, now):
        if manifest is not None and manifest.version is not None:
            newest = newest_version(store, manifest.product, manifest)
            store.settings.set_newest_version(manifest.product, newest or manifest.version)


def check_version(store: Store, now: Manifest, new: Manifest) -> None:
    """Refuse a release that is older than one that this device has had, or of another product.

    A release without a version, or without a product, is compared with none.

    Raises:
        OlderReleaseError: It is.
    """
    word = "with allow_older=True it is installed all the same"
    if new.product is not None and now.product is not None and new.product != now.product:
        raise OlderReleaseError(
            f"a release of {new.product}, and this device has one of {now.product}; {word}"
        )
    newest = newest_version(store, new.product, now)
    if new.version is not None and newest is not None and new.version < newest:
        raise OlderReleaseError(
            f"version {new.version}, and this device has had version {newest} already; rollback "
            f"goes back to the release before the last, and {word}"
        )
