"""The command ``fala-sim fleet``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from fala import DataError


@click.command("fleet")
@click.option(
    "--devices", type=click.IntRange(1), default=1000, show_default=True, help="How many, in all."
)
@click.option(
    "--chunk",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Devices a task: one process, and one file of rows.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="cores",
    help="Processes at once.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where tasks run: on this machine, or on a Ray cluster.",
)
@click.option(
    "--address", help="The Ray cluster's head, HOST:PORT. Default: one of this machine alone."
)
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")  # fmt: skip
def fleet_command(
    devices: int,
    chunk: int,
    seed: int,
    jobs: int,
    engine: str,
    address: str | None,
    out: Path,
    only: bool,
    watts: float | None,
    as_json: bool,
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
            out, devices=devices, chunk=chunk, seed=seed, say=_say,
            engine=open_engine(engine, jobs=jobs, address=address),
        )  # fmt: skip
    try:
        figures = report(out, WATTS if watts is None else watts)
    except DataError as error:
        raise (_failed(failures) if failures else error) from error
    click.echo(json.dumps(figures) if as_json else "\n".join(in_words(figures)))
    if failures:
        raise _failed(failures)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _failed(failures: list[str]) -> DataError:
    return DataError(
        f"{len(failures)} failed, the first: {failures[0]}; the same command runs what failed "
        "again, and nothing else"
    )
