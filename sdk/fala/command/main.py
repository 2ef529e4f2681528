"""The command ``fala-device``: one subcommand a module, listed here."""

from __future__ import annotations

import click

from fala.command.doctor import doctor
from fala.command.slots import confirm, preview, rollback
from fala.command.update import update
from fala.vendor.commands import SETTINGS, Group

COMMANDS: tuple[click.Command, ...] = (doctor, update, preview, confirm, rollback)


@click.group(name="fala-device", cls=Group, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def command() -> None:
    """Look after a device's folder."""


for _one in COMMANDS:
    command.add_command(_one)


def main() -> None:
    """Run the command."""
    command()
