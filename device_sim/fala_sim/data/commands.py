"""The commands ``fala-sim data list`` and ``fala-sim data get NAME``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fala.cli.commands import Group
from fala.cli.names import Named
from fala_sim.options import DATA_DIR, JSON, say, with_options


def data_sets() -> dict[str, str]:
    """Data sets that have a name, with their titles."""
    from fala_sim.convert.formats import CATALOGUE

    return {name: data_set.title for name, data_set in CATALOGUE.items()}


_CHECKS = {
    "sha256": "its checksum is known here",
    "md5": "its checksum is the publisher's",
    "first": "its checksum is that of the first download",
    "none": "its checksum is kept for the next time",
}


@click.group("data", cls=Group)
def data_group() -> None:
    """List the public data sets, or bring one from its publisher."""


@data_group.command("list")
@with_options(DATA_DIR, JSON)
def list_command(data_dir: Path | None, as_json: bool) -> None:
    """List the public data sets: their licences, whether they are here, and what holds them.

    A data set is held to a checksum that is known beforehand (sha256), to the one that its
    publisher tells (md5), or to that of its first download (first), which there is not yet (none).
    """
    from fala_sim.convert.formats import CATALOGUE
    from fala_sim.data.bring import read_receipt
    from fala_sim.data.place import data_folder

    folder = data_folder(data_dir)
    rows: list[dict[str, Any]] = []
    for name, data_set in CATALOGUE.items():
        places = [folder / each for each in data_set.folders if (folder / each).is_dir()]
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
            "path": str(places[0]) if places else None,
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
    """Bring the data set NAME from its publisher, or check the one that came before.

    An interrupted download goes on where it stopped, with the same command. What came is held to
    its checksum, or, where none is published, to that of the first download.
    """
    from fala_sim.convert.formats import find_data_set
    from fala_sim.data.bring import bring
    from fala_sim.data.place import data_folder

    done = bring(find_data_set(name), data_folder(data_dir), say)
    if as_json:
        about = {"name": name, "path": str(done.path), "new": done.new, "checked": {**done.checked}}
        click.echo(json.dumps(about))
        return
    for file, how in done.checked.items():
        click.echo(f"{file}: {_CHECKS[how]}", err=True)
    click.echo(f"{done.path}" if done.new else f"{done.path} (it was there)")
