"""The command ``fala-sim profiles``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import click

from fala_sim.cli.options import Json, command


@dataclass(frozen=True, kw_only=True)
class ProfilesOptions:
    """The options of the command.

    Attributes:
        as_json: Print one JSON object.
    """

    as_json: Json = False


@command("profiles", ProfilesOptions)
def profiles_command(options: ProfilesOptions) -> None:
    """List the devices of `table profiles`, with their limits and the sources of the figures."""
    from fala_sim.experiments.profiles.profile import PROFILES

    devices = [asdict(profile) for profile in PROFILES]
    if options.as_json:
        click.echo(json.dumps(devices))
        return
    for device in devices:
        click.echo(f"{device['name']}: {device['title']}")
        figures = {"cores": device["cores"], "bytes an app may take": device["memory"]}
        figures |= {"bytes of storage": device["storage"]}
        for name, figure in figures.items():
            if figure is not None:
                click.echo(f"  {name}: {figure['value']:,} ({figure['source']})")
