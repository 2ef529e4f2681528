"""Options that several commands share, and how they print what they did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Bundle to write."
)
NAME = click.option("--name", help="Name in the manifest (default: the source's).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")


def show(summary: Mapping[str, Any], as_json: bool) -> None:
    """Print what a command did: an object of JSON, or a line a figure."""
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    click.echo(f"{summary['bundle']}:")
    for key, value in summary.items():
        if key == "parity":
            click.echo(
                f"  parity with the fp32 model: cosine {value['mean_cosine']:.4f} in the mean, "
                f"{value['worst_cosine']:.4f} at worst, over {value['texts']} texts"
            )
        elif key == "damaged_lines" and value:
            click.echo(f"  damaged lines left out: {value} ({summary['damage']})")
        elif key not in ("bundle", "damage", "damaged_lines"):
            click.echo(f"  {key}: {value}")


def show_all(summaries: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print what a command with several outputs did: an array of JSON, or one after another."""
    if as_json:
        click.echo(json.dumps(summaries, indent=2))
        return
    for summary in summaries:
        show(summary, as_json=False)
