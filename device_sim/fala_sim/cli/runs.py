"""Runs of experiments: the options they share, ``fala-sim all`` and ``fala-sim pack``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fala import DataError
from fala.cli import Command
from fala_export.recipe.options import FileOrFolder, Options
from fala_sim.cli.options import EngineOptions, Json, command, failed, log
from fala_sim.experiments.families import PEOPLE
from fala_sim.experiments.plan import Family
from fala_sim.records.store import RecordKind, RecordStore

if TYPE_CHECKING:
    from fala_sim.report.plot import Plot

ENGINE = Options(EngineOptions)


def results_option(default: Path | None = None) -> click.Option:
    """Return the option for the folder of the records; each study has its own default."""
    return click.Option(
        ["--results"], type=click.Path(path_type=Path), default=default or Path("fala-results"),
        show_default="the study's own" if default else "fala-results",
        help="Folder of the records; jobs that are recorded there are not run again.",
    )  # fmt: skip


def run_missing(
    family: Family, kinds: Sequence[RecordKind], results: Path, options: Mapping[str, Any]
) -> list[str]:
    """Run the missing jobs.

    Args:
        family: Family of the experiments.
        kinds: Kinds of records that are wanted.
        results: Folder of the records.
        options: Values of the options of the family and of the engine.

    Returns:
        A line for each job that failed.
    """
    if find_spec("transformers") is None:  # otherwise every job would fail with the same error
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
    fields = {str(option.name): options[str(option.name)] for option in family.options()}
    plan = family.plan(results=results, **fields)
    return family.run(plan, kinds, ENGINE.build(options).open(), log)


def _all(results: Path, **options: Any) -> None:  # noqa: ANN401
    """Run all experiments on users, then write all tables and figures into --results.

    Recorded jobs are not run again: after Ctrl-C or a power cut, the same command resumes. If a job
    fails, the others still run, and the failures are listed at the end.
    """
    from fala_sim.experiments.registry import tables

    failures: list[str] = []
    for family in dict.fromkeys(entry.family for entry in tables().values()):
        if family is not None and not list(family.options()):
            failures += run_missing(family, family.kinds, results, options)
    failures += run_missing(PEOPLE, PEOPLE.kinds, results, options)
    try:
        _write(results)
    except DataError as error:
        raise (failed(failures) if failures else error) from error
    if failures:
        raise failed(failures)


all_command = Command(
    "all",
    callback=_all,
    params=[*PEOPLE.options(), *ENGINE.parameters(), results_option()],
    help=inspect.getdoc(_all),
)


def _write(results: Path) -> None:
    """Write all tables and figures that have records."""
    from fala_sim.experiments.registry import figures, shown_entries, tables
    from fala_sim.records.frame import read_frame

    records = read_frame(results)
    shown_tables, missing = shown_entries(tables().values(), records)
    folder = results / "tables"
    folder.mkdir(exist_ok=True)
    for table in shown_tables:
        (folder / f"{table.name}.md").write_text(table.markdown() + "\n", encoding="utf-8")
        (folder / f"{table.name}.json").write_text(
            json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        click.echo(table.text() + "\n")
    drawn, not_drawn = shown_entries(figures().values(), records)
    for plots in drawn:
        for plot in plots:
            for path in draw_files(plot, results / "figures"):
                log(str(path))
    for line in (*missing, *not_drawn):
        log(f"left out: {line}")


def draw_files(plot: Plot, folder: Path) -> list[Path]:
    """Write a plot into a folder as SVG and PNG, and return both files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{plot.name}.{form}" for form in ("svg", "png")]
    for file, content in zip(files, (plot.svg().encode(), plot.png()), strict=True):
        file.write_bytes(content)
    return files


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The options of ``pack``.

    Attributes:
        results: Folder of the records.
        as_json: Print one JSON object.
    """

    results: FileOrFolder = Path("fala-results")
    as_json: Json = False


@command("pack", PackOptions)
def pack_command(options: PackOptions) -> None:
    """Write a run's records as one small file, records.jsonl.gz in --results.

    Tables and figures read it like the records themselves. Records that were made with uncommitted
    changes of the code are rejected.
    """
    path = RecordStore(options.results).pack()
    size = path.stat().st_size
    if options.as_json:
        click.echo(json.dumps({"path": str(path), "bytes": size}))
    else:
        click.echo(f"{path}: {size:,} bytes")
