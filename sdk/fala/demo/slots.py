"""The commands ``fala-device preview``, ``confirm`` and ``rollback``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fala.demo import text as cli_text
from fala.device import Device
from fala.replacement.budget import BRIDGED_PASSES, PASSES, Budget
from fala.vendor.commands import Command

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.command("preview", cls=Command)
@_FOLDER
@click.argument("bundle", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=None,
    show_default=f"{PASSES}, or {BRIDGED_PASSES} over a bridge",
    help="Forward passes that the replacement may make.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def preview(folder: Path, bundle: Path, budget: int | None, as_json: bool) -> None:
    """Say whether the release BUNDLE is worth it to the user of the device DIR; change nothing."""
    with Device.open(folder) as device:
        found = device.preview(bundle, Budget(budget))
    if as_json:
        click.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        click.echo(cli_text.preview(found))


@click.command("confirm", cls=Command)
@_FOLDER
def confirm(folder: Path) -> None:
    """End the trial of the release that answers on the device DIR: it has proved itself."""
    with Device.open(folder) as device:
        was = device.on_trial
        device.confirm()
        click.echo(f"{device.name} {'is confirmed' if was else 'was not on trial'}")


@click.command("rollback", cls=Command)
@_FOLDER
def rollback(folder: Path) -> None:
    """Let the model before the last replacement answer again on the device DIR."""
    with Device.open(folder) as device:
        left = device.name
        device.rollback()
        click.echo(f"{left} -> {device.name}")


#: For a group: ``for one in COMMANDS: group.add_command(one)``.
COMMANDS = (preview, confirm, rollback)
