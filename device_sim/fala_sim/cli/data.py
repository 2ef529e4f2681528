"""The commands ``fala-sim data list`` and ``fala-sim data get NAME``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import click

from fala.cli import Group, Named
from fala_export.recipe.options import FileOrFolder, PositionalArgument
from fala_sim.cli.options import Json, command, log
from fala_sim.experiments.plan import data_sets


@click.group("data", cls=Group)
def data_group() -> None:
    """List the public data sets, or download one from its publisher."""


@dataclass(frozen=True, kw_only=True)
class DataListOptions:
    """The options of ``list``.

    Attributes:
        data_dir: Folder of the named data sets (default: FALA_DATA, or the folder of `fala-sim data
            get`).
        as_json: Print one JSON object.
    """

    data_dir: FileOrFolder | None = None
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class DataGetOptions(DataListOptions):
    """The options of ``get``.

    Attributes:
        name: Name of the data set.
    """

    name: Annotated[str, PositionalArgument("NAME"), Named(data_sets)]


@command("list", DataListOptions)
def list_data(options: DataListOptions) -> None:
    """List the public data sets, with their licences and whether they are on this machine."""
    from fala_sim.data.catalogue import CATALOGUE
    from fala_sim.data.location import data_folder

    folder = data_folder(options.data_dir)
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
    if options.as_json:
        click.echo(json.dumps({"folder": str(folder), "data_sets": rows}))
        return
    for row in rows:
        click.echo(f"{row['name']}: {row['title']}")
        click.echo(f"  {row['path'] or ('not here' if row['files'] else 'by hand')}")
        click.echo(f"  {row['licence']}; {row['page']}")


@command("get", DataGetOptions)
def get_data(options: DataGetOptions) -> None:
    """Download the data set NAME from its publisher.

    Each file is checked against the SHA-256 of the catalogue. If the download is interrupted, the
    same command resumes it and keeps the files that are complete.
    """
    from fala_sim.data.catalogue import find_data_set
    from fala_sim.data.fetch import download_data
    from fala_sim.data.location import data_folder

    data_set, folder = find_data_set(options.name), data_folder(options.data_dir)
    new, path = download_data(data_set, folder, log), folder / data_set.folders[0]
    if options.as_json:
        click.echo(json.dumps({"name": options.name, "path": str(path), "new": new}))
    else:
        click.echo(f"{path}" if new else f"{path} (already downloaded)")


data_group.add_command(list_data)
data_group.add_command(get_data)
