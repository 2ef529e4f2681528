"""``fala-export distill``."""

from __future__ import annotations

from fala.cli import progress
from fala_export.checks import check_name
from fala_export.commands.command import Summary, command, name_of
from fala_export.commands.summary import text_of
from fala_export.families.distillation.settings import StudentRelease


def _to_text(summary: Summary) -> str:
    separate = ("survival", "figures")
    text = text_of({key: value for key, value in summary.items() if key not in separate})
    figures = summary["figures"]
    text += (
        f"\n  on held-out texts: cosine {figures['held_out_cosine']:.4f} to the teacher, "
        f"Spearman {figures['held_out_pair_spearman']:.4f} over pairs of texts"
    )
    return f"{text}\n{table(summary['survival'])}" if "survival" in summary else text


def table(survival: Summary) -> str:
    """The report on a real task, as text."""
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
            "  unknown how much survives: on so few documents the teacher is not shown to be "
            "better than chance"
        )
    else:
        low, high = survival["interval"]
        lines.append(
            f"  survives: {survival['share']:.0%} of the teacher's AUC above chance, 0.5 (95 % "
            f"interval {low:.0%} to {high:.0%}), {survival['share_per_megabyte']:.1%} a megabyte"
        )
    return "\n".join(lines)


@command(StudentRelease, _to_text)
def distill(settings: StudentRelease) -> Summary:
    """Distil a large encoder into a small one; a rerun continues.

    A student of the teacher's dimension and tokenizer starts as the teacher with fewer layers and
    pieces; any other is a new BERT. With --trim alone the teacher only loses rare pieces; with
    --epochs 0 its embeddings of texts without such pieces do not change.
    """
    with progress("loading libraries"):
        from fala_export.families.distillation.release import release_student
        from fala_export.models.encoder import load_encoder

    teacher = settings.teacher
    check_name(settings.export.name or settings.out.stem)
    encoder = load_encoder(
        teacher.source, revision=teacher.revision, ignore=teacher.ignore, prompt=teacher.prompt,
        exported=settings.data is not None,
    )  # fmt: skip
    return release_student(encoder, name_of(teacher.source), settings)
