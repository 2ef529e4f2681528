"""``fala-device doctor``: what of a device's folder is whole, and its repair."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fala.cli.commands import Command
from fala.device import Device
from fala.errors import DataError
from fala.slots.repair import RepairReport


@click.command(cls=Command)
@click.argument("folder", type=click.Path())
@click.option("--repair", is_flag=True, help="Mend it; what is damaged is kept aside.")
@click.option(
    "--bundle", type=click.Path(), help="With --repair: a release, where none there is whole."
)
@click.option("--key-file", type=click.Path(), help="The 32 bytes of an encrypted device's key.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def doctor(
    context: click.Context,
    folder: str,
    repair: bool,
    bundle: str | None,
    key_file: str | None,
    as_json: bool,
) -> None:
    """Say what of a device's FOLDER is whole: its store, slots, bundles and examples.

    Without --repair nothing is changed. With it a damaged slot gives way to the other one, and of
    a damaged store all that can be read goes to a new one; the damaged file stays in the folder
    under another name. Close the app first. The status is 1 where something is wrong, and stays
    so.
    """
    if bundle is not None and not repair:
        raise DataError("--bundle goes with --repair")
    key = None if key_file is None else Path(key_file).read_bytes
    report = Device.repair(folder, bundle, key=key) if repair else Device.examine(folder, key=key)
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else "\n".join(_lines(report)))
    if not report.whole:
        context.exit(1)


def _lines(report: RepairReport) -> list[str]:
    lost = f", {report.lost} lost" if report.lost else ""
    lines = [f"examples: {report.examples}, {report.labelled} with a label{lost}"]
    answering = {report.answers, *report.adapters.values()}
    for name, said in report.slots.items():
        lines.append(f"slot {name}{' (answers)' if name in answering else ''}: {said}")
    lines += [
        f"adapter {name}: is to be loaded again; its examples are kept"
        for name, slot in report.adapters.items()
        if slot is None
    ]
    lines += [f"bundle {name}: {said}" for name, said in report.bundles.items()]
    lines += [f"problem: {problem}" for problem in report.problems]
    done = "done" if report.whole and report.problems else "to do"
    lines += [f"{done}: {action}" for action in report.actions]
    if report.aside is not None:
        lines.append(f"kept aside: {report.aside}")
    lines.append("whole" if report.whole else "not whole")
    return [_plain(line) for line in lines]


def _plain(line: str) -> str:
    """A line without what a terminal would obey: names are the vendor's, and may be anybody's."""
    return "".join(one if one.isprintable() else "?" for one in line)
