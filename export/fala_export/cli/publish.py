"""Define ``fala-export publish`` and ``fala-export repository``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, TypeVar

import click

from fala.cli import Group
from fala_export.base.errors import ExportError
from fala_export.cli.command import Summary, command
from fala_export.recipe.options import Count, File, FolderPath, PositionalArgument
from fala_export.recipe.settings import Keys, Passphrase, keys_beside

if TYPE_CHECKING:
    from pathlib import Path

    from fala_export.updates.keys import Keyring
    from fala_export.updates.publishing import Threshold

T = TypeVar("T")

_ROLES = "root, targets, snapshot or timestamp"


def _to_text(summary: Summary) -> str:
    lines = [f"{summary['repository']}:"]
    for name, value in summary.items():
        if name not in ("repository", "roles", "releases"):
            lines.append(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")
    lines.append("  role          version  keys  until")
    for role, state in summary["roles"].items():
        end = " EXPIRED: fala-export repository renew" if state["expired"] else ""
        lines.append(
            f"  {role:<12}  {state['version']:>7}  {state['threshold']:>4}  {state['expires']}{end}"
        )
    for product, version in summary["releases"].items():
        lines.append(f"  release: version {version} of {product}")
    return "\n".join(lines)


@dataclass(frozen=True)
class PublicFolder:
    """A repository of signed updates.

    Attributes:
        folder: Public folder of the repository.
    """

    folder: Annotated[FolderPath, PositionalArgument("REPO")]


@dataclass(frozen=True)
class NewKeys:
    """The folder of new private keys.

    Attributes:
        keys_to: Folder for the new private keys, outside REPO (default: REPO.keys).
    """

    keys_to: FolderPath | None = None

    def of(self, repository: Path) -> Path:
        """Return the folder of a repository's new keys."""
        return self.keys_to or keys_beside(repository)


@dataclass(frozen=True, kw_only=True)
class Publish:
    """A release, and its product.

    Attributes:
        bundle: The release.
        product: Product of the release (default: the bundle's own, or 'model').
        version: Number of the release among the product's releases (default: the next).
        republish: Publish a release that is already in the repository, or is older than the newest
            one, as the newest version, so that devices go back to it.
    """

    repository: PublicFolder
    bundle: Annotated[File, PositionalArgument("x.fala")]
    product: str | None = None
    version: Count | None = None
    republish: bool = False
    keys: Keys


@command(Publish, _to_text)
def publish(settings: Publish) -> Summary:
    """Publish a release to the devices that follow a repository.

    REPO is a folder that any web server can serve unchanged; 'fala-export repository begin' makes
    it. Devices install the release with Device.update, or 'fala-device update'. New files are
    written before the metadata that name them, so that devices may read at any time.
    """
    from fala_export.updates import publishing

    folder = settings.repository.folder
    return publishing.publish(
        folder, settings.bundle, _ring(folder, settings.keys), _now(),
        product=settings.product, version=settings.version, republish=settings.republish,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The repository to begin.

    Attributes:
        thresholds: ROLE=K/N: how many of how many keys must sign for root, targets, snapshot or
            timestamp (default: root=2/3, others 1/1).
        days: ROLE=DAYS: for how many days the metadata of root, targets, snapshot or timestamp are
            valid (default: 365, 365, 30 and 7).
    """

    repository: PublicFolder
    new_keys: NewKeys
    thresholds: Annotated[tuple[str, ...], "--threshold"] = ()
    days: tuple[str, ...] = ()
    passphrase: Passphrase


@command(Begin, _to_text)
def begin(settings: Begin) -> Summary:
    """Begin a repository with new keys.

    An app pins the first root, REPO/metadata/1.root.json, because all trust starts there.
    """
    from fala_export.updates import publishing
    from fala_export.updates.keys import Keyring

    folder = settings.repository.folder
    thresholds = _by_role(settings.thresholds, "K/N", _threshold)
    periods = _by_role(settings.days, "DAYS", _days)
    keys = Keyring([], settings.new_keys.of(folder), settings.passphrase.read(new=True))
    return publishing.begin(folder, keys, _now(), thresholds=thresholds, periods=periods)


@dataclass(frozen=True, kw_only=True)
class Renew:
    """The metadata to sign again.

    Attributes:
        roles: Role to renew, with the roles that name it: root, targets, snapshot or timestamp, or
            a product with its own keys.
    """

    repository: PublicFolder
    roles: Annotated[tuple[str, ...], "--role"] = ()
    keys: Keys


@command(Renew, _to_text)
def renew(settings: Renew) -> Summary:
    """Sign metadata for another period; run it daily, or devices reject the metadata as expired.

    Without --role, the timestamp is renewed, and every other role that has less than half of its
    period left and whose keys are available.
    """
    from fala_export.updates import publishing

    folder = settings.repository.folder
    return publishing.renew(folder, _ring(folder, settings.keys), _now(), settings.roles)


@dataclass(frozen=True, kw_only=True)
class Rotate:
    """A role that gets new keys.

    Attributes:
        role: Role that gets new keys: root, targets, snapshot or timestamp, or a product with its
            own keys.
        threshold: K/N: how many of how many keys must sign.
    """

    repository: PublicFolder
    role: str
    threshold: str | None = None
    new_keys: NewKeys
    keys: Keys


@command(Rotate, _to_text)
def rotate(settings: Rotate) -> Summary:
    """Give a role new keys, and revoke the old ones.

    The root must sign with its old keys and its new ones. Another role's old keys also sign once
    more if they are available, so that devices accept the metadata at every moment; if they are
    lost or stolen, leave them out of --key.
    """
    from fala_export.updates import publishing

    return _with_new_keys(publishing.rotate_key, settings.role, settings)


@dataclass(frozen=True, kw_only=True)
class Delegate:
    """A product that gets its own keys.

    Attributes:
        product: The product.
        threshold: K/N: how many of how many keys must sign.
    """

    repository: PublicFolder
    product: Annotated[str, PositionalArgument("PRODUCT")]
    threshold: str | None = None
    new_keys: NewKeys
    keys: Keys


@command(Delegate, _to_text)
def delegate(settings: Delegate) -> Summary:
    """Give a product its own keys, which sign only its releases."""
    from fala_export.updates import publishing

    return _with_new_keys(publishing.delegate, settings.product, settings)


@command(PublicFolder, _to_text)
def show(settings: PublicFolder) -> Summary:
    """Show a repository's roles, how long they are valid, and its releases."""
    from fala_export.updates.repository import Repository

    return {"repository": str(settings.folder), **Repository.load(settings.folder).show(_now())}


@click.group(cls=Group)
def repository() -> None:
    """Maintain the repository from which devices get signed updates.

    It follows The Update Framework. Any web server can serve its public folder REPO. Its private
    keys are kept elsewhere, and those of the root best on no machine at all.
    """


for _command in (begin, renew, rotate, delegate, show):
    repository.add_command(_command)


def _with_new_keys(
    change: Callable[..., Summary], name: str, settings: Rotate | Delegate
) -> Summary:
    """Give new keys to a role or a product."""
    folder = settings.repository.folder
    keys = _ring(folder, settings.keys, settings.new_keys)
    threshold = None if settings.threshold is None else _threshold(settings.threshold)
    return change(folder, name, keys, _now(), threshold)


def _ring(folder: Path, keys: Keys, new: NewKeys | None = None) -> Keyring:
    """Read the keys of a repository; new ones have the same passphrase."""
    from fala_export.updates.keys import Keyring

    return Keyring(keys.of(folder), (new or NewKeys()).of(folder), keys.passphrase.read())


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _by_role(options: tuple[str, ...], form: str, parse: Callable[[str], T]) -> dict[str, T]:
    from fala_export.updates.repository import TOP_ROLES

    by_role = {}
    for option in options:
        role, equals, text = option.partition("=")
        if role not in TOP_ROLES or not equals:
            raise ExportError(f"{option!r:.80} must be ROLE={form}, where ROLE is {_ROLES}")
        by_role[role] = parse(text)
    return by_role


def _threshold(text: str) -> Threshold:
    from fala_export.updates.publishing import Threshold

    match = re.fullmatch(r"([1-9][0-9]?)/([1-9][0-9]?)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise ExportError(
            f"{text!r:.80} must be K/N, for example 2/3 if two of three keys must sign"
        )
    return Threshold(int(match[1]), int(match[2]))


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise ExportError(f"{text!r:.80} must be a number of days from 1 to 9999")
    return int(text)
