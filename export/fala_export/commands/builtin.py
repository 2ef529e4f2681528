"""``fala-export builtin``."""

from __future__ import annotations

from pathlib import Path

import click

from fala_export.commands.options import JSON, show_all


@click.command()
@click.option(
    "--corpora", required=True, type=click.Path(path_type=Path), help="Folder of nltk_data's zips."
)
@click.option(
    "--work", required=True, type=click.Path(path_type=Path), help="Folder of the checkpoints."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of the two bundles."
)
@click.option("--seed", type=int, default=0, show_default=True)
@JSON
def builtin(corpora: Path, work: Path, out: Path, seed: int, as_json: bool) -> None:
    """Train and pack the two models that ship with the package; a rerun continues."""
    from fala_export.builtin import build_builtin

    show_all(build_builtin(corpora, work, out, seed), as_json)
