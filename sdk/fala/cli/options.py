"""Options that several commands take."""

from __future__ import annotations

import click

from fala.personal.run import BRIDGED_PASSES, PASSES

BUDGET = click.option(
    "--budget",
    type=click.IntRange(0),
    show_default=f"{PASSES}, or {BRIDGED_PASSES} over a bridge",
    help="Forward passes through the new backbone, per user.",
)
SECONDS = click.option(
    "--seconds",
    type=click.FloatRange(0),
    help="Wall time after which no more texts are encoded, per user.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
