"""The command ``fala-sim profiles``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from fala.cli import Command
from fala_sim.experiments.options import JSON


@click.command("profiles", cls=Command)
@JSON
def profiles_command(as_json: bool) -> None:
    """List the devices of `table profiles`: their limits, and the sources of the figures."""
    from fala_sim.experiments.profiles.profile import PROFILES

    devices = [asdict(profile) for profile in PROFILES]
    if as_json:
        click.echo(json.dumps(devices))
        return
    for device in devices:
        click.echo(f"{device['name']}: {device['title']}")
        figures = {"cores": device["cores"], "bytes an app may take": device["memory"]}
        figures |= {"bytes of storage": device["storage"]}
        for name, figure in figures.items():
            if figure is not None:
                click.echo(f"  {name}: {figure['value']:,} ({figure['source']})")
