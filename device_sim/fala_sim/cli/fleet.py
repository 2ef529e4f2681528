"""The command ``fala-sim fleet``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click

from fala import DataError
from fala_export.recipe.options import Count, FolderPath
from fala_sim.cli.options import EngineOptions, Json, command, failed, log


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """The options of the command.

    Attributes:
        devices: Number of devices.
        chunk: Devices per task: one process, and one file of rows.
        seed: Seed of every draw.
        out: Folder of the rows; existing chunks are not run again.
        report: Run nothing; report on the rows in --out.
        watts: Power of a working device, in watts. Default: 3, a Raspberry Pi 4.
        as_json: Print one JSON object.
    """

    devices: Count = 1000
    chunk: Count = 1000
    seed: int = 0
    engine: EngineOptions
    out: FolderPath = Path("fala-fleet")
    report: bool = False
    watts: Annotated[float | None, click.FloatRange(0.0)] = None
    as_json: Json = False


@command("fleet", FleetOptions)
def fleet_command(options: FleetOptions) -> None:
    """Simulate a fleet of devices through successive releases, and report on it.

    Every device is a real folder of this machine's SDK. It learns labels over time, replaces its
    word vectors by a transformer, accepts or refuses a release with a broken head, and gets a
    retrained head, in staggered waves. Some downloads are damaged, some processes are killed with
    SIGKILL, and some users leave. Users and labels are invented. The same seed gives the same
    decisions, quality and forward passes. After Ctrl-C or a power cut, the same command resumes.
    """
    from fala_sim.experiments.fleet.report import WATTS, in_words, report
    from fala_sim.experiments.fleet.run import run_fleet

    failures: list[str] = []
    if not options.report:
        failures = run_fleet(
            options.out, devices=options.devices, chunk=options.chunk, seed=options.seed,
            engine=options.engine.open(), log=log,
        )  # fmt: skip
    try:
        figures = report(options.out, WATTS if options.watts is None else options.watts)
    except DataError as error:
        raise (failed(failures) if failures else error) from error
    click.echo(json.dumps(figures) if options.as_json else "\n".join(in_words(figures)))
    if failures:
        raise failed(failures)
