"""The command ``fala-replace``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import click

from fala import trial
from fala.bundle import Bundle
from fala.cli_errors import Command
from fala.device import Device
from fala.errors import DataError
from fala.replacement import BRIDGED_PASSES, PASSES, Budget, Report
from fala.rows import Rows, load_rows
from fala.sample import sample_rows

_SUFFIX = ".fala"


@click.command(
    "fala-replace", cls=Command, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--old", metavar="NAME|FILE", help="The backbone to replace: a built-in name or a bundle."
)
@click.option("--new", required=True, metavar="NAME|FILE", help="The backbone that comes.")
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
    help="Seed of the sample and of the clustering.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.version_option(package_name="fala")
def command(
    old: str | None,
    new: str,
    data: str | None,
    device: Path | None,
    budget: int | None,
    seconds: float | None,
    users: int | None,
    seed: int,
    as_json: bool,
) -> None:
    r"""Replace the backbone under personal models, and see what survives.

    Without --device this is a trial: it plays the vendor, who fits global heads on the public
    rows, and every user's device, which learns with the old backbone, is replaced within the
    budget, and is scored on the user's own held-out rows.

    \b
    fala-replace --old glove --new bert
    fala-replace --old glove --new bert --data users.jsonl --json
    fala-replace --device DIR --new release.fala
    """
    limits = Budget(budget, seconds)
    if device is not None:
        for name, value in {"--old": old, "--data": data, "--users": users}.items():
            if value is not None:
                raise click.UsageError(f"{name} is for a trial; it does not go with --device")
        _replace_on_device(device, new, limits, seed, as_json)
        return
    if old is None:
        raise click.UsageError("a trial needs --old, the backbone to replace")
    bundles = _find(old), _find(new)
    rows = _rows(data, users, seed)
    _trial(*bundles, rows, limits, users, seed, as_json)


def main() -> None:
    """Run the command."""
    command()


def _built_in() -> dict[str, Path]:
    folder = Path(str(resources.files("fala") / "builtin"))
    return {file.stem: file for file in sorted(folder.glob(f"*{_SUFFIX}"))}


def _find(name: str) -> Bundle:
    built_in = _built_in()
    if name in built_in:
        return Bundle.open(built_in[name])
    if Path(name).is_file():
        return Bundle.open(name)
    raise DataError(
        f"{name!r} is neither a file nor a built-in backbone ({', '.join(built_in)}); "
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
    with tempfile.TemporaryDirectory(prefix="fala-") as folder:
        old = trial.prepare(old_bundle, rows, names, Path(folder), _text_progress)
        new = trial.prepare(new_bundle, rows, names, Path(folder), _text_progress)
        if not as_json:
            click.echo(_heading(old, new, rows, len(names), budget))
        results: list[dict[str, Any]] = []
        with click.progressbar(
            names, label="devices", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as bar:
            for name in bar:
                results.append(trial.run_user(name, rows, old, new, budget, seed))  # noqa: PERF401
    if as_json:
        click.echo(
            json.dumps(
                {
                    "old": old.name,
                    "new": new.name,
                    "data": rows.source,
                    "public": len(rows.public),
                    "budget": budget.forward_passes,
                    "seed": seed,
                    "users": results,
                    "mean": trial.mean(results),
                },
                allow_nan=False,
            )
        )
    else:
        click.echo(_table(results))


def _replace_on_device(path: Path, new: str, budget: Budget, seed: int, as_json: bool) -> None:
    bundle = _find(new)
    with (
        Device.open(path) as device,
        click.progressbar(
            length=1, label="forward passes", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as bar,
    ):

        def progress(_stage: str, done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        report = device.replace(bundle.path, budget, seed=seed, progress=progress)
    click.echo(json.dumps(report.to_dict(), allow_nan=False) if as_json else _summary(report))


def _text_progress(chunks: Iterable[list[str]], label: str, total: int) -> Iterator[list[str]]:
    with click.progressbar(
        length=total, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(len(chunk))


def _heading(old: trial.Side, new: trial.Side, rows: Rows, users: int, budget: Budget) -> str:
    heads = {
        side.name: "its own" if side.own_head else f"fitted on {len(rows.public)} public rows"
        for side in (old, new)
    }
    return (
        f"{old.name} -> {new.name} on {rows.source}: {users} users, "
        f"at most {budget.forward_passes} forward passes each\n"
        f"global heads: {'; '.join(f'{name} {origin}' for name, origin in heads.items())}\n"
    )


_TITLES = {"auc": "AUC", "f1": "F1", "accuracy": "accuracy"}


def _table(results: list[dict[str, Any]]) -> str:
    mean = trial.mean(results)
    width = max(6, *(len(user["user"]) for user in results))
    head = f"{'':{width}} {'':>9} {'':>8} {'':>7}"
    names = f"{'user':{width}} {'documents':>9} {'forwards':>8} {'seconds':>7}"
    for metric in trial.METRICS:
        head += f"  {_TITLES[metric]:^20}"
        names += f"  {'old':>6} {'new':>6} {'FaLA':>6}"
    lines = [head, f"{names}  decision"]
    for user in [*results, {"user": "mean", "decision": "", **mean}]:
        line = (
            f"{user['user']:{width}} {user['documents']:>9.0f} {user['forward_passes']:>8.0f} "
            f"{user['seconds']['total']:>7.2f}"
        )
        for metric in trial.METRICS:
            values = (user[metric][model] for model in trial.MODELS)
            line += " " + "".join(f"{'-' if v is None else f'{v:.3f}':>7}" for v in values)
        lines.append(f"{line}  {user['decision']}".rstrip())
    kept = sum(user["decision"] == "personal" for user in results)
    lines += [
        "",
        "old: the old personal model; new: the vendor's new model; FaLA: the personal model after "
        "the replacement,\nwith no backward pass. "
        f"Carried over for {kept} of {len(results)} users; the others answer with the vendor's "
        "new model.",
    ]
    return "\n".join(lines)


def _summary(report: Report) -> str:
    lines = [
        f"{report.old} -> {report.new}: {report.decision} model",
        f"why              {report.reason}",
        f"examples         {report.examples} ({report.labelled} labelled), "
        f"{report.representatives} representatives of {report.clusters} clusters",
        f"forward passes   {report.forward_passes}; backward passes {report.backward_passes}",
    ]
    if report.agreement is not None and report.lambda_ is not None:
        lines.append(f"agreement        {report.agreement:.1%} with the old personal model")
        lines.append(f"lambda           {report.lambda_:.3g}, by leave-one-out")
    lines.append(
        "seconds          "
        + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in report.seconds.items())
    )
    return "\n".join(lines)
