"""A product's versions, as a device has had them: they only rise."""

from __future__ import annotations

import re

from fala.bundle.manifest import Manifest
from fala.errors import OlderReleaseError
from fala.store.store import Store

_VERSION = re.compile(r"[0-9]{1,16}")


def newest_version(store: Store, product: str | None, now: Manifest | None = None) -> int | None:
    """The newest version of a product that was ever installed, whatever answers now.

    Args:
        store: The device's.
        product: The product; None for releases that name none.
        now: What answers: a device of an earlier SDK has noted nothing yet.

    Returns:
        None where none with a version was.
    """
    noted = store.get(_setting(product))
    known = [] if noted is None or not _VERSION.fullmatch(noted) else [int(noted)]
    if now is not None and now.product == product and now.version is not None:
        known.append(now.version)
    return max(known, default=None)


def note_version(store: Store, installed: Manifest, now: Manifest | None = None) -> None:
    """Note that a release is installed. In a transaction.

    Args:
        store: The device's.
        installed: The release.
        now: What answered before.
    """
    for manifest in (installed, now):
        if manifest is not None and manifest.version is not None:
            newest = newest_version(store, manifest.product, manifest)
            store.set(_setting(manifest.product), str(newest))


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


def _setting(product: str | None) -> str:
    return "newest version" if product is None else f"newest version of {product}"
