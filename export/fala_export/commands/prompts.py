"""``fala-export prompts``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fala import ExportError
from fala.cli.commands import Command
from fala.cli.names import Described
from fala.release import MAX_PROMPTS
from fala_export.commands.options import (
    JSON,
    MAX_LENGTH,
    MIN_COSINE,
    NAME,
    NO_LEXICAL,
    ORT,
    QUANTIZE,
    RESUME,
    REVISION,
    SEED,
    name_of,
    schedule,
    show,
)
from fala_export.progress import progress
from fala_export.prompts.settings import (
    HARD,
    KINDS,
    MOST_HARD,
    MOST_SOFT,
    SOFT,
    PromptSettings,
)
from fala_export.training.settings import TrainingSettings

_PROMPTS = PromptSettings("none")
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.argument("source", metavar="DIR_OR_NAME")
@click.option("--data", type=_FILE, help="Rows as of fala-replace --data; the public ones that "
              "name a user are trained on.")  # fmt: skip
@click.option("--kind", type=Described(KINDS), help="What tells writers apart.")
@click.option("--out", required=True, type=_FILE, help="Bundle to write, or answers.")
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the checkpoints, and of the trained model.",
)
@click.option(
    "--evaluate",
    "asked",
    type=_FILE,
    help="Write a trained model's logits for this file's test rows, a JSON object a line; "
    "DIR is model in the training's --work.",
)
@click.option(
    "--embeddings",
    is_flag=True,
    help="With --evaluate: answer train rows, too, and write every row's embedding.",
)
@click.option(
    "--length",
    type=click.IntRange(min=1),
    help="Vectors of a soft prompt (default 8), or tokens of a hard one (default 64).",
)
@click.option("--mlm", is_flag=True, help="Guess masked words of the writers' texts first.")
@click.option(
    "--mlm-epochs", type=click.IntRange(min=1), default=_PROMPTS.mlm_epochs, show_default=True
)
@click.option("--fixed-backbone", is_flag=True, help="Train prompts and head alone.")
@click.option("--no-mlp", is_flag=True, help="Learn soft prompts as they are, through no MLP.")
@click.option(
    "--both-ways",
    is_flag=True,
    help="A hard prompt's texts look at the input, too, as in the paper; a device cannot keep "
    "what is made of such.",
)
@click.option(
    "--writer-dropout",
    type=click.FloatRange(0, 1, max_open=True),
    default=_PROMPTS.writer_dropout,
    show_default=True,
    help="Share of the rows whose writer is unknown.",
)
@click.option(
    "--count",
    type=click.IntRange(2, MAX_PROMPTS),
    default=MAX_PROMPTS,
    show_default=True,
    help="Prompts that a release of soft-all brings, at most.",
)
@NO_LEXICAL
@RESUME
@schedule
@SEED
@MAX_LENGTH
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="Default: the model's own.")
@REVISION
@QUANTIZE
@MIN_COSINE
@ORT
@NAME
@JSON
def prompts(
    source: str,
    data: Path | None,
    kind: str | None,
    out: Path,
    work: Path | None,
    asked: Path | None,
    embeddings: bool,
    length: int | None,
    mlm: bool,
    mlm_epochs: int,
    fixed_backbone: bool,
    no_mlp: bool,
    both_ways: bool,
    writer_dropout: float,
    count: int,
    no_lexical: bool,
    resume: bool,
    epochs: int | None,
    batch: int,
    learning_rate: float | None,
    warm_up: float,
    seed: int,
    max_length: int | None,
    pooling: str | None,
    revision: str | None,
    precision: str,
    min_cosine: float,
    ort: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Train one backbone and head for all writers, with what tells the writers apart.

    Soft prompts are learnt vectors of each writer, before the text (soft-one) or as keys and
    values of every layer (soft-all); hard prompts are the writer's own texts, in the data's order
    (hard-static) or the most similar by n-grams first (hard-dynamic). A user's bias, or none, is
    what they compare with. A release of soft-all brings a few of its prompts.
    """
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    if asked is not None:
        if data is not None or kind is not None or work is not None:
            raise click.UsageError("--evaluate asks a trained model: no --data, --kind or --work")
        _show_answers(_evaluate(Path(source), asked, out, embeddings), as_json)
        return
    if embeddings:
        raise click.UsageError("--embeddings is for --evaluate")
    if data is None or kind is None or work is None:
        raise click.UsageError("a training needs --data, --kind and --work; else give --evaluate")
    _check(kind, length, fixed_backbone and mlm, no_mlp, both_ways)
    with progress("loading libraries"):
        from fala_export.backbone import ExportOptions, load
        from fala_export.prompts.folder import save_prompts
        from fala_export.prompts.release import write_prompted
        from fala_export.prompts.train import train_prompts
        from fala_export.training.public_rows import load_public_rows

    rows = load_public_rows(data)
    told = PromptSettings(
        kind, length, not no_mlp, fixed_backbone, mlm, mlm_epochs, both_ways, writer_dropout
    )
    settings = TrainingSettings(epochs, batch, learning_rate, warm_up, seed)
    try:
        trained = train_prompts(
            load(source, pooling, revision), rows, told, settings, work,
            max_length=max_length, resume=resume, lexical=not no_lexical,
        )  # fmt: skip
    except KeyboardInterrupt as error:
        raise ExportError("interrupted; the same command with --resume continues") from error
    save_prompts(trained.model, work / "model")
    options = ExportOptions(
        name=name or name_of(source),
        precision=precision,
        min_cosine=min_cosine,
        max_length=max_length,
        ort=ort,
        keep_speed=False,  # the same recipe gives the same bytes
    )
    summary = write_prompted(trained, out, options, count)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    training = summary.pop("training")
    show(summary, as_json)
    click.echo(f"  trained on {training['data']['training']['rows']} rows")
    click.echo("  measured on texts that are in nobody's training rows, with the writer's prompt:")
    _show_figures(training["figures"])


def _check(kind: str, length: int | None, stays: bool, no_mlp: bool, both_ways: bool) -> None:
    """Refuse options that another kind has.

    Raises:
        click.UsageError: There is one.
    """
    if no_mlp and kind not in SOFT:
        raise click.UsageError(f"--no-mlp is for {' and '.join(SOFT)}")
    if both_ways and kind not in HARD:
        raise click.UsageError(f"--both-ways is for {' and '.join(HARD)}")
    if stays and kind not in SOFT:
        raise click.UsageError(f"--mlm with --fixed-backbone is for {' and '.join(SOFT)}")
    most = MOST_SOFT if kind in SOFT else MOST_HARD if kind in HARD else 0
    if length is not None and length > most:
        raise click.UsageError(f"--length: {kind} has {most} at most")


def _evaluate(folder: Path, asked: Path, out: Path, embeddings: bool) -> dict[str, Any]:
    from fala_export.prompts.evaluate import evaluate
    from fala_export.prompts.folder import load_prompts

    return evaluate(load_prompts(folder), asked, out, embeddings=embeddings)


def _show_answers(summary: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    click.echo(f"{summary['answers']}:")
    click.echo(f"  {summary['rows']} rows, {summary['known']} of them of known writers")
    _show_figures(summary["figures"])


def _show_figures(figures: Mapping[str, Mapping[str, Any]]) -> None:
    for name, parts in figures.items():
        cells = [
            f"{metric} {'-' if value is None else f'{value:.4f}'}"
            for metric, value in parts["pooled"].items()
        ]
        mean = parts["mean_over_users"]["auc"]
        click.echo(
            f"  {name:<8} {', '.join(cells)}; mean user's auc "
            f"{'-' if mean is None else f'{mean:.4f}'}"
        )
