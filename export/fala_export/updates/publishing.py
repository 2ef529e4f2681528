"""Change a vendor's repository: begin, publish, renew, rotate, delegate."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tuf.api.metadata import TargetFile

from fala import Bundle
from fala.base.files import temporary_folder, write_atomically
from fala.bundle.manifest import PRODUCT
from fala.updates import DEFAULT_PRODUCT, METADATA, TARGETS, release_path
from fala_export.base.checks import check_room
from fala_export.base.errors import ExportError
from fala_export.bundle.writing import add_version
from fala_export.updates.keys import PUBLIC, Keyring
from fala_export.updates.repository import (
    HISTORY,
    LOCK,
    PERIODS,
    ROOT,
    SNAPSHOT,
    TIMESTAMP,
    TOP_ROLES,
    Repository,
    locked,
)


class Threshold(NamedTuple):
    """The threshold for a role's signatures.

    Attributes:
        needed: Number of keys that must sign.
        keys: Number of keys that the role has.
    """

    needed: int
    keys: int


_ONE = Threshold(1, 1)
#: The root needs two of three keys, so it survives the loss or theft of one.
THRESHOLDS = {ROOT: Threshold(2, 3), TARGETS: _ONE, SNAPSHOT: _ONE, TIMESTAMP: _ONE}


def begin(
    folder: Path,
    keys: Keyring,
    now: datetime,
    *,
    thresholds: Mapping[str, Threshold] | None = None,
    periods: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Begin a repository with new keys.

    Args:
        folder: The repository, which must not exist or must be empty.
        keys: The keyring that makes the keys, in a folder outside the repository.
        now: The current time.
        thresholds: Thresholds by role; see ``THRESHOLDS``.
        periods: Number of days for which each role's metadata are signed; see ``PERIODS``.

    Returns:
        The paths, and the state as ``Repository.show`` returns it.

    Raises:
        ExportError: The folder is not empty, or the folder of the keys is inside it.
    """
    if is_begun(folder):
        raise ExportError(f"{folder}: is not empty, but a repository must begin in a new folder")
    repository = Repository.new(folder, {**PERIODS, **(periods or {})})
    for role, threshold in {**THRESHOLDS, **(thresholds or {})}.items():
        _new_keys(repository, role, threshold, keys)
    signed = repository.sign(TOP_ROLES, keys, now)
    for part in (METADATA, TARGETS):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with locked(folder):
        repository.write(signed)
    root = folder / METADATA / f"1.{ROOT}.json"
    paths = {"repository": str(folder), "root": str(root), "keys": str(keys.new)}
    return {**paths, **repository.show(now)}


def is_begun(folder: Path) -> bool:
    """Return whether a folder has a repository, or files that a killed ``begin`` does not leave."""
    if (folder / METADATA / f"1.{ROOT}.json").exists():  # This file is written last.
        return True
    own = {METADATA, TARGETS, LOCK}
    return folder.exists() and any(file.name not in own for file in folder.iterdir())


def publish(
    folder: Path,
    bundle: Path,
    keys: Keyring,
    now: datetime,
    *,
    product: str | None = None,
    version: int | None = None,
    republish: bool = False,
) -> dict[str, Any]:
    """Make a release the newest of its product.

    If a bundle has no product or version, they are added to the published copy. Devices install the
    newest version, so an old release that is published again by mistake would replace its
    successor; this needs ``republish``.

    Args:
        folder: The repository.
        bundle: The release.
        keys: Keys of the product (or of the targets), of the snapshot and of the timestamp.
        now: The current time.
        product: The release's product; if None, the bundle's, or ``DEFAULT_PRODUCT``.
        version: The release's version; if None, the bundle's, or the next one.
        republish: Publish a release that is already in the repository, or is older than the newest
            one; if its own version is too low, the copy gets the next version.

    Returns:
        The published file and version, and the state as ``Repository.show`` returns it.

    Raises:
        ExportError: The bundle is not a release, belongs to another product, is already published,
            or is not newer than the published one; or keys are missing.
        BundleError: The bundle cannot be trusted.
    """
    opened = Bundle.open(bundle)
    check_room(bundle.stat().st_size, folder)
    manifest = opened.manifest
    if manifest.task is None:
        raise ExportError(
            f"{bundle}: is a backbone without a head, which no device can install; add a head "
            "with fala-export train"
        )
    product_name = _product(product or manifest.product or DEFAULT_PRODUCT)
    if manifest.product not in (None, product_name):
        raise ExportError(f"{bundle}: is a release of {manifest.product}, not of {product_name}")
    if version is not None and manifest.version not in (None, version) and not republish:
        raise ExportError(f"{bundle}: is version {manifest.version}, not {version}")
    with locked(folder), temporary_folder() as scratch:
        repository = Repository.load(folder)
        history = repository.history(product_name)
        last, content = repository.newest(product_name), _content(opened)
        number = version or manifest.version or last + 1
        if not republish:
            _check_new(repository, opened, product_name, number)
        elif version is None:
            number = max(number, last + 1)
        elif version <= last:
            raise ExportError(
                f"--version {version}: version {last} of {product_name} is published, and "
                "devices install only newer versions"
            )
        source = bundle
        if (manifest.product, manifest.version) != (product_name, number):
            source = scratch / "release.fala"
            manifest = add_version(source, opened, number, product_name)
        path = release_path(product_name)
        target = TargetFile.from_file(path, str(source), ["sha256"])
        target.unrecognized_fields["custom"] = {
            "product": product_name, "version": number, HISTORY: {**history, content: number},
        }  # fmt: skip
        role = repository.role_of(product_name)
        repository[role].signed.targets[path] = target
        signed = repository.sign([role], keys, now)
        file = repository.file_of(target)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, partial(shutil.copyfile, source))
        repository.write(signed)
    return {
        "repository": str(folder), "product": product_name, "version": number,
        "name": manifest.title, "file": str(file), "bytes": target.length,
        **repository.show(now),
    }  # fmt: skip


def _check_new(repository: Repository, release: Bundle, product: str, number: int) -> None:
    """Check that a release is newer than all other releases of its product.

    Raises:
        ExportError: The release is already published, or is older than the newest one.
    """
    target = repository.release(product)
    if target is None:
        return
    last, folder = repository.newest(product), repository.folder
    remedy = f"--republish publishes it again, as version {last + 1}"
    if (before := repository.history(product).get(_content(release))) is not None:
        newest = "the newest one" if before == last else f"and version {last} is the newest"
        raise ExportError(
            f"{release.path}: is already in {folder}, as version {before} of {product}, {newest}; "
            f"{remedy}"
        )
    if number <= last:
        raise _not_newer(f"{release.path}: version {number}", product, last)
    newest_file = repository.file_of(target)
    if newest_file.exists() and _replaces(Bundle.open(newest_file), release):
        raise ExportError(
            f"{release.path}: is older than version {last} of {product} in {folder}, which has a "
            f"bridge from it; {remedy}"
        )


def _replaces(newer: Bundle, older: Bundle) -> bool:
    """Return whether a release leads devices away from another's backbone, and none back."""
    one, other = newer.backbone_digest, older.backbone_digest
    return one != other and other in newer.bridges() and one not in older.bridges()


def check_publishing(
    folder: Path, keys: Keyring, now: datetime, product: str, version: int | None
) -> None:
    """Check before the work on a release that ``publish_or_begin`` can publish it.

    Args:
        folder: The repository; if it does not exist, it will be begun.
        keys: The available keys.
        now: The current time.
        product: The release's product.
        version: The version that the release must have; None for the next one.

    Raises:
        ExportError: Keys are missing, or a newer version is published.
    """
    if not is_begun(folder):
        return
    repository = Repository.load(folder)
    last = repository.newest(product)
    if version is not None and version < last:
        raise _not_newer(f"this recipe's version {version}", product, last)
    repository.sign([repository.role_of(product)], keys, now)  # Nothing is written.


def _not_newer(release: str, product: str, last: int) -> ExportError:
    return ExportError(
        f"{release} of {product}, but version {last} is published; devices install only newer "
        f"versions, and --republish publishes it as version {last + 1}"
    )


def publish_or_begin(
    folder: Path, bundle: Path, keys: Keyring, now: datetime, *, republish: bool
) -> dict[str, Any]:
    """Publish a release unless it is published, in a repository that is begun if it does not exist.

    Args:
        folder: The repository; if it does not exist, ``keys`` make its keys.
        bundle: The release.
        keys: The available keys.
        now: The current time.
        republish: Publish a release that is already published as the newest version.

    Returns:
        The summary of ``publish``; if the release is already published, its repository, product and
        version, and the ``newest`` version.

    Raises:
        ExportError: The repository cannot be begun or the release cannot be published; see
            ``begin`` and ``publish``.
    """
    if not is_begun(folder):
        begin(folder, keys, now)
    if not republish and (before := published_before(folder, bundle)) is not None:
        return before
    return publish(folder, bundle, keys, now, republish=republish)


def published_before(folder: Path, bundle: Path) -> dict[str, Any] | None:
    """Return a release's published version and the newest one; None if it is not published."""
    if not is_begun(folder):
        return None
    opened = Bundle.open(bundle)
    product = opened.manifest.product or DEFAULT_PRODUCT
    repository = Repository.load(folder)
    if (before := repository.history(product).get(_content(opened))) is None:
        return None
    return {
        "repository": str(folder), "product": product, "version": before,
        "newest": repository.newest(product),
    }  # fmt: skip


def _content(bundle: Bundle) -> str:
    """Return the identity of a release, whatever version it is published as."""
    details = {
        key: value
        for key, value in bundle.manifest.details.items()
        if key not in ("product", "version")
    }
    return replace(bundle.manifest, details=details).digest


def renew(
    folder: Path, keys: Keyring, now: datetime, roles: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Sign metadata again for another period.

    Args:
        folder: The repository.
        keys: The available keys.
        now: The current time.
        roles: Roles to renew, with the roles that name them. If empty, the timestamp is renewed,
            and every role that has less than half of its period left and whose keys are available.

    Returns:
        The renewed roles, and the state as ``Repository.show`` returns it.

    Raises:
        ExportError: Keys are missing.
    """
    with locked(folder):
        repository = Repository.load(folder)
        for role in roles:
            _ = repository[role]  # This raises an error if there is no such role.
        signed = repository.sign(roles or {TIMESTAMP, *_due(repository, keys, now)}, keys, now)
        repository.write(signed)
    return {"repository": str(folder), "renewed": sorted(signed), **repository.show(now)}


def _due(repository: Repository, keys: Keyring, now: datetime) -> Iterator[str]:
    """Yield the roles with less than half of their period left, whose keys are available."""
    for role, metadata in repository.roles.items():
        delegated = repository.delegate(role)
        is_due = metadata.signed.expires - now < repository.period_of(role) / 2
        if is_due and len(keys.find(delegated.keyids)) >= delegated.threshold:
            yield role


def rotate_key(
    folder: Path, role: str, keys: Keyring, now: datetime, threshold: Threshold | None = None
) -> dict[str, Any]:
    """Give a role new keys; devices reject the old keys once they have the new root.

    The available old and new keys both sign, so that every device has metadata that it accepts.

    Args:
        folder: The repository.
        role: The root, another role, or a product with its own keys.
        keys: The available keys: as many old keys of the root as its threshold, and the role's old
            keys, unless they are lost.
        now: The current time.
        threshold: The new threshold; None keeps the role's threshold.

    Returns:
        The rotated role, and the state as ``Repository.show`` returns it.

    Raises:
        ExportError: Keys are missing.
    """
    with locked(folder):
        repository = Repository.load(folder)
        _ = repository[role]  # This raises an error if there is no such role.
        old = repository.delegate(role)
        threshold = threshold or Threshold(old.threshold, len(old.keyids))
        _sign_with_new_keys(repository, role, threshold, keys, now)
    return {"repository": str(folder), "rotated": role, **repository.show(now)}


def delegate(
    folder: Path, product: str, keys: Keyring, now: datetime, threshold: Threshold | None = None
) -> dict[str, Any]:
    """Give a product its own keys, which sign only its releases.

    Args:
        folder: The repository.
        product: The product.
        keys: Keys of the targets, the snapshot and the timestamp.
        now: The current time.
        threshold: The product's threshold; None is one of one.

    Returns:
        The product, and the state as ``Repository.show`` returns it.

    Raises:
        ExportError: The product already has its own keys, or keys are missing.
    """
    with locked(folder):
        repository = Repository.load(folder)
        repository.add_product(_product(product))
        _sign_with_new_keys(repository, product, threshold or _ONE, keys, now)
    return {"repository": str(folder), "delegated": product, **repository.show(now)}


def _sign_with_new_keys(
    repository: Repository, role: str, threshold: Threshold, keys: Keyring, now: datetime
) -> None:
    """Give a role new keys, and write what is signed with them; keys that sign nothing go."""
    files = _new_keys(repository, role, threshold, keys)
    try:
        signed = repository.sign([role, ROOT if role in TOP_ROLES else TARGETS], keys, now)
    except ExportError:
        for file in files:
            file.unlink()
            file.with_suffix(PUBLIC).unlink()
        raise
    repository.write(signed)


def _new_keys(
    repository: Repository, role: str, threshold: Threshold, keys: Keyring
) -> Iterable[Path]:
    """Give a role new keys, which are made outside the repository, and return their files."""
    public, private = repository.folder.resolve(), keys.new.resolve()
    if public in (private, *private.parents):
        raise ExportError(
            f"{keys.new}: is inside the repository, which everybody can read; choose another folder"
        )
    made = keys.make(role, threshold.keys)
    repository.set_keys(role, made.values(), threshold.needed)
    return made


def _product(name: str) -> str:
    if not PRODUCT.fullmatch(name):
        raise ExportError(f"{name!r:.80}: a product's name must consist of a-z, 0-9, - and _")
    return name
