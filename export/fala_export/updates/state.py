"""Hold the metadata of a repository in memory, with keys, thresholds and periods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
from fala_export.base.errors import ExportError
from fala_export.updates.keys import Keyring

ROOT, TARGETS, SNAPSHOT, TIMESTAMP = "root", "targets", "snapshot", "timestamp"
TOP_ROLES = (ROOT, TARGETS, SNAPSHOT, TIMESTAMP)

#: Default number of days for which a role's metadata are signed.
PERIODS = {ROOT: 365, TARGETS: 365, SNAPSHOT: 30, TIMESTAMP: 7}

# Stored in the metadata of each role, so that a renewal keeps its period.
_PERIOD = "x-fala-days"


@dataclass
class RepositoryState:
    """All metadata of a repository.

    Attributes:
        root: Metadata that list the keys of every role.
        timestamp: Metadata that name the snapshot.
        snapshot: Metadata that name all targets' metadata.
        targets: Metadata by role: ``"targets"``, and every product with its own keys.
    """

    root: Metadata[Root]
    timestamp: Metadata[Timestamp]
    snapshot: Metadata[Snapshot]
    targets: dict[str, Metadata[Targets]]

    def __getitem__(self, role: str) -> Metadata[Any]:
        """Return a role's metadata."""
        if role in self.targets:
            return self.targets[role]
        if role in (ROOT, SNAPSHOT, TIMESTAMP):
            metadata: Metadata[Any] = getattr(self, role)
            return metadata
        raise ExportError(
            f"there is no role {role}; the roles are {', '.join((*TOP_ROLES, *self.products))}"
        )

    @property
    def products(self) -> list[str]:
        """Products that have their own keys."""
        return [role for role in self.targets if role != TARGETS]

    def delegator(self, role: str) -> Root | Targets:
        """Return the metadata that list a role's keys."""
        return self.targets[TARGETS].signed if role in self.products else self.root.signed

    def delegate(self, role: str) -> Role:
        """Return the keys and the threshold of a role."""
        return self.delegator(role).get_delegated_role(role)

    def verifies(self, role: str, metadata: Metadata[Any]) -> bool:
        """Return whether metadata have the signatures that a role needs."""
        result = self.delegator(role).get_verification_result(
            role, metadata.signed_bytes, metadata.signatures
        )
        return bool(result.verified)

    def release(self, path: str) -> TargetFile | None:
        """Return the target of a path; None if no role lists it."""
        listed = (metadata.signed.targets.get(path) for metadata in self.targets.values())
        return next((target for target in listed if target is not None), None)


def new_state(periods: dict[str, int]) -> RepositoryState:
    """Return metadata without targets and keys."""
    state = RepositoryState(
        Metadata(Root(consistent_snapshot=True)),
        Metadata(Timestamp()),
        Metadata(Snapshot()),
        {TARGETS: Metadata(Targets())},
    )
    for role in TOP_ROLES:
        state[role].signed.version = 0
        set_period(state[role], periods[role])
    return state


def set_period(metadata: Metadata[Any], days: int) -> None:
    """Set for how many days metadata are signed."""
    metadata.signed.unrecognized_fields[_PERIOD] = days


def period_of(metadata: Metadata[Any]) -> int:
    """Return the number of days for which metadata are signed."""
    return int(metadata.signed.unrecognized_fields.get(_PERIOD, PERIODS.get(metadata.signed.type)))


def set_keys(state: RepositoryState, role: str, keys: Keyring, threshold: int) -> None:
    """Replace the keys that sign for a role.

    Raises:
        ExportError: The threshold is larger than the number of keys.
    """
    if not 1 <= threshold <= len(keys.signers):
        raise ExportError(f"{role}: {threshold} of {counted(len(keys.signers), 'key')} cannot sign")
    delegator = state.delegator(role)
    for old in list(delegator.get_delegated_role(role).keyids):
        delegator.revoke_key(old, role)
    for signer in keys.signers.values():
        delegator.add_key(signer.public_key, role)
    delegator.get_delegated_role(role).threshold = threshold


def add_product_role(state: RepositoryState, product: str, days: int) -> None:
    """Delegate a product to its own keys, and move its releases there.

    Raises:
        ExportError: The product already has its own keys, or its name is a role's.
    """
    top = state.targets[TARGETS].signed
    if product in TOP_ROLES:
        raise ExportError(f"{product}: is the name of a role, which no product can have")
    if product in state.targets:
        raise ExportError(f"{product}: already has its own keys; rotate them")
    if top.delegations is None:
        top.delegations = Delegations(keys={}, roles={})
    roles = top.delegations.roles
    if roles is None:
        raise ExportError("the repository delegates to hashed bins, which is not supported")
    roles[product] = DelegatedRole(product, [], 1, terminating=True, paths=[f"{product}/*"])
    targets = Metadata(Targets())
    targets.signed.version = 0
    set_period(targets, days)
    moved = [path for path in top.targets if path.startswith(f"{product}/")]
    targets.signed.targets = {path: top.targets.pop(path) for path in moved}
    state.targets[product] = targets


def sign_state(
    state: RepositoryState,
    roles: Iterable[str],
    keys: Keyring,
    now: datetime,
    before: RepositoryState | None = None,
) -> dict[str, bytes]:
    """Sign the next version of some roles' metadata, and of the metadata that name them.

    Args:
        state: The state with the new content; its versions, times and signatures are set here.
        roles: The changed roles.
        keys: The available keys.
        now: The current time, from which metadata are valid.
        before: The state before the keys changed. Its available keys also sign, so that clients
            without the new root accept the metadata.

    Returns:
        The metadata to write, by role, in the order of writing; the root is last.

    Raises:
        ExportError: Keys are missing.
    """
    changed = {*roles}
    named = {SNAPSHOT, TIMESTAMP} if changed & {*state.targets, SNAPSHOT} else set()
    changed |= named
    written: dict[str, bytes] = {}
    for role in (*state.products, TARGETS, SNAPSHOT, TIMESTAMP, ROOT):
        if role not in changed:
            continue
        metadata = state[role]
        signed = metadata.signed
        signed.version += 1
        signed.expires = now + timedelta(days=period_of(metadata))
        metadata.signatures.clear()
        if role == SNAPSHOT:
            for name in written:
                signed.meta[f"{name}.json"] = _meta(state[name], written[name])
        if role == TIMESTAMP and SNAPSHOT in written:
            signed.snapshot_meta = _meta(state.snapshot, written[SNAPSHOT])
        ids = list(state.delegate(role).keyids)
        if before is not None and role in TOP_ROLES:
            ids += [key_id for key_id in before.delegate(role).keyids if key_id not in ids]
        for signer in keys.find(ids):
            metadata.sign(signer, append=True)
        written[role] = metadata.to_bytes()
        _check_signed(state, role, metadata, keys, before)
    return written


def _meta(metadata: Metadata[Any], data: bytes) -> MetaFile:
    return MetaFile.from_data(metadata.signed.version, data, ["sha256"])


def _check_signed(
    state: RepositoryState,
    role: str,
    metadata: Metadata[Any],
    keys: Keyring,
    before: RepositoryState | None,
) -> None:
    # Clients update from each root to the next.
    follows = role != ROOT or before is None or before.verifies(ROOT, metadata)
    if not (state.verifies(role, metadata) and follows):
        needed = state.delegate(role)
        unread = f"; not read: {'; '.join(keys.unread)}" if keys.unread else ""
        old = " and as many of its old keys" if role == ROOT and before is not None else ""
        raise ExportError(
            f"{needed.threshold} of the {counted(len(needed.keyids), 'key')} of role {role}{old} "
            f"must sign, but {len(metadata.signatures)} did; name the keys with --key{unread}"
        )


def check_state(state: RepositoryState) -> None:
    """Check that every role's metadata are signed by its keys.

    Raises:
        RepositoryError: A signature is missing or wrong.
    """
    for role in (ROOT, TIMESTAMP, SNAPSHOT, *state.targets):
        if not state.verifies(role, state[role]):
            raise RepositoryError(f"{role} is not signed by its keys")
