"""The command ``fala-replace``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from fala.bundle.reading import Bundle
from fala.cli.commands import SETTINGS, Command
from fala.cli.names import PROMPTS, Described, Named
from fala.cli.progress import device_progress, progress
from fala.device import Device
from fala.errors import DataError
from fala.files import temporary_folder
from fala.personal.budget import BRIDGED_PASSES, PASSES, Budget
from fala.personal.prompts import Prompts
from fala.playground import text as cli_text
from fala.playground import walk as trial
from fala.playground.releases import BUILT_IN, built_in, sample_release
from fala.playground.sample import sample_rows
from fala.release.user_rows import Rows, load_rows

# The mark at the start keeps click from filling the lines.
_EXAMPLES = """\b
Examples:
  fala-replace --old glove --new bert
  fala-replace --old glove --new bert --data users.jsonl --json
  fala-replace --device DIR --new release.fala
  fala-replace --device DIR --refine
  fala-replace --device DIR --refine --budget 300 --prompts auto
"""


@click.command(
    "fala-replace",
    cls=Command,
    context_settings=SETTINGS,
    epilog=_EXAMPLES,
)
@click.option(
    "--old",
    metavar="NAME|FILE",
    type=Named(lambda: BUILT_IN, files=True),
    help="The backbone to replace: a built-in name or a bundle.",
)
@click.option(
    "--new",
    metavar="NAME|FILE",
    type=Named(lambda: BUILT_IN, files=True),
    help="The backbone that comes.",
)
@click.option(
    "--data",
    metavar="FILE",
    help="Users' rows as JSON lines, '-' for standard input. Default: a built-in synthetic sample.",
)
@click.option(
    "--device",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Replace on this device folder instead of a trial.",
)
@click.option(
    "--refine",
    is_flag=True,
    help="With --device: go on with its last replacement, in place of --new.",
)
@click.option(
    "--trust",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="KEY.pub",
    help="With --device: the vendor's key, whose signature must lie beside --new.",
)
@click.option(
    "--allow-older",
    is_flag=True,
    help="With --device: install a version below one that the device has had, too.",
)
@click.option(
    "--prompts",
    type=Described(PROMPTS),
    default="off",
    show_default=True,
    help="With --device: make a prompt of the release's, or of the user's own texts, and take it "
    "if it is better.",
)
@click.option(
    "--budget",
    type=click.IntRange(0),
    default=None,
    show_default=f"{PASSES}, or {BRIDGED_PASSES} over a bridge",
    help="Forward passes through the new backbone, a user.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=None,
    help="Wall time after which no more texts are encoded, a user.",
)
@click.option(
    "--users",
    type=click.IntRange(1),
    default=None,
    help="How many users take part. Default: 8 of the sample, all of --data.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the built-in sample.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.version_option(package_name="fala-sdk")
def command(
    old: str | None,
    new: str | None,
    data: str | None,
    device: Path | None,
    refine: bool,
    trust: Path | None,
    allow_older: bool,
    prompts: Prompts,
    budget: int | None,
    seconds: float | None,
    users: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Replace the backbone under personal models, and see what survives.

    Without --device this is a trial: it plays the vendor, who fits global heads on the public
    rows and learns a bridge between the two backbones on their texts, and every user's device,
    which learns with the old backbone, is replaced, and is scored on the user's own held-out rows.
    Over the bridge the new model answers at once ("instant", no forward pass), and is then refined
    within the budget ("FaLA"); without a bridge the budget buys its first answer.

    F1 is by the decisions that the app shows: at the user's own threshold for the instant model
    and FaLA, at probability 1/2 for the old and the vendor's. Accuracy is at 1/2 for all.
    """
    limits = Budget(budget, seconds)
    if (trust is not None or allow_older) and (device is None or new is None):
        raise click.UsageError("--trust and --allow-older go with --device and --new")
    if device is not None:
        for name, value in {"--old": old, "--data": data, "--users": users}.items():
            if value is not None:
                raise click.UsageError(f"{name} is for a trial; it does not go with --device")
        if refine and new is not None:
            raise click.UsageError("--refine goes on with what --new brought; give one of them")
        if refine:
            _on_device(device, None, limits, as_json, prompts=prompts)
        elif new is not None:
            _on_device(
                device, _path(new), limits, as_json, trust,
                allow_older=allow_older, prompts=prompts,
            )  # fmt: skip
        else:
            raise click.UsageError("--device needs --new, the release that comes, or --refine")
        return
    if prompts != "off":
        raise click.UsageError("--prompts needs --device, whose labels mix them")
    if refine:
        raise click.UsageError("--refine needs --device, the folder to go on in")
    if new is None:
        raise click.UsageError("a trial needs --new, the backbone that comes")
    if old is None:
        raise click.UsageError("a trial needs --old, the backbone to replace")
    bundles = _find(old), _find(new)
    rows = _rows(data, users, seed)
    _trial(*bundles, rows, limits, users, seed, as_json)


def main() -> None:
    """Run the command."""
    command()


def _find(name: str) -> Bundle:
    return built_in(name) if name in BUILT_IN else Bundle.open(_path(name))


def _path(name: str) -> Path:
    if name in BUILT_IN:
        return sample_release(name)
    if Path(name).is_file():
        return Path(name)
    raise DataError(
        f"{name!r} is neither a file nor a built-in backbone ({', '.join(BUILT_IN)}); "
        "make a bundle with 'fala-export backbone DIR --out x.fala' or "
        "'fala-export word-vectors glove.txt --out x.fala'"
    )


def _rows(data: str | None, users: int | None, seed: int) -> Rows:
    if data is None:
        return sample_rows(users=8 if users is None else users, seed=seed)
    return load_rows(data)


def _trial(
    old_bundle: Bundle,
    new_bundle: Bundle,
    rows: Rows,
    budget: Budget,
    users: int | None,
    seed: int,
    as_json: bool,
) -> None:
    names = list(rows.users)[:users]
    if users is not None and users > len(names):
        raise DataError(f"--users {users}, but the data has {len(names)} users")
    with temporary_folder() as folder:
        old, new = trial.prepare(old_bundle, new_bundle, rows, names, folder, _text_progress)
        if not as_json:
            click.echo(cli_text.heading(old, new, rows, len(names), budget))
        results: list[dict[str, Any]] = []
        with progress("devices", len(names)) as bar:
            for name in names:
                results.append(trial.run_user(name, rows, old, new, budget))
                bar.update(1)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "old": old.name,
                    "new": new.name,
                    "data": rows.source,
                    "public": len(rows.public),
                    "bridge": new.bridge,
                    "budget": budget.passes(new.bridged),
                    "seed": seed,
                    "users": results,
                    "mean": trial.mean(results),
                },
                allow_nan=False,
            )
        )
    else:
        click.echo(cli_text.table(results))


def _on_device(
    path: Path,
    bundle: Path | None,
    budget: Budget,
    as_json: bool,
    trust: Path | None = None,
    *,
    allow_older: bool = False,
    prompts: Prompts = "off",
) -> None:
    """Replace by a bundle, or refine where there is none."""
    with (
        Device.open(path) as device,
        device_progress("forward passes") as tell,
    ):
        before = device.model
        try:
            if bundle is None:
                report = device.refine(budget, progress=tell, prompts=prompts)
            else:
                report = device.replace(
                    bundle, budget, trust=trust, allow_older=allow_older, progress=tell,
                    prompts=prompts,
                )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(_whole(device, path, changed=device.model is not before), err=True)
            raise
        labels = device.labels
    click.echo(
        json.dumps(report.to_dict(), allow_nan=False)
        if as_json
        else cli_text.summary(report, labels)
    )


def _whole(device: Device, path: Path, *, changed: bool) -> str:
    """What an interrupted device is left as."""
    if not changed:
        return f"{path}: the device answers as before"
    return (
        f"{path}: {device.name} answers, and what it has encoded is kept; go on with "
        f"'fala-replace --device {path} --refine'"
    )


def _text_progress(chunks: Iterable[list[str]], label: str, total: int) -> Iterator[list[str]]:
    with progress(label, total) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(len(chunk))
