"""``fala-export train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fala import Bundle, ExportError
from fala.cli.commands import Command
from fala_export.commands.options import (
    JSON,
    MAX_LENGTH,
    MIN_COSINE,
    NAME,
    NO_LEXICAL,
    ORT,
    OUT,
    QUANTIZE,
    RESUME,
    REVISION,
    SEED,
    name_of,
    schedule,
    show,
)
from fala_export.progress import progress
from fala_export.training.settings import TrainingSettings

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder

_FOR_MODELS = ("pooling", "revision", "max_length", "precision", "min_cosine", "ort")


@click.command(cls=Command)
@click.argument("source", metavar="DIR_OR_NAME_OR_BUNDLE")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Rows as of fala-replace --data; the public ones are read.",
)
@OUT
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the checkpoints, and of the trained model.",
)
@click.option("--frozen", is_flag=True, help="Keep the backbone; fit the head in closed form.")
@RESUME
@schedule
@click.option(
    "--annotators/--no-annotators",
    default=None,
    help="Train a head for each user of five rows or more beside the shared one, at half of the "
    "loss; only the shared one is released. Default: where a classifier has two such users.",
)
@SEED
@MAX_LENGTH
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "attention"]),
    help="Default: as the model's sentence-transformers files say, or the mean.",
)
@REVISION
@QUANTIZE
@MIN_COSINE
@ORT
@NAME
@NO_LEXICAL
@JSON
def train(
    source: str,
    data: Path,
    out: Path,
    work: Path | None,
    frozen: bool,
    resume: bool,
    epochs: int | None,
    batch: int,
    learning_rate: float | None,
    warm_up: float,
    annotators: bool | None,
    seed: int,
    max_length: int | None,
    pooling: str | None,
    revision: str | None,
    precision: str,
    min_cosine: float,
    ort: bool,
    name: str | None,
    no_lexical: bool,
    as_json: bool,
) -> None:
    """Train a backbone and its head on public rows, and write them as a release.

    The backbone is a model folder, a name on the hub, or a bundle of word vectors.
    """
    if (work is None) != frozen:
        raise click.UsageError("give either --work, the folder of the checkpoints, or --frozen")
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    with progress("loading libraries"):
        from fala_export.backbone import ExportOptions
        from fala_export.training.global_model import fit_frozen
        from fala_export.training.global_model import train as train_model
        from fala_export.training.public_rows import load_public_rows
        from fala_export.training.release import save_model, write_trained

    rows = load_public_rows(data)
    backbone = _load(source, pooling, revision, seed)
    if work is None:
        trained = fit_frozen(
            backbone, rows, seed=seed, max_length=max_length, lexical=not no_lexical
        )
    else:
        settings = TrainingSettings(epochs, batch, learning_rate, warm_up, seed, annotators)
        try:
            trained = train_model(
                backbone, rows, settings, work,
                max_length=max_length, resume=resume, lexical=not no_lexical,
            )  # fmt: skip
        except KeyboardInterrupt as error:
            raise ExportError("interrupted; the same command with --resume continues") from error
        if not isinstance(backbone, Bundle):
            save_model(backbone, work / "model")
    options = ExportOptions(
        name=name or name_of(source),
        precision=precision,
        min_cosine=min_cosine,
        max_length=max_length,
        ort=ort,
        keep_speed=False,  # the same recipe gives the same bytes
    )
    summary = write_trained(trained, out, options)
    show(summary, as_json)


def _load(source: str, pooling: str | None, revision: str | None, seed: int) -> Encoder | Bundle:
    if Path(source).is_file():
        if given := _given(*_FOR_MODELS):
            raise ExportError(f"{source}: is a bundle; {given} is for a model")
        return Bundle.open(source)
    from fala_export.backbone import load
    from fala_export.training.learners import attentive

    if pooling != "attention":
        return load(source, pooling, revision)
    return attentive(load(source, None, revision), seed)


def _given(*names: str) -> str | None:
    """The first of some options that stands on the command line, as it stands there."""
    context = click.get_current_context()
    spelled = {option.name: option.opts[0] for option in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return spelled[name]
    return None
