"""Define ``fala-export train``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.core import ParameterSource

from fala import Bundle
from fala.base.examples import MATCHING
from fala.base.files import temporary_folder
from fala.cli import progress
from fala_export.base.checks import check_release_name, check_room
from fala_export.base.errors import ExportError
from fala_export.cli.command import Summary, command, name_of
from fala_export.recipe.options import File, FileOrFolder, FolderPath, Only
from fala_export.recipe.settings import AnyPooling, ExportOptions, ModelSource
from fala_export.recipe.training import LabelSettings, TrainingSettings, WithLexical
from fala_export.rows.columns import Columns

if TYPE_CHECKING:
    from fala_export.models.encoder import Encoder
    from fala_export.rows.table import Rows

# Number of copies of the weights in a work folder: a checkpoint with both moments, and the trained
# model.
_WORK = 4
_FOR_MODELS = (
    "pooling", "revision", "ignore", "prompt", "dimension", "layers", "max_length", "precision",
    "min_cosine",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Train:
    """A training and its release.

    Attributes:
        data: Rows in the format of fala-replace --data; the public rows are read.
        out: Bundle to write.
        work: Folder for the checkpoints and the trained model.
        frozen: Keep the backbone unchanged, and fit only the head.
        resume: Continue from the last complete checkpoint in --work.
        pooling: How token states become an embedding (default: as for the command backbone; "own"
            if a matcher is trained). "attention" is learned, so it cannot be used with --frozen.
        lexical: Whether the head also has lexical features; they take about 130 kB for two labels.
    """

    model: ModelSource
    data: FileOrFolder
    columns: Columns
    labels: LabelSettings
    out: File
    work: FolderPath | None = None
    frozen: bool = False
    resume: bool = False
    training: TrainingSettings
    pooling: AnyPooling | None = None
    export: Annotated[ExportOptions, Only("name", "precision", "min_cosine", "max_length")]
    lexical: WithLexical = True


@command(Train)
def train(settings: Train) -> Summary:
    """Train a backbone and its head on public rows, and write them as a release.

    The backbone is a model folder, a name on the hub, or a bundle of word vectors. Ratings need
    --frozen.
    """
    if (settings.work is None) != settings.frozen:
        raise click.UsageError("name either --work, the folder of the checkpoints, or --frozen")
    if settings.frozen and settings.pooling == "attention":
        raise click.UsageError("--pooling attention needs a training without --frozen")
    with progress("loading libraries"):
        from fala_export.bundle.admit import write_admitted
        from fala_export.bundle.backbone import check_disk
        from fala_export.people.division import load_public_rows

    name = settings.export.name or name_of(settings.model.source)
    check_release_name(name)
    options = replace(settings.export, name=name)
    rows = load_public_rows(settings.data, settings.columns, settings.labels.link)
    backbone = _load(settings, rows)
    if not isinstance(backbone, Bundle):
        check_disk(backbone, options, settings.out.parent)
        check_room(0 if settings.work is None else _WORK * backbone.size, settings.work or Path())
    make = partial(_fit_frozen if settings.work is None else _train, settings, backbone, rows)
    return write_admitted(settings.out, partial(make, options))


def _fit_frozen(
    settings: Train, backbone: Encoder | Bundle, rows: Rows, options: ExportOptions, out: Path
) -> Summary:
    from fala_export.training.release import write_head
    from fala_export.training.saving import export_learned

    summary: Summary = {}
    with temporary_folder() as folder:
        if isinstance(backbone, Bundle):
            path = Path(backbone.path)
        else:
            path = folder / "backbone.fala"
            summary = export_learned(backbone, rows, path, options)
        seed, lexical = settings.training.seed, settings.lexical
        return {**summary, **write_head(path, rows, out, seed=seed, lexical=lexical)}


def _train(
    settings: Train, backbone: Encoder | Bundle, rows: Rows, options: ExportOptions, out: Path
) -> Summary:
    from fala_export.models.encoder import Encoder
    from fala_export.training.global_model import train as train_model
    from fala_export.training.saving import save_model

    work = settings.work or Path()
    summary = train_model(
        backbone, rows, settings.training, work, out, options,
        lexical=settings.lexical, resume=settings.resume,
    )  # fmt: skip
    if isinstance(backbone, Encoder):
        save_model(backbone, work / "model")
    return summary


def _load(settings: Train, rows: Rows) -> Encoder | Bundle:
    source = settings.model.source
    if Path(source).is_file() and not source.endswith(".onnx"):
        if flag := _flag_in_use(*_FOR_MODELS):
            raise ExportError(f"{source} is a bundle, but {flag} needs a model")
        return Bundle.open(source)
    from fala_export.models.load import load

    pooling, seed = settings.pooling, settings.training.seed
    if pooling is None and not settings.frozen and rows.task == MATCHING:
        pooling = "own"
    return load(settings.model, pooling, settings.export, seed=seed)


def _flag_in_use(*names: str) -> str | None:
    """Return the first of some options that is on the command line, as a flag; None without any."""
    context = click.get_current_context()
    flags = {option.name: option.opts[0] for option in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return flags[name]
    return None
