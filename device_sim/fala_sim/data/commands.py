"""The commands ``fala-sim data list`` and ``fala-sim data get NAME``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fala.cli import Group, Named
from fala_sim.options import DATA_DIR, JSON, log, with_options


def data_sets() -> dict[str, str]:
    """The titles of the named data sets, by name."""
    from fala_sim.convert.formats import CATALOGUE

    return {name: data_set.title for name, data_set in CATALOGUE.items()}


_CHECKS = {
    "sha256": "its checksum is the catalogue's",
    "md5": "its checksum is the publisher's",
    "first": "its checksum is that of the first download",
    "none": "its checksum is stored for the next download",
}


@click.group("data", cls=Group)
def data_group() -> None:
    """List the public data sets, or download one from its publisher."""


@data_group.command("list")
@with_options(DATA_DIR, JSON)
def list_command(data_dir: Path | None, as_json: bool) -> None:
    """List the public data sets: their licences, whether they are here, and their checksums.

    A download is checked against the catalogue's checksum (sha256), the publisher's (md5), or that
    of the first download (first). Before the first download there is none (none).
    """
    from fala_sim.convert.formats import CATALOGUE
    from fala_sim.data.fetch import read_receipt
    from fala_sim.data.location import data_folder

    folder = data_folder(data_dir)
    rows: list[dict[str, Any]] = []
    for name, data_set in CATALOGUE.items():
        paths = [folder / name for name in data_set.folders if (folder / name).is_dir()]
        downloads = read_receipt(data_set, folder)["downloads"]
        pins = {
            "sha256" if file.sha256 else "md5" if file.md5_url
            else "first" if file.name in downloads else "none"
            for file in data_set.files
        }  # fmt: skip
        rows.append({
            "name": name,
            "title": data_set.title,
            "format": data_set.format,
            "path": str(paths[0]) if paths else None,
            "pinned": "by hand" if not data_set.files else ", ".join(sorted(pins)),
            "licence": data_set.licence,
            "page": data_set.page,
            "urls": [file.url for file in data_set.files],
        })  # fmt: skip
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "data_sets": rows}))
        return
    for row in rows:
        click.echo(f"{row['name']}: {row['title']}")
        click.echo(f"  {row['path'] or 'not here'}; checksum: {row['pinned']}")
        click.echo(f"  {row['licence']}; {row['page']}")


@data_group.command("get")
@click.argument("name", type=Named(data_sets))
@with_options(DATA_DIR, JSON)
def get_command(name: str, data_dir: Path | None, as_json: bool) -> None:
    """Download the data set NAME from its publisher, or check an earlier download.

    An interrupted download resumes with the same command. Files are checked against their
    checksums, or, if none is published, against those of the first download.
    """
    from fala_sim.convert.formats import find_data_set
    from fala_sim.data.fetch import fetch
    from fala_sim.data.location import data_folder

    data = fetch(find_data_set(name), data_folder(data_dir), log)
    if as_json:
        about = {"name": name, "path": str(data.path), "new": data.new, "checked": {**data.checked}}
        click.echo(json.dumps(about))
        return
    for file, check in data.checked.items():
        click.echo(f"{file}: {_CHECKS[check]}", err=True)
    click.echo(f"{data.path}" if data.new else f"{data.path} (it was there)")
