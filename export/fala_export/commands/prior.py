"""``fala-export prior``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fala import ExportError
from fala.cli.commands import Command
from fala_export.commands.options import JSON


@click.command(cls=Command)
@click.option(
    "--release",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle with a head of two labels.",
)
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Rows as of fala-replace --data; the public ones that name a user are read.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle to write (default: --release itself, written again).",
)
@click.option(
    "--scales-only",
    is_flag=True,
    help="Leave the prior as it is, and choose the scales of the devices' fit alone.",
)
@click.option(
    "--trained-on",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The --data that the release's backbone was trained on, where these rows are others: "
    "their documents are left out.",
)
@JSON
def prior(
    release: Path,
    data: Path,
    out: Path | None,
    scales_only: bool,
    trained_on: Path | None,
    as_json: bool,
) -> None:
    """Put into a release how public annotators differ from its head.

    Devices start a personal model from this population prior, and need fewer examples. Twenty
    annotators with ten rows or more are needed. Of several priors the one is written that serves
    held-out annotators best, beside the words and the slope that a device fits, too.

    Where twenty have thirty rows or more, the scales that serve these best are written, too: of
    the fit's blocks, and of the slope. Devices take them as they are.

    A head knows the rows that it was fitted to too well to be measured on them: both are judged by
    heads that are fitted again without a third of the documents, each on that third. A trained
    backbone knows its rows so, too: of those only what the training kept out is read.
    """
    from fala_export.population.release import write_prior, write_scales
    from fala_export.training.public_rows import load_public_rows

    out = out or release
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    write = write_scales if scales_only else write_prior
    summary = write(release, load_public_rows(data), out, trained_on)
    click.echo(json.dumps(summary, indent=2) if as_json else _shown(summary))


def _shown(summary: Mapping[str, Any]) -> str:
    lines = [f"{summary['bundle']}:"]
    if "prior" in summary:
        lines += _shown_prior(summary["prior"])
    lines.append(f"  bytes added: {summary['bytes_added']}")
    if summary["scales"] is None:
        lines.append("  no scales: too few annotators have thirty rows or more")
    else:
        scales = ", ".join(f"{scale:g}" for scale in summary["scales"])
        lines.append(f"  scales of a device's fit: {scales}")
    return "\n".join(lines)


def _shown_prior(found: Mapping[str, Any]) -> list[str]:
    lines = [
        f"  from {found['rows']} rows of {found['annotators']} annotators",
        f"  biases differ from the vendor's by {found['bias_mean']:.2f} in the mean, with a "
        f"standard deviation of {found['bias_deviation']:.2f}",
        "  cross-entropy on held-out annotators:",
    ]
    for name, value in found["held_out_cross_entropy"].items():
        lines.append(f"    {name:<22} {value:.4f}{'  chosen' if name == found['chosen'] else ''}")
    return lines
