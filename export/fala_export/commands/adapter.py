"""``fala-export adapter``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from fala import ExportError
from fala.cli.commands import Command
from fala.cli.names import Described
from fala.release import MATCHING
from fala_export.commands.options import (
    JSON,
    NO_LEXICAL,
    OUT,
    RESUME,
    REVISION,
    SEED,
    schedule,
    show,
)
from fala_export.progress import progress
from fala_export.training.settings import TrainingSettings

_METHODS = {
    "adapters": "bottlenecks in a backbone that stays, and the norms behind them",
    "full": "all of the model; writes a whole release",
    "top-k": "the top layers; writes a whole release",
    "norms": "the norms alone; writes a whole release",
}


@click.command(cls=Command)
@click.option(
    "--base",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle with the backbone that the task is for.",
)
@click.option(
    "--model",
    "source",
    required=True,
    metavar="DIR_OR_NAME",
    help="The model that the base was exported from: a bundle has its graph alone.",
)
@REVISION
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Rows as of fala-replace --data; the public ones are read.",
)
@click.option("--task", required=True, help="The task's name, in the manifest.")
@OUT
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the checkpoints.",
)
@RESUME
@click.option(
    "--method",
    type=Described(_METHODS),
    default="adapters",
    show_default=True,
    help="What is trained.",
)
@click.option(
    "--size",
    type=click.IntRange(1, 256),
    default=64,
    show_default=True,
    help="Of the adapters' bottlenecks.",
)
@click.option(
    "--layers", type=click.IntRange(min=1), default=1, show_default=True, help="K of top-k."
)
@click.option(
    "--init-scale",
    type=click.FloatRange(0, 10, min_open=True),
    default=1e-2,
    show_default=True,
    help="Deviation of the adapters' first weights.",
)
@schedule
@click.option(
    "--best",
    type=click.Choice(("loss", "accuracy")),
    help="What the best epoch is chosen by, on the validation rows.  [default: accuracy, as in the "
    "paper; of matching, which has none, loss]",
)
@SEED
@click.option(
    "--own-splits",
    is_flag=True,
    help="Validate on the file's train rows, and measure on its test rows, in place of a tenth of "
    "the public rows each.",
)
@click.option(
    "--min-cosine",
    type=click.FloatRange(-1, 1),
    default=0.98,
    show_default=True,
    help="Mean cosine of the model's embeddings to the base's below which it is another model.",
)
@NO_LEXICAL
@JSON
def adapter(
    base: Path,
    source: str,
    revision: str | None,
    data: Path,
    task: str,
    out: Path,
    work: Path,
    resume: bool,
    method: str,
    size: int,
    layers: int,
    init_scale: float,
    epochs: int | None,
    batch: int,
    learning_rate: float | None,
    warm_up: float,
    best: Literal["loss", "accuracy"] | None,
    seed: int,
    own_splits: bool,
    min_cosine: float,
    no_lexical: bool,
    as_json: bool,
) -> None:
    """Train a task's adapter on a backbone that stays as it is, and write it as a bundle.

    Of the model the adapters, the norms behind them and the task's head are trained (Houlsby et
    al., "Parameter-Efficient Transfer Learning for NLP", ICML 2019).
    """
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    if not task.strip():
        raise click.UsageError("--task is blank")
    with progress("loading libraries"):
        from fala_export.adapters.methods import Method
        from fala_export.adapters.release import write_task
        from fala_export.adapters.source import model_of, open_base
        from fala_export.adapters.training import train_task
        from fala_export.training.public_rows import divide, load_own_splits, load_public_rows

    if own_splits:
        rows, division = load_own_splits(data)
    else:
        rows = load_public_rows(data)
        division = divide(rows.rows, seed, validation=True)
    if best == "accuracy" and rows.task == MATCHING:
        raise click.UsageError("--best accuracy: a matcher learns an order, which has no accuracy")
    bundle, backbone = open_base(base)
    encoder, parity = model_of(bundle, backbone, source, revision, min_cosine)
    settings = TrainingSettings(epochs, batch, learning_rate, warm_up, seed)
    try:
        trained = train_task(
            encoder,
            encoder.length(bundle.manifest.max_length),
            rows,
            division,
            Method(method, size, layers, init_scale),
            settings,
            work,
            task=task,
            graph=backbone,
            resume=resume,
            lexical=not no_lexical,
            best=best or ("loss" if rows.task == MATCHING else "accuracy"),
        )
    except KeyboardInterrupt as error:
        raise ExportError("interrupted; the same command with --resume continues") from error
    show(write_task(trained, bundle, task, out, parity), as_json)
