"""The command ``fala-sim fleet``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fala import DataError
from fala_sim.experiments.options import ENGINE, JSON, count_option, failed, log, with_options


@click.command("fleet")
@with_options(
    count_option("--devices", 1000, "Number of devices."),
    count_option("--chunk", 1000, "Devices per task: one process, and one file of rows."),
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every draw.")
@with_options(*ENGINE)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fala-fleet"),
    show_default=True,
    help="Folder of the rows; existing chunks are not run again.",
)
@click.option("--report", "only", is_flag=True, help="Run nothing; report on the rows in --out.")
@click.option(
    "--watts",
    type=click.FloatRange(0.0),
    default=None,
    help="Power of a working device. Default: 3, a Raspberry Pi 4.",
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
    """Simulate a fleet of devices through successive releases, and report on it.

    Every device is a real folder of this machine's SDK. It learns labels over time, replaces its
    word vectors by a transformer, accepts or refuses a release with a broken head, and gets a
    retrained head, in staggered waves. Some downloads are damaged, some processes are killed with
    SIGKILL, and some users leave. Readers and labels are invented. The same seed gives the same
    decisions, quality and passes. After Ctrl-C, or a power cut, the same command resumes.
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
