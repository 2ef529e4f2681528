"""Distil a teacher to a student's bundle, with the student's figures."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fala_export.backbone import Export, convert, pack
from fala_export.embedding import embed
from fala_export.families.distillation.evaluation import LabelledRows, load_task, score, survival
from fala_export.families.distillation.settings import StudentRelease
from fala_export.families.distillation.texts import read_texts
from fala_export.families.distillation.training import distil
from fala_export.graph.sentences import parity_texts
from fala_export.models.encoder import Encoder
from fala_export.training.backbones import TransformerLearner


def release_student(encoder: Encoder, name: str, settings: StudentRelease) -> dict[str, Any]:
    """Distil a teacher and write the student's bundle; a rerun continues.

    Args:
        encoder: The teacher.
        name: Its name.
        settings: Settings of the student; the bundle is left alone when anything fails.

    Returns:
        As of ``pack``; with the student's folder, its figures on held-out texts, and, where there
        are data, how much of the teacher survives.

    Raises:
        ExportError: The settings, the texts or the folders cannot be used.
        DataError: The data cannot be used.
    """
    skip = settings.skip_bad_rows
    texts = read_texts(settings.texts, skip_bad_rows=skip)
    task = None
    if settings.data is not None:
        task = load_task(settings.data, settings.seed, skip_bad_rows=skip)
    settings.work.mkdir(parents=True, exist_ok=True)
    student = distil(encoder, texts, settings.distillation, settings.work, settings.seed)
    report: dict[str, Any] = {"figures": student.figures}
    options = replace(
        settings.export,
        max_length=min(encoder.length(None), student.encoder.length(None)),
        details={
            "teacher": {
                "name": name,
                "revision": encoder.revision,
                "digest": TransformerLearner(encoder, encoder.longest).digest,
            },
            "distillation": {**asdict(settings.distillation), "seed": settings.seed},
        },
    )
    # What the teacher's embeddings lack, the student's do.
    imitating = replace(student.encoder, not_kept=encoder.not_kept)
    small = convert(imitating, options, parity_texts(None))
    if task is not None:
        # The teacher is not released, so its loss in this precision has no limit.
        same = replace(options, name=name, precision=small.precision, min_cosine=-1.0)
        large = convert(encoder, same, parity_texts(None))
        report["survival"] = _survival(task, large, small)
    return {**pack(small, settings.out, details=report), "student": str(student.folder), **report}


def _survival(task: LabelledRows, large: Export, small: Export) -> dict[str, Any]:
    scored = []
    for name, export in (("teacher", large), ("student", small)):
        vectors = embed(export.backbone, task.texts, f"embedding with the {name}")
        embeddings = dict(zip(task.texts, vectors, strict=True))
        scored.append(score(task, export.backbone, embeddings, export.megabytes))
    return survival(task, *scored)
