"""The commands ``fala-sim data list`` and ``fala-sim data get NAME``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fala.cli import Group, Named
from fala_sim.experiments.families import data_sets
from fala_sim.experiments.options import DATA_DIR, JSON, log, with_options


@click.group("data", cls=Group)
def data_group() -> None:
    """List the public data sets, or download one from its publisher."""


@data_group.command("list")
@with_options(DATA_DIR, JSON)
def list_data(data_dir: Path | None, as_json: bool) -> None:
    """List the public data sets: their licences, and whether they are here."""
    from fala_sim.data.catalogue import CATALOGUE
    from fala_sim.data.location import data_folder

    folder = data_folder(data_dir)
    rows: list[dict[str, Any]] = []
    for name, data_set in CATALOGUE.items():
        paths = [folder / name for name in data_set.folders if (folder / name).is_dir()]
        rows.append({
            "name": name,
            "title": data_set.title,
            "format": data_set.format,
            "path": str(paths[0]) if paths else None,
            "licence": data_set.licence,
            "page": data_set.page,
            "files": {file.url: file.sha256 for file in data_set.files},
        })  # fmt: skip
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "data_sets": rows}))
        return
    for row in rows:
        click.echo(f"{row['name']}: {row['title']}")
        click.echo(f"  {row['path'] or ('not here' if row['files'] else 'by hand')}")
        click.echo(f"  {row['licence']}; {row['page']}")


@data_group.command("get")
@click.argument("name", type=Named(data_sets))
@with_options(DATA_DIR, JSON)
def get_data(name: str, data_dir: Path | None, as_json: bool) -> None:
    """Download the data set NAME from its publisher.

    Each file is checked against the SHA-256 of the catalogue. After an interruption the same
    command keeps the files that are complete.
    """
    from fala_sim.data.catalogue import find_data_set
    from fala_sim.data.fetch import download_data
    from fala_sim.data.location import data_folder

    data_set, folder = find_data_set(name), data_folder(data_dir)
    new, path = download_data(data_set, folder, log), folder / data_set.folders[0]
    if as_json:
        click.echo(json.dumps({"name": name, "path": str(path), "new": new}))
    else:
        click.echo(f"{path}" if new else f"{path} (it was there)")
