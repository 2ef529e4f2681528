"""The command ``fala-device`` and its subcommands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fala.base.errors import DataError, counted, printable
from fala.cli.commands import SETTINGS, Group
from fala.cli.names import ACCEPT, Described
from fala.cli.options import BUDGET, JSON, SECONDS
from fala.cli.progress_bars import device_progress
from fala.device import Device
from fala.many import Releases, ReplacedAll, replace_all
from fala.personal.compare import Accept
from fala.personal.run import Budget
from fala.report import Preview, Status
from fala.slots.folder import STORE
from fala.slots.installing import BUNDLES
from fala.slots.repair import RepairReport

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.group(name="fala-device", cls=Group, context_settings=SETTINGS)
@click.version_option(package_name="fala-sdk")
def command() -> None:
    """Look after a device's folder."""


@command.command()
@_FOLDER
@click.option("--repair", is_flag=True, help="Repair it; a damaged file is renamed.")
@click.option(
    "--bundle",
    type=click.Path(),
    help="With --repair: a release to use if none in the folder is whole.",
)
@click.option(
    "--trust", type=click.Path(),
    help="With --repair: the vendor's public key, if the device's own cannot be read.",
)  # fmt: skip
@click.option(
    "--unsigned", is_flag=True,
    help="With --repair: accept that the device required no signature, if that cannot be read.",
)  # fmt: skip
@click.option(
    "--key-file", type=click.Path(path_type=Path), help="The 32-byte key of an encrypted device."
)
@JSON
@click.pass_context
def doctor(
    context: click.Context,
    folder: Path,
    repair: bool,
    bundle: str | None,
    trust: str | None,
    unsigned: bool,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Check a device's FOLDER: its store, slots, bundles and examples.

    With --repair, everything that can be read of a damaged store is written to a new one, and the
    personal models are fitted again; the damaged file stays in the folder under another name.
    Without --repair, nothing is repaired. Close the app first. The exit status is 1 while something
    is damaged.
    """
    for name, given in (("bundle", bundle), ("trust", trust), ("unsigned", unsigned or None)):
        if given is not None and not repair:
            raise DataError(f"--{name} goes with --repair")
    key = None if key_file is None else key_file.read_bytes
    if repair:
        report = Device.repair(folder, bundle, trust=trust, key=key, unsigned=unsigned)
    else:
        report = Device.examine(folder, key=key)
    _print(as_json, report.to_dict(), _repair_lines(report))
    if not report.whole:
        context.exit(1)


@command.command()
@_FOLDER
@click.argument("url")
@click.option(
    "--root", required=True, type=click.Path(),
    help="The trusted root: the vendor's metadata/1.root.json, from a source other than URL.",
)  # fmt: skip
@click.option("--product", help="The product (default: that of the installed release).")
@BUDGET
@SECONDS
@click.option(
    "--accept",
    type=Described(ACCEPT),
    default="always",
    show_default=True,
    help="The condition for installing the release.",
)
@JSON
def update(
    folder: Path,
    url: str,
    root: str,
    product: str | None,
    budget: int | None,
    seconds: float | None,
    accept: Accept,
    as_json: bool,
) -> None:
    """Install the newest release of the repository at URL on the device in FOLDER.

    The repository follows The Update Framework, as 'fala-export publish' keeps it. A release is
    rejected if the keys of the trusted root did not sign it, if its metadata have expired, or if it
    is older than a release that this device has had. An interrupted download resumes when the
    command is run again.
    """
    with Device.open(folder) as device, device_progress("look") as progress:
        before = device.status()
        try:
            report = device.update(
                url, root=root, product=product, budget=Budget(budget, seconds), accept=accept,
                progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(
                f"{folder}: {printable(device.status().release)} is active; "
                "run the command again to resume",
                err=True,
            )
            raise
    if report is None:
        _print(as_json, None, [_nothing_newer(before, product)])
    else:
        _print(as_json, report.to_dict(), [f"{report.old} -> {report.new}: {report}"])


def _nothing_newer(status: Status, product: str | None) -> str:
    """Say why no release was installed, if the repository has none that the device never had."""
    if product in (None, status.product):
        if status.rolled_back:
            return f"{status.previous or 'the newest release'}: skipped, because you rolled it back"
        if status.fell_back is not None:
            reason = f"it failed its trial: {status.fell_back}"
            return f"{status.release}: the release after it is skipped: {reason}"
    return f"{status.release}: no newer release"


@command.command()
@_FOLDER
@click.argument("bundle", type=click.Path(path_type=Path))
@BUDGET
@JSON
def preview(folder: Path, bundle: Path, budget: int | None, as_json: bool) -> None:
    """Report what the release BUNDLE would do for the user of the device in FOLDER.

    Nothing is installed.
    """
    with Device.open(folder) as device:
        result = device.preview(bundle, Budget(budget))
    _print(as_json, result.to_dict(), _preview_lines(result))


@command.command("replace-all")
@click.argument("devices", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--releases", type=click.Path(path_type=Path),
    help="The folder where releases are kept once for all devices (default: a copy in each).",
)  # fmt: skip
@BUDGET
@SECONDS
@click.option(
    "--accept", type=Described(ACCEPT), default="always", show_default=True,
    help="The condition for installing the release on a device.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1), show_default="one per core",
    help="Processes, each with one device at a time.",
)  # fmt: skip
@click.option("--key-file", type=click.Path(path_type=Path), help="The 32-byte key of all devices.")
@JSON
@click.pass_context
def replace_every(
    context: click.Context,
    devices: Path,
    release: Path,
    releases: Path | None,
    budget: int | None,
    seconds: float | None,
    accept: Accept,
    jobs: int | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Replace the backbone of many DEVICES by RELEASE, and carry every personal model over.

    DEVICES is a folder with the devices' folders in it, or in its folders; or a file with one
    folder per line (- is standard input). The devices may be in use. After an interruption, run the
    command again: it continues where it stopped. The exit status is 1 if a device failed.
    """
    key = None if key_file is None else key_file.read_bytes()
    try:
        with _devices_progress() as progress:
            result = replace_all(
                _listed_devices(devices), release, budget=Budget(budget, seconds), accept=accept,
                releases=None if releases is None else Releases(releases), workers=jobs,
                key=None if key is None else lambda _: key, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        click.echo("run the command again: it continues where it stopped", err=True)
        raise
    _print(as_json, result.to_dict(), _replaced_lines(result))
    if result.failed:
        context.exit(1)


@command.command("releases")
@_FOLDER
@click.option("--remove-unused", is_flag=True, help="Delete the releases that no device uses.")
@JSON
def list_releases(folder: Path, remove_unused: bool, as_json: bool) -> None:
    """List the releases that devices share in FOLDER, and how many devices use each.

    A device uses the release that is active, and the release that it can go back to.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    releases = Releases(folder)
    rows: list[dict[str, Any]] = []
    for digest in releases:
        manifest, count = releases[digest].manifest, releases.devices(digest)
        removed = remove_unused and not count
        if removed:
            releases.remove(digest)
        rows.append({
            "digest": digest, "name": manifest.title, "version": manifest.version,
            "devices": count, "removed": removed,
        })  # fmt: skip
    lines = [
        f"{row['digest'][:12]} {row['name']}: {counted(row['devices'], 'device')}"
        f"{', deleted' if row['removed'] else ''}"
        for row in rows
    ]
    _print(as_json, rows, lines or [f"{folder}: no release"])


def _listed_devices(place: Path) -> list[Path]:
    """Return the devices in a folder, or in a list.

    Raises:
        DataError: If there is no device.
    """
    if place.is_dir():
        folders = [folder for depth in ("*", "*/*") for folder in place.glob(depth)]
        # A device whose store is lost fails, and is listed.
        found = sorted(
            folder for folder in folders
            if (folder / STORE).exists() or (folder / BUNDLES).exists()
        )  # fmt: skip
    else:
        with click.open_file(os.fspath(place), encoding="utf-8") as lines:
            found = [Path(line.rstrip("\n")) for line in lines if line.strip()]
    if not found:
        raise DataError(f"{place}: there is no device in it, nor in its folders")
    return found


@contextmanager
def _devices_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress with the devices done, their rate, and the time that is left."""
    began = time.monotonic()
    with device_progress("devices") as show:

        def label(stage: str, done: int, total: int) -> None:
            rest = ""
            if done:
                each = (time.monotonic() - began) / done
                left = (total - done) * each / 60
                rest = f", {each:.2f} s each, {left:.1f} min left"
            show(f"{done} of {total} {stage}{rest}", done, total)

        yield label


def _replaced_lines(result: ReplacedAll) -> list[str]:
    counts = {
        "devices": ("replaced", "refined", "already", "went_back", "refused", "failed"),
        "users": ("better", "no_worse", "worse", "unknown"),
        "models": ("personal", "calibrated", "vendor"),
        "texts": ("forward_passes", "shared"),
    }
    lines = [
        f"{title}: "
        + ", ".join(f"{getattr(result, name)} {name.replace('_', ' ')}" for name in names)
        for title, names in counts.items()
    ]
    lines.append(f"{result.seconds:.1f} s, {result.a_second:.1f} devices per second")
    return lines + [f"{each.path}: {each.error}: {each.message}" for each in result.failures]


@command.command()
@_FOLDER
@JSON
def confirm(folder: Path, as_json: bool) -> None:
    """End the trial of the active release on the device in FOLDER."""
    with Device.open(folder) as device:
        status = device.status()
        device.confirm()
    line = f"{status.release} {'is confirmed' if status.on_trial else 'was not on trial'}"
    _print(as_json, {"name": status.release, "was_on_trial": status.on_trial}, [line])


@command.command()
@_FOLDER
@JSON
def rollback(folder: Path, as_json: bool) -> None:
    """Make the previous model active again on the device in FOLDER."""
    with Device.open(folder) as device:
        report = device.rollback()
    _print(as_json, report.to_dict(), [f"{report.old} -> {report.new}"])


def _print(as_json: bool, values: object, lines: Iterable[str]) -> None:
    if as_json:
        click.echo(json.dumps(values, allow_nan=False))
    else:
        click.echo("\n".join(map(printable, lines)))


def _repair_lines(report: RepairReport) -> list[str]:
    lost = f", {report.lost} lost" if report.lost else ""
    lines = [f"examples: {report.examples}, {report.labelled} with a label{lost}"]
    lines.append(f"active: {report.active or 'no release is whole'}")
    lines += [
        f"adapter {name}: {release or 'load it again; its examples are kept'}"
        for name, release in report.adapters.items()
    ]
    lines += [f"problem: {problem}" for problem in report.problems]
    done = "done" if report.whole and report.problems else "to do"
    lines += [f"{done}: {action}" for action in report.actions]
    if report.aside is not None:
        lines.append(f"kept aside: {report.aside}")
    return [*lines, "whole" if report.whole else "not whole"]


def _preview_lines(preview: Preview) -> list[str]:
    """Describe a preview by losses and the cost of the replacement."""
    losses = (
        (f"{preview.old}, the active model", preview.comparison.old),
        (f"{preview.new}, the vendor's model", preview.comparison.vendor),
        (f"{preview.new}, the {preview.decision} model", preview.comparison.carried),
    )
    return [
        str(preview),
        *(f"  {loss:.3f}  {title}" for title, loss in losses if loss is not None),
        f"forward passes {preview.forward_passes}; about {preview.seconds:.1f} s; download "
        f"{preview.megabytes:.1f} MB, disk {preview.disk_megabytes:+.1f} MB",
    ]
