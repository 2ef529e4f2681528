"""Measure how much of the teacher's accuracy on a real task survives in the student."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import DataError
from fala.backbones import Backbone
from fala.examples import document_of, unique_texts
from fala.model.labels import HeadLabel
from fala_export.fitting.heads import fit_head
from fala_export.fitting.metrics import scores
from fala_export.rows.columns import Columns
from fala_export.training.metrics import measure_probabilities
from fala_export.training.public_rows import Division, divide, documents_of, load_public_rows

_CHANCE = 0.5  # the AUC of guessing
_DRAWS, _CONFIDENCE = 1_000, 0.95


@dataclass(frozen=True)
class LabelledRows:
    """A vendor's labelled rows, divided into those to fit a head on and those to measure on.

    Attributes:
        labels: The labels.
        division: The rows.
        texts: Their distinct texts, in the file's order, independent of the division.
    """

    labels: tuple[HeadLabel, ...]
    division: Division
    texts: list[str]


def load_task(path: Path, seed: int, *, skip_bad_rows: bool = False) -> LabelledRows:
    """Read a file of rows, and divide its public ones by user.

    Args:
        path: Rows, see ``fala_export.rows``.
        seed: Seed of the division.
        skip_bad_rows: See ``Columns``.

    Raises:
        DataError: The file cannot be read, or has too few public rows to divide.
        RowError: For the first bad row.
    """
    public = load_public_rows(path, Columns(skip_bad_rows=skip_bad_rows))
    public.needs_labels("measuring a student")
    division = divide(public.rows, seed, validation=False)
    if len({row.label for row in division.held_out}) < 2:
        raise DataError(f"{path}: all held-out rows ({len(division.held_out)}) have one label")
    return LabelledRows(public.labels, division, unique_texts([row.example for row in public.rows]))


@dataclass(frozen=True, eq=False)
class Scored:
    """A model's probabilities on a task's held-out rows.

    Attributes:
        probabilities: Shape (n, number of labels).
        figures: ``auc``, ``f1`` and ``accuracy``.
        megabytes: Of its bundle.
    """

    probabilities: NDArray[np.float64]
    figures: Mapping[str, float]
    megabytes: float


def score(
    task: LabelledRows,
    backbone: Backbone,
    embeddings: Mapping[str, NDArray[np.float32]],
    megabytes: float,
) -> Scored:
    """Fit a closed-form head on the training rows, and score it on the held-out ones.

    Args:
        task: The task.
        backbone: The backbone of the embeddings.
        embeddings: Embeddings of all texts of the task, by text.
        megabytes: Size of its bundle.
    """
    training, held_out = task.division.training, task.division.held_out
    head = fit_head(
        backbone,
        [row.example for row in training],
        [row.label for row in training],
        label_names=task.labels,
        embeddings=embeddings,
        lexical=False,  # words are the same for any backbone
    )
    inputs = head.inputs([row.example for row in held_out], embeddings)
    probabilities = head.vendor_model().probabilities(inputs)
    pooled = measure_probabilities(task.labels, held_out, probabilities)["pooled"]
    figures = {name: value for name, value in pooled.items() if value is not None}
    return Scored(probabilities, figures, megabytes)


def survival(task: LabelledRows, teacher: Scored, student: Scored) -> dict[str, Any]:
    """Compare two models on a task.

    Args:
        task: The task.
        teacher: The teacher, in the student's precision.
        student: The student.

    Returns:
        The sizes of the data, and both models' figures and megabytes. ``share`` is the student's
        part of the teacher's gain over chance (in AUC), with a 95 % bootstrap ``interval`` over
        documents, and ``share_per_megabyte``; all None where the teacher is not shown to be better
        than chance on so few documents.
    """
    division = task.division
    share = interval = None
    gain = teacher.figures["auc"] - _CHANCE
    if gain > 0 and (interval := _interval(task, teacher, student)) is not None:
        share = round((student.figures["auc"] - _CHANCE) / gain, 4)
    return {
        "held_out_by": division.by,
        "held_out_documents": len(documents_of(division.held_out)),
        "held_out_rows": len(division.held_out),
        "training_rows": len(division.training),
        "teacher": {**teacher.figures, "megabytes": teacher.megabytes},
        "student": {**student.figures, "megabytes": student.megabytes},
        "share": share,
        "interval": interval,
        "share_per_megabyte": None if share is None else round(share / student.megabytes, 4),
    }


def _interval(task: LabelledRows, teacher: Scored, student: Scored) -> list[float] | None:
    """A 95 % interval of the share, by the bootstrap over documents (Efron, 1979).

    None where the teacher is no better than chance in 2.5 % of the draws or more.
    """
    rows: dict[str, list[int]] = {}
    for position, row in enumerate(task.division.held_out):
        rows.setdefault(document_of(row.example), []).append(position)
    documents = [np.array(positions) for positions in rows.values()]
    names = {str(label): position for position, label in enumerate(task.labels)}
    truth = np.array([names[str(row.label)] for row in task.division.held_out])
    random = np.random.default_rng(0)
    shares: list[float] = []
    for _ in range(_DRAWS):
        drawn = random.integers(len(documents), size=len(documents))
        chosen = np.concatenate([documents[document] for document in drawn])
        aucs = [
            scores(truth[chosen], model.probabilities[chosen])["auc"]
            for model in (teacher, student)
        ]
        teacher_auc, student_auc = (_CHANCE if auc is None else auc for auc in aucs)
        gain = teacher_auc - _CHANCE
        shares.append((student_auc - _CHANCE) / gain if gain > 0 else np.inf)
    tail = (1 - _CONFIDENCE) / 2
    if np.isinf(shares).mean() >= tail:
        return None
    finite = np.array(shares)[np.isfinite(shares)]
    low, high = np.quantile(finite, [tail, 1 - tail])
    return [round(float(low), 4), round(float(high), 4)]
