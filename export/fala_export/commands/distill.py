"""``fala-export distill``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fala.cli.commands import Command
from fala_export.commands.options import JSON, MIN_COSINE, OUT, QUANTIZE, name_of, show
from fala_export.progress import progress

_COUNT = click.IntRange(min=1)


@click.command(cls=Command)
@click.argument("teacher", metavar="DIR_OR_NAME")
@click.option(
    "--text",
    "texts",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="Texts to imitate the teacher on, one a line, plain or .gz; may be given again.",
)
@click.option("--layers", type=_COUNT, help="Default: the teacher's.")
@click.option("--dim", "dimension", type=_COUNT, help="Default: the teacher's.")
@click.option("--heads", type=_COUNT, help="Default: the teacher's, or heads of about 64.")
@click.option(
    "--vocab",
    "vocabulary",
    type=_COUNT,
    help="Learn a WordPiece vocabulary of so many pieces (default: keep the teacher's).",
)
@click.option("--trim", type=_COUNT, help="Keep only so many of the most used pieces.")
@click.option(
    "--work",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of checkpoints and the teacher's embeddings.",
)
@OUT
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Rows of a real task, of which the public ones tell how much of the teacher survives.",
)
@click.option("--epochs", type=click.IntRange(min=0), default=5, show_default=True)
@click.option("--batch", type=_COUNT, default=64, show_default=True)
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Default: 0.0001 for the teacher's layers, 0.001 for new ones.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@QUANTIZE
@MIN_COSINE
@click.option("--revision", help="Branch, tag or commit of a teacher on the hub.")
@click.option("--name", help="Name in the manifest (default: the bundle's file name).")
@JSON
def distill(
    teacher: str,
    texts: tuple[Path, ...],
    layers: int | None,
    dimension: int | None,
    heads: int | None,
    vocabulary: int | None,
    trim: int | None,
    work: Path,
    out: Path,
    data: Path | None,
    epochs: int,
    batch: int,
    learning_rate: float | None,
    seed: int,
    precision: str,
    min_cosine: float,
    revision: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Distil a large encoder into a small one; a rerun continues.

    A student of the teacher's dimension and tokenizer starts as the teacher with fewer layers and
    pieces; any other is a new BERT. With --trim alone the teacher only loses rare pieces; its
    embeddings of texts without them stay as they are if --epochs is 0.
    """
    with progress("loading libraries"):
        from fala_export.backbone import load
        from fala_export.distillation.distil import Distillation
        from fala_export.distillation.release import StudentRelease, release_student

    summary = release_student(
        load(teacher, revision=revision),
        StudentRelease(
            name=name or out.stem,
            teacher_name=name_of(teacher),
            texts=texts,
            settings=Distillation(
                layers=layers,
                dimension=dimension,
                heads=heads,
                vocabulary=vocabulary,
                trim=trim,
                epochs=epochs,
                batch=batch,
                learning_rate=learning_rate,
            ),
            work=work,
            seed=seed,
            data=data,
            precision=precision,
            min_cosine=min_cosine,
        ),
        out,
    )
    if as_json:
        show(summary, as_json)
        return
    survival = summary.pop("survival", None)
    figures = summary.pop("figures")
    show(summary, as_json)
    click.echo(
        f"  on held-out texts: cosine {figures['held_out_cosine']:.4f} to the teacher, "
        f"Spearman {figures['held_out_pair_spearman']:.4f} over pairs of texts"
    )
    if survival is not None:
        click.echo(table(survival))


def table(survival: Mapping[str, Any]) -> str:
    """The report on a real task, for people."""
    lines = [
        f"  on {survival['held_out_rows']} rows of {survival['held_out_documents']} documents, "
        f"held out by {survival['held_out_by']}; heads in closed form on "
        f"{survival['training_rows']} rows:",
        f"  {'':8}{'AUC':>8}{'F1':>8}{'accuracy':>10}{'MB':>8}",
    ]
    for model in ("teacher", "student"):
        row = survival[model]
        lines.append(
            f"  {model:8}{row['auc']:>8.4f}{row['f1']:>8.4f}{row['accuracy']:>10.4f}"
            f"{row['megabytes']:>8.2f}"
        )
    if survival["share"] is None:
        lines.append(
            "  how much survives is not known: so few documents do not show that the teacher is "
            "better than chance"
        )
    else:
        low, high = survival["interval"]
        lines.append(
            f"  survives: {survival['share']:.0%} of the teacher's AUC above chance, 0.5 (95 % "
            f"interval {low:.0%} to {high:.0%}), {survival['share_per_megabyte']:.1%} a megabyte"
        )
    return "\n".join(lines)
