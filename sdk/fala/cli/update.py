"""``fala-device update``: the vendor's newest release, if its signatures hold."""

from __future__ import annotations

import json

import click

from fala.cli.commands import Command
from fala.cli.names import PROMPTS, Described
from fala.cli.progress import device_progress
from fala.device import Device
from fala.personal.budget import BRIDGED_PASSES, PASSES, Budget
from fala.personal.prompts import Prompts
from fala.report import Report


@click.command(cls=Command)
@click.argument("folder", type=click.Path())
@click.argument("url")
@click.option(
    "--root", required=True, type=click.Path(),
    help="The trusted root: the vendor's metadata/1.root.json, from a source other than URL.",
)  # fmt: skip
@click.option("--product", help="Whose releases (default: the installed release's product).")
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=None,
    show_default=f"{PASSES}, or {BRIDGED_PASSES} over a bridge",
    help="Forward passes through the new backbone.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=None,
    help="Wall time after which no more texts are encoded.",
)
@click.option(
    "--prompts",
    type=Described(PROMPTS),
    default="off",
    show_default=True,
    help="Make a prompt of the release's, or of the user's texts; take it if it is better.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON; null for none.")
def update(
    folder: str,
    url: str,
    root: str,
    product: str | None,
    budget: int | None,
    seconds: float | None,
    prompts: Prompts,
    as_json: bool,
) -> None:
    """Install the newest release of the repository at URL on the device in FOLDER.

    The repository is one of The Update Framework, as 'fala-export publish' keeps it. Nothing is
    installed that the keys of the trusted root did not sign, that is out of date, or that is older
    than what this device has had. A download that broke off is gone on with by the same command.
    """
    with (
        Device.open(folder) as device,
        device_progress("look") as progress,
    ):
        before = device.name
        try:
            report = device.update(
                url, root=root, product=product, budget=Budget(budget, seconds), progress=progress,
                prompts=prompts,
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(
                f"{folder}: {device.name} answers; the same command goes on where this one was",
                err=True,
            )
            raise
    if as_json:
        click.echo(json.dumps(None if report is None else report.to_dict(), allow_nan=False))
    else:
        click.echo(_said(before, report))


def _said(name: str, report: Report | None) -> str:
    told = f"{name}: nothing newer"
    if report is not None:
        told = f"{report.old} -> {report.new}: {report.reason}"
        if report.prompt is not None:
            told += f"; prompts: {report.prompt.reason}"
    # Names are the vendor's, and may hold what a terminal would obey.
    return "".join(one if one.isprintable() else "?" for one in told)
