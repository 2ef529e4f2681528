"""From a teacher to a student's bundle, with the report of what the student is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fala import ExportError
from fala_export.backbone import Export, ExportOptions, check_folder, convert, pack
from fala_export.distillation.distil import Distillation, distil
from fala_export.distillation.survival import Task, load_task, score, survival
from fala_export.distillation.teacher import Teacher
from fala_export.distillation.texts import read_texts
from fala_export.embedding import embed
from fala_export.models.encoder import Encoder
from fala_export.parity_texts import parity_texts


@dataclass(frozen=True)
class StudentRelease:
    """What to make of a teacher.

    Attributes:
        name: In the manifest.
        teacher_name: Likewise.
        texts: Files of texts, one a line.
        settings: Of the distillation.
        work: Folder of everything that a rerun continues from.
        seed: Of everything random.
        data: File of rows, whose public ones are the real task; None measures on none.
        precision: As of ``ExportOptions``.
        min_cosine: Likewise.
    """

    name: str
    teacher_name: str
    texts: Sequence[Path]
    settings: Distillation
    work: Path
    seed: int = 0
    data: Path | None = None
    precision: str = "int8"
    min_cosine: float = 0.98


def release_student(encoder: Encoder, release: StudentRelease, out: Path) -> dict[str, Any]:
    """Distil a teacher and write the student's bundle; a rerun continues.

    Args:
        encoder: The teacher.
        release: What to make of it.
        out: The bundle; left alone when anything fails.

    Returns:
        What was written, as of ``pack``; with the student's folder, its figures on
        held-out texts, and, where there are data, how much of the teacher survives.

    Raises:
        ExportError: The settings, the texts or the folders cannot be used.
        DataError: The data cannot.
    """
    check_folder(out)
    texts = read_texts(release.texts)
    task = None if release.data is None else load_task(release.data, release.seed)
    try:
        release.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{release.work}: cannot be made: {error.strerror}") from error
    teacher = Teacher(encoder, release.work)
    student = distil(teacher, texts, release.settings, release.work, release.seed)
    report: dict[str, Any] = {"figures": student.figures}
    options = ExportOptions(
        name=release.name,
        precision=release.precision,
        min_cosine=release.min_cosine,
        max_length=min(encoder.length(None), student.encoder.length(None)),
        keep_speed=False,
        details={
            "teacher": {
                "name": release.teacher_name,
                "revision": encoder.revision,
                "digest": teacher.digest,
            },
            "distillation": {**asdict(release.settings), "seed": release.seed},
        },
    )
    small = convert(student.encoder, options, parity_texts(None))
    if task is not None:
        # Whatever the teacher loses in this precision: it is not the one that is released.
        same = replace(
            options, name=release.teacher_name, precision=small.precision, min_cosine=-1.0
        )
        large = convert(encoder, same, parity_texts(None))
        report["survival"] = _survival(task, teacher, large, small)
    return {**pack(small, out, details=report), "student": str(student.folder), **report}


def _survival(task: Task, teacher: Teacher, large: Export, small: Export) -> dict[str, Any]:
    texts = task.texts
    theirs = dict(zip(texts, teacher.embed(texts, small.max_length), strict=True))
    ours = dict(zip(texts, embed(small.backbone, texts, "embedding with the student"), strict=True))
    return survival(
        task,
        score(task, large.backbone, theirs, large.megabytes),
        score(task, small.backbone, ours, small.megabytes),
    )
