"""The command ``fala-sim fleet``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fala import DataError
from fala_sim.options import ENGINE, JSON, count, failed, log, with_options


@click.command("fleet")
@with_options(
    count("--devices", 1000, "How many, in all."),
    count("--chunk", 1000, "Devices a task: one process, and one file of rows."),
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw.")
@with_options(*ENGINE)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fala-fleet"),
    show_default=True,
    help="Folder of the rows; chunks that are there are not run again.",
)
@click.option("--report", "only", is_flag=True, help="Run nothing; report on the rows in --out.")
@click.option(
    "--watts",
    type=click.FloatRange(0.0),
    default=None,
    help="What a device draws while it works. Default: 3, a Raspberry Pi 4.",
)
@JSON
def fleet_command(
    devices: int,
    chunk: int,
    seed: int,
    out: Path,
    only: bool,
    watts: float | None,
    as_json: bool,
    **engine: Any,  # noqa: ANN401
) -> None:
    """Let a fleet of simulated devices live through successive releases, and report on it.

    Every device is a real folder on this machine's own SDK: it learns labels as they come, gets a
    transformer after its word vectors, refuses (or not) a release whose head is broken, and gets a
    retrained head, in staggered waves; some downloads arrive damaged, some processes are killed
    with SIGKILL on the way, and some users leave. The readers, and what they say, are invented.
    The same seed gives the same decisions, quality and passes. After Ctrl-C, or a power cut, the
    same command goes on.
    """
    from fala_sim.engine import open_engine
    from fala_sim.experiments.fleet.report import WATTS, in_words, report
    from fala_sim.experiments.fleet.run import run_fleet

    failures: list[str] = []
    if not only:
        failures = run_fleet(
            out, devices=devices, chunk=chunk, seed=seed, log=log,
            engine=open_engine(engine.pop("engine"), **engine),
        )  # fmt: skip
    try:
        figures = report(out, WATTS if watts is None else watts)
    except DataError as error:
        raise (failed(failures) if failures else error) from error
    click.echo(json.dumps(figures) if as_json else "\n".join(in_words(figures)))
    if failures:
        raise failed(failures)
