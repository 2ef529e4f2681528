"""``fala-export bridge``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fala.cli.commands import Command
from fala_export.commands.options import JSON, show

_BUNDLE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.option(
    "--from", "earlier", required=True, type=_BUNDLE, help="Bundle of the backbone on devices."
)
@click.option(
    "--to", "later", required=True, type=_BUNDLE, help="Bundle of the backbone to replace it."
)
@click.option(
    "--text",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Public documents, one a line, plain or .gz; or a .jsonl of rows, its public ones.",
)
@click.option("--out", type=_BUNDLE, help="Bundle to write (default: that of --to, in its place).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@JSON
def bridge(
    earlier: Path, later: Path, text: Path, out: Path | None, seed: int, as_json: bool
) -> None:
    """Learn the map from an earlier backbone's embeddings to a new one's, on public text.

    The new bundle carries it, so that a device has estimates of the new embeddings of all its
    documents before it has run the new backbone on one. A bundle may carry bridges from several
    backbones, a run each; a second run for the same one replaces its bridge.

    The text should be of the kind that users have: other texts lie elsewhere in both spaces.

    A fifth of the documents chooses the map's form and strength: of those within 0.1 % of the
    least squared error, the simplest.
    """
    from fala_export.bridging.documents import read_documents
    from fala_export.bridging.release import build_bridge

    summary = build_bridge(earlier, later, read_documents(text), out or later, seed)
    if as_json:
        show(summary, as_json)
        return
    click.echo(table(summary))


def table(summary: Mapping[str, Any]) -> str:
    """What a bridge explains, for people."""
    lines = [
        f"{summary['bundle']}: {summary['name']}, with a bridge from {summary['from']}",
        f"  learned on {summary['documents']} documents; "
        f"{summary['held_out']} of them, held out, chose the form:",
        f"  {'form':<14}{'strength':>10}{'rank':>6}{'explained':>11}",
    ]
    for trial in summary["trials"]:
        strength = "-" if trial["strength"] is None else f"{trial['strength']:.3g}"
        chosen = "  chosen" if trial["form"] == summary["form"] else ""
        lines.append(
            f"  {trial['form']:<14}{strength:>10}{trial['rank']:>6}{trial['explained']:>11.1%}"
            f"{chosen}"
        )
    lines += [
        "  explained: share of the held-out documents' variance in the new space",
        f"  {summary['megabytes']} MB, {summary['added_megabytes']:+} by this run; "
        f"bridges in it: {summary['bridges']}",
    ]
    return "\n".join(lines)
