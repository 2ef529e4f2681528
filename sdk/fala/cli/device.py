"""The command ``fala-device``: one subcommand a module, listed here."""

from __future__ import annotations

import click

from fala.cli.commands import SETTINGS, Group
from fala.cli.doctor import doctor
from fala.cli.slots import confirm, preview, rollback
from fala.cli.update import update

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
