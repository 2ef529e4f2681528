"""``fala-export publish`` and ``fala-export repository``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import ExportError
from fala.cli.commands import Command, Group
from fala_export.commands.keys import (
    KEYS,
    PASSPHRASE,
    passphrase_of,
    place_of,
    ring_of,
    with_extra,
)
from fala_export.commands.options import JSON

if TYPE_CHECKING:
    from fala_export.updates.work import Threshold

_FOLDER = click.Path(path_type=Path, file_okay=False)
_ROLES = "root, targets, snapshot or timestamp"
REPOSITORY = click.argument("folder", metavar="REPO", type=_FOLDER)
NEW_KEYS = click.option(
    "--keys-to", "place", type=_FOLDER,
    help="Folder for the new private keys, outside REPO (default: REPO.keys).",
)  # fmt: skip
ONE_THRESHOLD = click.option(
    "--threshold", metavar="K/N", help="How many of how many keys must sign."
)


@click.command(cls=Command)
@REPOSITORY
@click.argument("bundle", metavar="x.fala", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--product", help="Whose release it is (default: the bundle's own, or 'model').")
@click.option(
    "--version", type=click.IntRange(1), help="Counts the product's releases (default: the next)."
)
@KEYS
@PASSPHRASE
@JSON
def publish(
    folder: Path,
    bundle: Path,
    product: str | None,
    version: int | None,
    keys: tuple[Path, ...],
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Publish a release to the devices that follow a repository.

    REPO is a folder that any web server can serve as it is; 'fala-export repository begin' makes
    it. Devices install the release with Device.update, or 'fala-device update'. It is written so
    that devices may look at any instant: new files first, what names them last.
    """
    with_extra()
    from fala_export.updates import work

    ring = ring_of(folder, keys, passphrase_of(passphrase_file))
    _show(work.publish(folder, bundle, ring, _now(), product=product, version=version), as_json)


@click.group(cls=Group)
def repository() -> None:
    """Keep the repository that devices get signed updates from.

    It follows The Update Framework. Its public folder REPO is served by any web server; its
    private keys lie elsewhere, those of the root best on no machine at all.
    """


@repository.command()
@REPOSITORY
@NEW_KEYS
@click.option(
    "--threshold", "thresholds", multiple=True, metavar="ROLE=K/N",
    help=f"How many of how many keys must sign for {_ROLES} (default: root=2/3, else 1/1).",
)  # fmt: skip
@click.option(
    "--days", "periods", multiple=True, metavar="ROLE=DAYS",
    help=f"How long the metadata of {_ROLES} last (default: 365, 365, 30 and 7).",
)  # fmt: skip
@PASSPHRASE
@JSON
def begin(
    folder: Path,
    place: Path | None,
    thresholds: tuple[str, ...],
    periods: tuple[str, ...],
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Begin a repository, with new keys.

    An app pins the first root, REPO/metadata/1.root.json: all trust starts there.
    """
    with_extra()
    from fala_export.updates import work

    wanted = {role: _threshold(value) for role, value in _by_role(thresholds, "K/N").items()}
    days = {role: _days(value) for role, value in _by_role(periods, "DAYS").items()}
    passphrase = passphrase_of(passphrase_file, new=True)
    made = work.begin(
        folder, place or place_of(folder), _now(), thresholds=wanted, periods=days,
        passphrase=passphrase,
    )  # fmt: skip
    _show(made, as_json)


@repository.command()
@REPOSITORY
@click.option(
    "--role", "roles", multiple=True,
    help=f"Renew {_ROLES}, or a product with keys of its own, and what names it.",
)  # fmt: skip
@KEYS
@PASSPHRASE
@JSON
def renew(
    folder: Path,
    roles: tuple[str, ...],
    keys: tuple[Path, ...],
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Sign metadata for another period: run it daily, or devices stop to believe them.

    Without --role the timestamp is renewed, and of the others those that have less than half of
    their period left and whose keys are at hand.
    """
    with_extra()
    from fala_export.updates import work

    ring = ring_of(folder, keys, passphrase_of(passphrase_file))
    _show(work.renew(folder, ring, _now(), roles), as_json)


@repository.command()
@REPOSITORY
@click.option("--role", required=True, help=f"{_ROLES}, or a product with keys of its own.")
@ONE_THRESHOLD
@NEW_KEYS
@KEYS
@PASSPHRASE
@JSON
def rotate(
    folder: Path,
    role: str,
    threshold: str | None,
    place: Path | None,
    keys: tuple[Path, ...],
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Give a role new keys, and let the old ones count no more.

    The root must sign, by its old keys and by its new ones. Of another role the old keys sign
    once more where they are at hand, so that devices believe at every instant; where they are
    lost or stolen, leave them out of --key.
    """
    with_extra()
    from fala_export.updates import work

    passphrase = passphrase_of(passphrase_file)
    done = work.rotate(
        folder, role, ring_of(folder, keys, passphrase), place or place_of(folder), _now(),
        threshold=None if threshold is None else _threshold(threshold), passphrase=passphrase,
    )  # fmt: skip
    _show(done, as_json)


@repository.command()
@REPOSITORY
@click.argument("product")
@ONE_THRESHOLD
@NEW_KEYS
@KEYS
@PASSPHRASE
@JSON
def delegate(
    folder: Path,
    product: str,
    threshold: str | None,
    place: Path | None,
    keys: tuple[Path, ...],
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Give a product keys of its own, which sign its releases and nobody else's."""
    with_extra()
    from fala_export.updates import work

    passphrase = passphrase_of(passphrase_file)
    done = work.delegate(
        folder, product, ring_of(folder, keys, passphrase), place or place_of(folder), _now(),
        threshold=None if threshold is None else _threshold(threshold), passphrase=passphrase,
    )  # fmt: skip
    _show(done, as_json)


@repository.command("show")
@REPOSITORY
@JSON
def show_repository(folder: Path, as_json: bool) -> None:
    """Show a repository's roles, how long they last, and its releases."""
    with_extra()
    from fala_export.updates import work
    from fala_export.updates.repository import load

    _show({"repository": str(folder), **work.show(load(folder), _now())}, as_json)


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _by_role(options: tuple[str, ...], value: str) -> dict[str, str]:
    from fala_export.updates.state import TOP_ROLES

    found = {}
    for option in options:
        role, equals, told = option.partition("=")
        if role not in TOP_ROLES or not equals:
            raise ExportError(f"{option!r:.80} is not ROLE={value}, where ROLE is {_ROLES}")
        found[role] = told
    return found


def _threshold(text: str) -> Threshold:
    from fala_export.updates.work import Threshold

    told = re.fullmatch(r"([1-9][0-9]?)/([1-9][0-9]?)", text)
    if told is None or int(told[1]) > int(told[2]):
        raise ExportError(f"{text!r:.80} is not K/N, as 2/3: two of three keys must sign")
    return Threshold(int(told[1]), int(told[2]))


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise ExportError(f"{text!r:.80} is not a number of days from 1 to 9999")
    return int(text)


def _show(summary: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary))
        return
    click.echo(f"{summary['repository']}:")
    for name, value in summary.items():
        if name not in ("repository", "roles", "releases"):
            click.echo(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")
    click.echo("  role          version  keys  until")
    for role, told in summary["roles"].items():
        end = " EXPIRED: fala-export repository renew" if told["expired"] else ""
        click.echo(
            f"  {role:<12}  {told['version']:>7}  {told['threshold']:>4}  {told['expires']}{end}"
        )
    for product, version in summary["releases"].items():
        click.echo(f"  release: version {version} of {product}")
