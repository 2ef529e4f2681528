"""Hold a vendor's repository: metadata with keys, as files that any static web server can serve.

    metadata/N.root.json  N.snapshot.json  N.targets.json  N.PRODUCT.json  timestamp.json
    targets/PRODUCT/SHA256.release.fala

Files are only added, except ``timestamp.json``, which names the others. It is written after them,
and a new root is written after all metadata that its keys have signed. A process that is killed
midway therefore leaves a valid repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from securesystemslib.exceptions import StorageError
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Role,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from fala.base.errors import counted
from fala.updates import METADATA, release_path
from fala_export.base.errors import ExportError
from fala_export.base.files import write_file
from fala_export.updates.keys import Keyring

ROOT, TARGETS, SNAPSHOT, TIMESTAMP = "root", "targets", "snapshot", "timestamp"
TOP_ROLES = (ROOT, TARGETS, SNAPSHOT, TIMESTAMP)

#: Default number of days for which a role's metadata are signed; a product's are the targets'.
PERIODS = {ROOT: 365, TARGETS: 365, SNAPSHOT: 30, TIMESTAMP: 7}

#: File of a repository that locks it against other writers.
LOCK = ".lock"

#: A target's versions by the content of the releases, so that an old release is recognized.
HISTORY = "published"

# Stored in the metadata of each role, so that a renewal keeps its period.
_PERIOD = "x-fala-days"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a repository against other writers.

    Raises:
        ExportError: Another process holds the lock, or the folder does not exist.
    """
    if not folder.is_dir():
        raise ExportError(
            f"{folder}: there is no such repository; make one with fala-export repository begin"
        )
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ExportError(
            f"{folder}: another process is publishing in it; try again later"
        ) from error


class Repository:
    """All metadata of a repository.

    Args:
        folder: The repository's folder.
        roles: The metadata by role.

    Attributes:
        folder: The repository's folder.
        roles: The metadata by role: those of ``TOP_ROLES``, and every product with its own keys.
            The root lists the keys of every role, the timestamp names the snapshot, and the
            snapshot names the metadata of the targets and of the products.
        before: The repository as it was loaded; None for a new one. Its available keys also sign,
            so that clients without a new root accept the metadata.
    """

    def __init__(self, folder: Path, roles: dict[str, Metadata[Any]]) -> None:
        self.folder, self.roles = folder, roles
        self.before: Repository | None = None

    @classmethod
    def new(cls, folder: Path, periods: Mapping[str, int]) -> Repository:
        """Return a repository without targets and keys.

        Args:
            folder: The repository's folder.
            periods: Number of days for which each role's metadata are signed.
        """
        contents: dict[str, Root | Targets | Snapshot | Timestamp] = {
            ROOT: Root(consistent_snapshot=True), TARGETS: Targets(), SNAPSHOT: Snapshot(),
            TIMESTAMP: Timestamp(),
        }  # fmt: skip
        return cls(folder, {role: _first(contents[role], periods[role]) for role in TOP_ROLES})

    @classmethod
    def load(cls, folder: Path) -> Repository:
        """Read a repository, and check its signatures.

        Raises:
            ExportError: The repository does not exist, a file is missing, or a signature is wrong.
        """

        def read(name: str) -> Metadata[Any]:
            return Metadata.from_file(str(folder / METADATA / f"{name}.json"))

        try:
            root = read(f"1.{ROOT}")
            while (folder / METADATA / f"{root.signed.version + 1}.{ROOT}.json").exists():
                newer = read(f"{root.signed.version + 1}.{ROOT}")
                root.signed.verify_delegate(ROOT, newer.signed_bytes, newer.signatures)
                root = newer
            timestamp = read(TIMESTAMP)
            snapshot = read(f"{timestamp.signed.snapshot_meta.version}.{SNAPSHOT}")
            named = {
                name.removesuffix(".json"): read(f"{file.version}.{name.removesuffix('.json')}")
                for name, file in snapshot.signed.meta.items()
            }
            top = (root, named.pop(TARGETS), snapshot, timestamp)
            repository = cls(folder, {**dict(zip(TOP_ROLES, top, strict=True)), **named})
            for role, metadata in repository.roles.items():
                if not repository.verifies(role, metadata):
                    raise RepositoryError(f"{role} is not signed by its keys")
        except (RepositoryError, StorageError, ValueError, KeyError) as error:
            raise ExportError(f"{folder}: is not a complete repository: {error}") from error
        repository.before = deepcopy(repository)
        return repository

    def __getitem__(self, role: str) -> Metadata[Any]:
        """Return a role's metadata."""
        if role not in self.roles:
            raise ExportError(f"there is no role {role}; the roles are {', '.join(self.roles)}")
        return self.roles[role]

    def role_of(self, product: str) -> str:
        """Return the role that signs a product's releases."""
        return product if product in self.roles and product not in TOP_ROLES else TARGETS

    def release(self, product: str) -> TargetFile | None:
        """Return a product's newest release; None if there is none."""
        return self[self.role_of(product)].signed.targets.get(release_path(product))

    def history(self, product: str) -> Mapping[str, int]:
        """Return the last version of every release of a product, by the releases' content."""
        target = self.release(product)
        custom = None if target is None else target.custom
        history = custom.get(HISTORY) if isinstance(custom, dict) else None
        return history if isinstance(history, dict) else {}

    def newest(self, product: str) -> int:
        """Return the version of a product's newest release; 0 if there is none."""
        return max(self.history(product).values(), default=0)

    def file_of(self, target: TargetFile) -> Path:
        """Return the file of a release."""
        return self.folder / TARGETS / target.get_prefixed_paths()[0]

    def period_of(self, role: str) -> timedelta:
        """Return the time for which a role's metadata are signed."""
        signed = self[role].signed
        return timedelta(int(signed.unrecognized_fields.get(_PERIOD, PERIODS.get(signed.type))))

    def _delegator(self, role: str) -> Root | Targets:
        """Return the metadata that list a role's keys."""
        return self[ROOT if role in TOP_ROLES else TARGETS].signed

    def delegate(self, role: str) -> Role:
        """Return the keys and the threshold of a role."""
        return self._delegator(role).get_delegated_role(role)

    def verifies(self, role: str, metadata: Metadata[Any]) -> bool:
        """Return whether metadata have the signatures that a role needs."""
        result = self._delegator(role).get_verification_result(
            role, metadata.signed_bytes, metadata.signatures
        )
        return bool(result.verified)

    def set_keys(self, role: str, signers: Iterable[CryptoSigner], threshold: int) -> None:
        """Replace the keys that sign for a role."""
        delegator = self._delegator(role)
        for old in list(self.delegate(role).keyids):
            delegator.revoke_key(old, role)
        for signer in signers:
            delegator.add_key(signer.public_key, role)
        self.delegate(role).threshold = threshold

    def add_product(self, product: str) -> None:
        """Delegate a product to its own keys, and move its releases there.

        Raises:
            ExportError: The product already has its own keys, or its name is a role's.
        """
        top = self[TARGETS].signed
        if product in TOP_ROLES:
            raise ExportError(f"{product}: is the name of a role, which no product can have")
        if product in self.roles:
            raise ExportError(f"{product}: already has its own keys; rotate them")
        if top.delegations is None:
            top.delegations = Delegations(keys={}, roles={})
        if top.delegations.roles is None:
            raise ExportError("the repository delegates to hashed bins, which is not supported")
        role = DelegatedRole(product, [], 1, terminating=True, paths=[f"{product}/*"])
        top.delegations.roles[product] = role
        moved = [path for path in top.targets if path.startswith(f"{product}/")]
        releases = Targets(targets={path: top.targets.pop(path) for path in moved})
        self.roles[product] = _first(releases, PERIODS[TARGETS])

    def sign(self, roles: Iterable[str], keys: Keyring, now: datetime) -> dict[str, bytes]:
        """Sign the next version of some roles' metadata, and of the metadata that name them.

        Args:
            roles: The changed roles.
            keys: The available keys.
            now: The current time, from which metadata are valid.

        Returns:
            The metadata to write, by role, in the order of writing; the root is last.

        Raises:
            ExportError: Keys are missing.
        """
        changed = {*roles}
        if changed - {ROOT, TIMESTAMP}:
            changed |= {SNAPSHOT, TIMESTAMP}
        written: dict[str, bytes] = {}
        files: dict[str, MetaFile] = {}
        products = [role for role in self.roles if role not in TOP_ROLES]
        for role in (*products, TARGETS, SNAPSHOT, TIMESTAMP, ROOT):
            if role not in changed:
                continue
            metadata = self[role]
            signed = metadata.signed
            signed.version += 1
            signed.expires = now + self.period_of(role)
            metadata.signatures.clear()
            if role == SNAPSHOT:
                signed.meta |= files
            if role == TIMESTAMP and SNAPSHOT in written:
                signed.snapshot_meta = files[f"{SNAPSHOT}.json"]
            ids = list(self.delegate(role).keyids)
            if self.before is not None and role in TOP_ROLES:
                ids += [each for each in self.before.delegate(role).keyids if each not in ids]
            for signer in keys.find(ids):
                metadata.sign(signer, append=True)
            written[role] = metadata.to_bytes()
            files[f"{role}.json"] = MetaFile.from_data(signed.version, written[role], ["sha256"])
            self._check_signed(role, keys)
        return written

    def _check_signed(self, role: str, keys: Keyring) -> None:
        # Clients update from each root to the next.
        follows = role != ROOT or self.before is None or self.before.verifies(ROOT, self[ROOT])
        if not (self.verifies(role, self[role]) and follows):
            needed = self.delegate(role)
            unread = f"; not read: {'; '.join(keys.unread)}" if keys.unread else ""
            old = " and as many of its old keys" if role == ROOT and self.before is not None else ""
            raise ExportError(
                f"{needed.threshold} of the {counted(len(needed.keyids), 'key')} of role {role}"
                f"{old} must sign, but {len(self[role].signatures)} did; name the keys with --key"
                f"{unread}"
            )

    def write(self, signed: Mapping[str, bytes]) -> None:
        """Write new metadata.

        Args:
            signed: The metadata by role, in the order of writing; see ``sign``.

        Raises:
            ExportError: The metadata cannot be written.
        """
        roles = list(signed)
        if self.before is not None and not all(
            self.before.verifies(role, self[role]) for role in signed if role in TOP_ROLES
        ):
            # Devices accept what a role's new keys have signed only after the new root.
            roles.sort(key=lambda role: role != ROOT)
        for role in roles:
            name = role if role == TIMESTAMP else f"{self[role].signed.version}.{role}"
            write_file(self.folder / METADATA / f"{name}.json", signed[role])

    def show(self, now: datetime) -> dict[str, Any]:
        """Return the roles and releases as plain values."""
        roles, releases = {}, {}
        for role, metadata in self.roles.items():
            signed, keys = metadata.signed, self.delegate(role)
            roles[role] = {
                "version": signed.version,
                "expires": signed.expires.isoformat(),
                "expired": signed.is_expired(now),
                "threshold": f"{keys.threshold}/{len(keys.keyids)}",
            }
            for path in getattr(signed, "targets", ()):
                product = path.partition("/")[0]
                releases[product] = self.newest(product)
        return {"roles": roles, "releases": releases}


def _first(content: Root | Targets | Snapshot | Timestamp, days: int) -> Metadata[Any]:
    """Return metadata that are not signed yet, with the number of days for which they will be."""
    content.version = 0
    content.unrecognized_fields[_PERIOD] = days
    return Metadata(content)
