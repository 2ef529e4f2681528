"""The command ``fala-sim``."""

from __future__ import annotations

import click

from fala.cli import SETTINGS, Group
from fala_sim.cli.convert import convert_group
from fala_sim.cli.data import data_group
from fala_sim.cli.entries import figure_group, study_group, table_group
from fala_sim.cli.fleet import fleet_command
from fala_sim.cli.models import models_group
from fala_sim.cli.profiles import profiles_command
from fala_sim.cli.runs import all_command, pack_command


class _Benchmarks(Group):
    extra = "sim"


@click.group("fala-sim", cls=_Benchmarks, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def main() -> None:
    """Run the benchmarks of FaLA: real users' data and simulated devices."""


for _command in (
    all_command, pack_command, table_group, figure_group, study_group, convert_group, data_group,
    models_group, fleet_command, profiles_command,
):  # fmt: skip
    main.add_command(_command)
