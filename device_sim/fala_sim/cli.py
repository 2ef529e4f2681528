"""The command ``fala-sim``."""

from __future__ import annotations

import click

from fala.cli_errors import Group
from fala_sim.convert.commands import convert_group


@click.group("fala-sim", cls=Group)
def main() -> None:
    """The laboratory of FaLA: real users' data and simulated devices."""


main.add_command(convert_group)
