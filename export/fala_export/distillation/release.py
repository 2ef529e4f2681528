"""From a teacher to a student's bundle, with the report of what the student is worth."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from fala import Backbone, Bundle, write_bundle
from fala.errors import ExportError
from fala_export.backbone import ExportOptions, export_encoder
from fala_export.distillation.distil import Distillation, distil
from fala_export.distillation.survival import Task, load_task, score, survival
from fala_export.distillation.teacher import Teacher
from fala_export.distillation.texts import read_texts
from fala_export.encoder import Encoder

_LONGEST = 128  # tokens of a text that the device reads, where teacher and student can
_CHUNK = 256  # texts between two moves of the progress bar
_MEGABYTE = 1_000_000


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
        precision: One of ``PRECISIONS``.
    """

    name: str
    teacher_name: str
    texts: Sequence[Path]
    settings: Distillation
    work: Path
    seed: int = 0
    data: Path | None = None
    precision: str = "int8"


def release_student(encoder: Encoder, release: StudentRelease, out: Path) -> dict[str, Any]:
    """Distil a teacher and write the student's bundle; a rerun continues.

    Args:
        encoder: The teacher.
        release: What to make of it.
        out: The bundle; left alone when anything fails.

    Returns:
        What was written, as of ``export_encoder``; with the student's folder, its figures on
        held-out texts, and, where there are data, how much of the teacher survives.

    Raises:
        ExportError: The settings, the texts or the folders cannot be used.
        DataError: The data cannot.
    """
    if not out.parent.is_dir():
        raise ExportError(f"{out}: its folder does not exist")
    texts = read_texts(release.texts)
    task = None if release.data is None else load_task(release.data, release.seed)
    try:
        release.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{release.work}: cannot be made: {error.strerror}") from error
    teacher = Teacher(encoder, release.work)
    student = distil(teacher, texts, release.settings, release.work, release.seed)
    report: dict[str, Any] = {"figures": student.figures}
    with tempfile.TemporaryDirectory(prefix="fala-") as folder:
        options = ExportOptions(
            name=release.name,
            precision=release.precision,
            max_length=min(_LONGEST, encoder.longest, student.encoder.longest),
            details={
                "teacher": {
                    "name": release.teacher_name,
                    "revision": encoder.revision,
                    "digest": teacher.digest,
                },
                "distillation": {**asdict(release.settings), "seed": release.seed},
            },
        )
        summary = export_encoder(student.encoder, Path(folder) / "student.fala", options)
        bundle = Bundle.open(Path(folder) / "student.fala")
        if task is not None:
            large = Path(folder) / "teacher.fala"
            export_encoder(encoder, large, replace(options, name=release.teacher_name))
            report["survival"] = _survival(task, teacher, Bundle.open(large), bundle)
        manifest = replace(bundle.manifest, details={**bundle.manifest.details, **report})
        files = {name: bundle.read(name) for name in manifest.files}
    write_bundle(out, manifest, files)
    return {**summary, "bundle": str(out), "student": str(student.folder), **report}


def _survival(task: Task, teacher: Teacher, large: Bundle, small: Bundle) -> dict[str, Any]:
    texts = task.texts
    length = small.manifest.max_length or _LONGEST
    theirs = dict(zip(texts, teacher.embed(texts, length), strict=True))
    backbone = small.backbone()
    ours = dict(zip(texts, _embed(backbone, texts), strict=True))
    return survival(
        task,
        {**score(task, large.backbone(), theirs), "megabytes": _megabytes(large)},
        {**score(task, backbone, ours), "megabytes": _megabytes(small)},
    )


def _embed(backbone: Backbone, texts: Sequence[str]) -> NDArray[np.float32]:
    chunks = [texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK)]
    with click.progressbar(
        chunks, label="student: texts", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        return np.concatenate([backbone.encode(list(chunk)) for chunk in bar])


def _megabytes(bundle: Bundle) -> float:
    return round(bundle.path.stat().st_size / _MEGABYTE, 2)
