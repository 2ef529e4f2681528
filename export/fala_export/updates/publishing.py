"""Change a vendor's repository: begin, publish, renew, rotate, delegate."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tuf.api.metadata import TargetFile

from fala import Bundle
from fala.base.files import temporary_folder, write_atomically
from fala.bundle.manifest import PRODUCT
from fala.updates import DEFAULT_PRODUCT, METADATA, TARGETS, release_path
from fala_export.base.checks import check_room
from fala_export.base.errors import ExportError
from fala_export.bundle.writing import add_version
from fala_export.updates import repository
from fala_export.updates.keys import PRIVATE, PUBLIC, Keyring, make_key
from fala_export.updates.repository import LOCK
from fala_export.updates.state import (
    PERIODS,
    ROOT,
    SNAPSHOT,
    TIMESTAMP,
    TOP_ROLES,
    RepositoryState,
    add_product_role,
    new_state,
    period_of,
    set_keys,
    sign_state,
)

#: Number of days for which a product's metadata are signed.
_PRODUCT_DAYS = PERIODS[TARGETS]

# A target's versions by the content of the releases, so that an old release is recognized.
_HISTORY = "published"


@dataclass(frozen=True)
class Threshold:
    """The threshold for a role's signatures.

    Attributes:
        needed: Number of keys that must sign.
        keys: Number of keys that the role has.
    """

    needed: int
    keys: int


#: The root needs two of three keys, so it survives the loss or theft of one.
THRESHOLDS = {
    ROOT: Threshold(2, 3), TARGETS: Threshold(1, 1), SNAPSHOT: Threshold(1, 1),
    TIMESTAMP: Threshold(1, 1),
}  # fmt: skip


def begin(
    folder: Path,
    keys: Path,
    now: datetime,
    *,
    thresholds: Mapping[str, Threshold] | None = None,
    periods: Mapping[str, int] | None = None,
    passphrase: bytes | None = None,
) -> dict[str, Any]:
    """Begin a repository with new keys.

    Args:
        folder: The repository, which must not exist or must be empty.
        keys: Folder for the private keys, outside the repository.
        now: The current time.
        thresholds: Thresholds by role; see ``THRESHOLDS``.
        periods: Number of days for which each role's metadata are signed; see ``PERIODS``.
        passphrase: Passphrase that encrypts the keys.

    Returns:
        The paths, and the state as ``show_repository`` returns it.

    Raises:
        ExportError: The folder is not empty, or the folder of the keys is inside it.
    """
    if is_begun(folder):
        raise ExportError(f"{folder}: is not empty, but a repository must begin in a new folder")
    _check_outside(folder, keys)
    state = new_state({**PERIODS, **(periods or {})})
    ring = Keyring()
    for role, threshold in {**THRESHOLDS, **(thresholds or {})}.items():
        _new_keys(state, role, threshold, keys, passphrase, ring)
    metadata = sign_state(state, TOP_ROLES, ring, now)
    for part in (METADATA, TARGETS):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with repository.locked(folder):
        repository.write_repository(folder, state, metadata)
    return {
        "repository": str(folder),
        "root": str(folder / METADATA / f"1.{ROOT}.json"),
        "keys": str(keys),
        **show_repository(state, now),
    }


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
        The published file and version, and the state as ``show_repository`` returns it.

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
    with repository.locked(folder), temporary_folder() as scratch:
        state = repository.load_repository(folder)
        path = release_path(product_name)
        published = state.release(path)
        last = _version(published)
        number = version or manifest.version or last + 1
        if not republish:
            _check_new(folder, bundle, opened, published, number)
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
        target = TargetFile.from_file(path, str(source), ["sha256"])
        target.unrecognized_fields["custom"] = {
            "product": product_name, "version": number,
            _HISTORY: {**_history(published), _content(opened): number},
        }  # fmt: skip
        role = product_name if product_name in state.products else TARGETS
        state.targets[role].signed.targets[path] = target
        metadata = sign_state(state, [role], keys, now)
        file = folder / TARGETS / target.get_prefixed_paths()[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, partial(shutil.copyfile, source))
        repository.write_repository(folder, state, metadata)
    return {
        "repository": str(folder), "product": product_name, "version": number,
        "name": manifest.title, "file": str(file), "bytes": target.length,
        **show_repository(state, now),
    }  # fmt: skip


def _check_new(
    folder: Path,
    bundle: Path,
    opened: Bundle,
    target: TargetFile | None,
    number: int,
) -> None:
    """Check that a release is newer than all other releases of its product.

    Raises:
        ExportError: The release is already published, or is older than the newest one.
    """
    if target is None:
        return
    last, product = _version(target), target.path.partition("/")[0]
    remedy = f"--republish publishes it again, as version {last + 1}"
    if (before := _history(target).get(_content(opened))) is not None:
        newest = "the newest one" if before == last else f"and version {last} is the newest"
        raise ExportError(
            f"{bundle}: is already in {folder}, as version {before} of {product}, {newest}; "
            f"{remedy}"
        )
    if number <= last:
        raise _not_newer(f"{bundle}: version {number}", product, last)
    newest_file = folder / TARGETS / target.get_prefixed_paths()[0]
    if newest_file.exists() and _replaces(Bundle.open(newest_file), opened):
        raise ExportError(
            f"{bundle}: is older than version {last} of {product} in {folder}, which has a bridge "
            f"from it; {remedy}"
        )


def _replaces(newer: Bundle, older: Bundle) -> bool:
    """Return whether a release leads devices away from another's backbone, and none back."""
    one, other = newer.backbone_digest, older.backbone_digest
    return one != other and other in newer.bridges() and one not in older.bridges()


def check_publishing(
    folder: Path,
    keys: Sequence[Path],
    passphrase: bytes | None,
    now: datetime,
    *,
    product: str | None,
    version: int | None,
    republish: bool = False,
) -> None:
    """Check before the work on a release that ``publish_or_begin`` can publish it.

    Args:
        folder: The repository; if it does not exist, it will be begun.
        keys: Files of keys, and folders of such files.
        passphrase: Passphrase of the keys.
        now: The current time.
        product: The release's product; None for ``DEFAULT_PRODUCT``.
        version: The release's version; None uses the next one.
        republish: Whether a published or older release may be published; see ``publish``.

    Raises:
        ExportError: Keys are missing, or a newer version is published.
    """
    if not is_begun(folder):
        return
    name, state = product or DEFAULT_PRODUCT, repository.load_repository(folder)
    last = _version(state.release(release_path(name)))
    if version is not None and version < last and not republish:
        raise _not_newer(f"this recipe's version {version}", name, last)
    # Only the state in memory is signed.
    sign_state(
        state, [name if name in state.products else TARGETS], Keyring.read(keys, passphrase), now
    )


def _not_newer(release: str, product: str, last: int) -> ExportError:
    return ExportError(
        f"{release} of {product}, but version {last} is published; devices install only newer "
        f"versions, and --republish publishes it as version {last + 1}"
    )


def publish_or_begin(
    folder: Path,
    bundle: Path,
    keys: Sequence[Path],
    passphrase: bytes | None,
    now: datetime,
    *,
    republish: bool = False,
) -> dict[str, Any]:
    """Publish a release unless it is published, in a repository that is begun if it does not exist.

    Args:
        folder: The repository; if it does not exist, new keys go to the first of ``keys``.
        bundle: The release.
        keys: Files of keys, and folders of such files.
        passphrase: Passphrase of the keys.
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
        begin(folder, keys[0], now, passphrase=passphrase)
    if not republish and (before := published_before(folder, bundle)) is not None:
        return before
    ring = Keyring.read(keys, passphrase)
    return publish(folder, bundle, ring, now, republish=republish)


def published_before(folder: Path, bundle: Path) -> dict[str, Any] | None:
    """Return a release's published version and the newest one; None if it is not published."""
    if not is_begun(folder):
        return None
    opened = Bundle.open(bundle)
    product = opened.manifest.product or DEFAULT_PRODUCT
    target = repository.load_repository(folder).release(release_path(product))
    before, newest = _history(target).get(_content(opened)), _version(target)
    if before is None:
        return None
    return {"repository": str(folder), "product": product, "version": before, "newest": newest}


def _content(bundle: Bundle) -> str:
    """Return the identity of a release, whatever version it is published as."""
    details = {
        key: value
        for key, value in bundle.manifest.details.items()
        if key not in ("product", "version")
    }
    return replace(bundle.manifest, details=details).digest


def _history(target: TargetFile | None) -> Mapping[str, int]:
    """Return the version of every release of a product, by its content; see ``publish``."""
    custom = None if target is None else target.custom
    history = custom.get(_HISTORY) if isinstance(custom, dict) else None
    return history if isinstance(history, dict) else {}


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
        The renewed roles, and the state as ``show_repository`` returns it.

    Raises:
        ExportError: Keys are missing.
    """
    with repository.locked(folder):
        state = repository.load_repository(folder)
        for role in roles:
            _ = state[role]
        before = deepcopy(state)
        renewed = set(roles) or {TIMESTAMP, *_due(state, keys, now)}
        metadata = sign_state(state, renewed, keys, now, before)
        repository.write_repository(folder, state, metadata)
    return {"repository": str(folder), "renewed": sorted(metadata), **show_repository(state, now)}


def rotate_key(
    folder: Path,
    role: str,
    keys: Keyring,
    new_keys: Path,
    now: datetime,
    *,
    threshold: Threshold | None = None,
    passphrase: bytes | None = None,
) -> dict[str, Any]:
    """Give a role new keys; devices reject the old keys once they have the new root.

    The available old and new keys both sign, so that every device has metadata that it accepts.

    Args:
        folder: The repository.
        role: The root, another role, or a product with its own keys.
        keys: The available keys: as many old keys of the root as its threshold, and the role's old
            keys, unless they are lost.
        new_keys: Folder for the new private keys.
        now: The current time.
        threshold: The new threshold; None keeps the role's threshold.
        passphrase: Passphrase that encrypts the new keys.

    Returns:
        The rotated role, and the state as ``show_repository`` returns it.

    Raises:
        ExportError: Keys are missing.
    """
    _check_outside(folder, new_keys)
    with repository.locked(folder):
        state = repository.load_repository(folder)
        before = deepcopy(state)
        _ = state[role]  # This raises an error if there is no such role.
        old = state.delegate(role)
        new_threshold = threshold or Threshold(old.threshold, len(old.keyids))
        files = _new_keys(state, role, new_threshold, new_keys, passphrase, keys)
        try:
            roles = [role, TARGETS] if role in state.products else [role, ROOT]
            metadata = sign_state(state, roles, keys, now, before)
        except ExportError:
            for file in files:  # No role has these keys.
                file.unlink()
                file.with_suffix(PUBLIC).unlink()
            raise
        lost = role in TOP_ROLES and role != ROOT and not before.verifies(role, state[role])
        repository.write_repository(folder, state, metadata, root_first=lost)
    return {"repository": str(folder), "rotated": role, **show_repository(state, now)}


def delegate(
    folder: Path,
    product: str,
    keys: Keyring,
    new_keys: Path,
    now: datetime,
    *,
    threshold: Threshold | None = None,
    passphrase: bytes | None = None,
) -> dict[str, Any]:
    """Give a product its own keys, which sign only its releases.

    Args:
        folder: The repository.
        product: The product.
        keys: Keys of the targets, the snapshot and the timestamp.
        new_keys: Folder for the new private keys.
        now: The current time.
        threshold: The product's threshold; None is one of one.
        passphrase: Passphrase that encrypts the new keys.

    Returns:
        The product, and the state as ``show_repository`` returns it.

    Raises:
        ExportError: The product already has its own keys, or keys are missing.
    """
    _check_outside(folder, new_keys)
    with repository.locked(folder):
        state = repository.load_repository(folder)
        add_product_role(state, _product(product), _PRODUCT_DAYS)
        _new_keys(state, product, threshold or Threshold(1, 1), new_keys, passphrase, keys)
        metadata = sign_state(state, [product, TARGETS], keys, now)
        repository.write_repository(folder, state, metadata)
    return {"repository": str(folder), "delegated": product, **show_repository(state, now)}


def show_repository(state: RepositoryState, now: datetime) -> dict[str, Any]:
    """Return a repository's roles and releases as plain values."""
    roles = {}
    for role in (*TOP_ROLES, *state.products):
        signed, keys = state[role].signed, state.delegate(role)
        roles[role] = {
            "version": signed.version,
            "expires": signed.expires.isoformat(),
            "expired": signed.is_expired(now),
            "threshold": f"{keys.threshold}/{len(keys.keyids)}",
        }
    releases = {
        target.path.partition("/")[0]: _version(target)
        for metadata in state.targets.values()
        for target in metadata.signed.targets.values()
    }
    return {"roles": roles, "releases": releases}


def _new_keys(
    state: RepositoryState,
    role: str,
    threshold: Threshold,
    new_keys: Path,
    passphrase: bytes | None,
    ring: Keyring,
) -> list[Path]:
    new = Keyring()
    files: list[Path] = []
    number = 1
    while len(files) < threshold.keys:
        file = new_keys / f"{role}-{number}{PRIVATE}"
        number += 1
        if not file.exists() and not file.with_suffix(PUBLIC).exists():
            key = make_key(file, passphrase)
            files.append(file)
            new.add(key)
            ring.add(key)
    set_keys(state, role, new, threshold.needed)
    return files


def _due(state: RepositoryState, keys: Keyring, now: datetime) -> list[str]:
    due = []
    for role in (*TOP_ROLES, *state.products):
        half = timedelta(days=period_of(state[role])) / 2
        delegated = state.delegate(role)
        available = len(keys.find(delegated.keyids)) >= delegated.threshold
        if state[role].signed.expires - now < half and available:
            due.append(role)
    return due


def _version(target: TargetFile | None) -> int:
    """Return the version of a published release; 0 if nothing is published, or has no version."""
    custom = None if target is None else target.custom
    version = custom.get("version") if isinstance(custom, dict) else None
    return version if isinstance(version, int) else 0


def _product(name: str) -> str:
    if not PRODUCT.fullmatch(name):
        raise ExportError(f"{name!r:.80}: a product's name must consist of a-z, 0-9, - and _")
    return name


def _check_outside(folder: Path, keys: Path) -> None:
    if keys.resolve() == folder.resolve() or folder.resolve() in keys.resolve().parents:
        raise ExportError(
            f"{keys}: is inside the repository, which everybody can read; choose another folder"
        )
