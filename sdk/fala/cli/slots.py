"""The commands ``fala-device preview``, ``confirm`` and ``rollback``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fala import Budget, Device, Preview
from fala.cli.commands import Command

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("preview", cls=Command)
@_FOLDER
@click.argument("bundle", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=None,
    help="Forward passes that the replacement may make; a replacement's default without it.",
)
@_JSON
def preview(folder: Path, bundle: Path, budget: int | None, as_json: bool) -> None:
    """Say whether the release BUNDLE is worth it to the user of the device DIR; change nothing."""
    with Device.open(folder) as device:
        found = device.preview(bundle, Budget(budget))
    if as_json:
        click.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        click.echo(_told(found))


@click.command("confirm", cls=Command)
@_FOLDER
@_JSON
def confirm(folder: Path, as_json: bool) -> None:
    """End the trial of the release that answers on the device DIR: it has proved itself."""
    with Device.open(folder) as device:
        was = device.on_trial
        device.confirm()
        name = device.name
    if as_json:
        click.echo(json.dumps({"name": name, "was_on_trial": was}))
    else:
        click.echo(f"{name} {'is confirmed' if was else 'was not on trial'}")


@click.command("rollback", cls=Command)
@_FOLDER
@_JSON
def rollback(folder: Path, as_json: bool) -> None:
    """Let the model before the last replacement answer again on the device DIR."""
    with Device.open(folder) as device:
        left = device.name
        device.rollback()
        name = device.name
    if as_json:
        click.echo(json.dumps({"old": left, "new": name}))
    else:
        click.echo(f"{left} -> {name}")


def _told(found: Preview) -> str:
    """What a release would be worth to a user, and cost."""
    lines = [found.sentence]
    for title, loss in (
        (f"{found.old}, personal", found.old_loss),
        (f"{found.new}, the vendor's own", found.vendor_loss),
        (f"{found.new}, personal", found.carried_loss),
    ):
        if loss is not None:
            lines.append(f"  {loss:.3f}  {title}")
    lines.append(
        f"forward passes {found.forward_passes}; about {found.seconds:.1f} s; download "
        f"{found.megabytes:.1f} MB, disk {found.disk_megabytes:+.1f} MB"
    )
    return "\n".join(lines)
