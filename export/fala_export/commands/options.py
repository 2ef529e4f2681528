"""Options that several commands share, and how they print what they did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from fala.cli.names import Described
from fala_export.training.settings import TrainingSettings

_DEFAULTS = TrainingSettings()
_MODELS = {"frozen": "frozen backbone", "trained": "trained"}
_METRICS = ("auc", "f1", "accuracy")

Command = TypeVar("Command", bound=Callable[..., Any])

OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Bundle to write."
)
NAME = click.option("--name", help="Name in the manifest (default: the source's).")
MAX_LENGTH = click.option(
    "--max-length", type=int, help="Tokens of a text that are read (default: 128, or all it can)."
)
QUANTIZE = click.option(
    "--quantize",
    "precision",
    type=Described(
        {
            "auto": "the smallest that meets --min-cosine",
            "none": "float32, as the model is",
            "fp16": "half the size",
            "int8": "a quarter of it, and about twice as fast",
            "int4": "an eighth, less what stays finer; a little less faithful",
        }
    ),
    default="int8",
    show_default=True,
    help="How weights are stored.",
)
MIN_COSINE = click.option(
    "--min-cosine",
    type=click.FloatRange(-1, 1),
    default=0.98,
    show_default=True,
    help="Mean cosine to float32 below which nothing is written.",
)
ORT = click.option(
    "--ort",
    is_flag=True,
    help="Store the model in ONNX Runtime's format, with its operators; "
    "fp16 and int4 save little there.",
)
ADAPTERS = click.option(
    "--adapters",
    is_flag=True,
    help="Give the graph optional inputs for tasks' adapters, and for the norms behind them.",
)
PROMPTS = click.option(
    "--prompts",
    is_flag=True,
    help="Give the graph optional inputs for writers' prompts: keys and values in front of a text.",
)
HARD_PROMPTS = click.option(
    "--hard-prompts",
    is_flag=True,
    help="With --prompts: let the graph give keys and values, so that a device can make a prompt "
    "of a writer's texts; some 3 % slower.",
)
NO_LEXICAL = click.option(
    "--no-lexical",
    is_flag=True,
    help="Leave out the head's weights of words, about 130 kB for two labels.",
)
REVISION = click.option("--revision", help="Branch, tag or commit of a model on the hub.")
RESUME = click.option(
    "--resume", is_flag=True, help="Continue from the last whole checkpoint in --work."
)
_SCHEDULE = (
    click.option("--epochs", type=click.IntRange(min=1), help="Most passes over the rows."),
    click.option("--batch", type=click.IntRange(min=1), default=_DEFAULTS.batch, show_default=True),
    click.option(
        "--learning-rate", type=click.FloatRange(min=0, min_open=True), help="At its peak."
    ),
    click.option(
        "--warm-up",
        type=click.FloatRange(0, 1),
        default=_DEFAULTS.warm_up,
        show_default=True,
        help="Share of the steps in which the rate rises.",
    ),
)
SEED = click.option("--seed", type=click.IntRange(min=0), default=_DEFAULTS.seed, show_default=True)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")


def schedule(command: Command) -> Command:
    """Add the options of a training's length and pace."""
    for option in reversed(_SCHEDULE):  # the first that is added is the last of the help
        command = option(command)
    return command


def name_of(source: str) -> str:
    """A model's name unless the vendor gives one: its folder's, its file's, or the hub's.

    Args:
        source: As it stands on the command line; a folder may be ``.`` or ``..``.
    """
    path = Path(source)
    if path.is_file():
        return path.stem
    # Only then: a link that was named on purpose keeps its own name.
    if path.is_dir() and path.name in ("", ".."):
        path = path.resolve()
    return path.name


def show(summary: Mapping[str, Any], as_json: bool) -> None:
    """Print what a command did: an object of JSON, or a line a figure."""
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    click.echo(f"{summary['bundle']}:")
    for key, value in summary.items():
        if key == "parity":
            _show_parity(value)
        elif key == "training":
            _show_training(value)
        elif key == "cost":
            operations = ", ".join(
                f"{count / 1e9:.3g} at {length}" for length, count in value["flops"].items()
            )
            click.echo(f"  parameters: {value['parameters'] / 1e6:.2f} million")
            click.echo(f"  GFLOP a forward pass, by tokens: {operations}")
        elif key == "damaged_lines" and value:
            click.echo(f"  damaged lines left out: {value} ({summary['damage']})")
        elif key not in ("bundle", "damage", "damaged_lines"):
            click.echo(f"  {key}: {value}")


def _show_parity(parity: Mapping[str, Any]) -> None:
    click.echo(
        f"  parity with the fp32 model: cosine {parity['mean_cosine']:.4f} in the mean, "
        f"{parity['worst_cosine']:.4f} at worst, over {parity['texts']} texts"
    )
    click.echo(
        f"  model: {parity['megabytes']} MB, {parity['fp32_megabytes']} MB in fp32; on one thread "
        f"{parity['speed']['ratio']} times as fast as fp32 "
        f"({parity['speed']['milliseconds']} ms a text)"
    )
    if "head" in parity:
        head = parity["head"]
        click.echo(
            f"  through the head: logits off by {head['mean_logit_error']} in the mean, "
            f"{head['worst_logit_error']} at worst (deviation {head['logit_deviation']}); "
            f"{head['label_flips']} of {head['examples']} labels flip"
        )


def _show_training(training: Mapping[str, Any]) -> None:
    data, figures = training["data"], training["figures"]
    click.echo(f"  trained on {data['training']['rows']} rows")
    if "words" in training:
        _show_words(training["words"])
    if not figures:
        click.echo("  too few rows to keep users out, so no figures")
        return
    kept = data["held_out"]
    click.echo(
        f"  measured on {kept['rows']} rows of held-out {training['divided_by']}, about "
        f"{kept['documents']} documents that are in nobody's training rows:"
    )
    click.echo(f"  {'':<16}  all rows: AUC     F1  accuracy   mean user: AUC     F1  accuracy")
    for model, title in _MODELS.items():
        if model in figures:
            cells = [
                "-" if value is None else f"{value:.4f}"
                for part in ("pooled", "mean_over_users")
                for value in (figures[model][part][metric] for metric in _METRICS)
            ]
            click.echo(
                f"  {title:<16}  {cells[0]:>13} {cells[1]:>6}  {cells[2]:>8}   "
                f"{cells[3]:>14} {cells[4]:>6}  {cells[5]:>8}"
            )


def _show_words(words: Mapping[str, Any]) -> None:
    losses = words["left_out_cross_entropy"]
    measured = ""
    if losses["with_words"] is not None:
        measured = (
            f"; cross-entropy of left-out documents {losses['with_words']:.4f}, "
            f"{losses['without_words']:.4f} without"
        )
    click.echo(f"  words: {words['buckets']} n-grams have a weight{measured}")
