"""How much of the teacher's accuracy on a real task survives in the student, per megabyte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala import Backbone, DataError, fit_head
from fala.release import unique_texts
from fala_export.training.figures import measure
from fala_export.training.public_rows import Division, divide, document_of, load_public_rows

_CHANCE = 0.5  # the AUC of guessing


@dataclass(frozen=True)
class Task:
    """A vendor's labelled rows, divided into those to fit a head on and those to measure on.

    Attributes:
        labels: The labels' names.
        division: The rows.
        texts: Their distinct texts, in the file's order: the same ones whatever the division.
    """

    labels: tuple[str, ...]
    division: Division
    texts: list[str]


def load_task(path: Path, seed: int) -> Task:
    """Read a file of rows, and divide its public ones by user.

    Args:
        path: JSONL, see ``fala.rows``.
        seed: Of the division.

    Raises:
        DataError: The file cannot be read, or has too few public rows to divide.
        RowError: For the first bad row.
    """
    public = load_public_rows(path)
    division = divide(public.rows, seed, validation=False)
    if len({row.label for row in division.held_out}) < 2:
        raise DataError(f"{path}: the {len(division.held_out)} held-out rows have one label only")
    return Task(public.labels, division, unique_texts([row.example for row in public.rows]))


def score(
    task: Task, backbone: Backbone, embeddings: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Fit a closed-form head on the training rows, and score it on the held-out ones.

    Args:
        task: The task.
        backbone: What made the embeddings.
        embeddings: Of all the task's texts.

    Returns:
        ``auc``, ``f1`` and ``accuracy``.
    """
    training, held_out = task.division.training, task.division.held_out
    head = fit_head(
        backbone,
        [row.example for row in training],
        [str(row.label) for row in training],
        label_names=task.labels,
        embeddings=embeddings,
        lexical=False,  # words are the same for any backbone
    )
    pooled = measure(head, held_out, embeddings)["pooled"]
    return {name: value for name, value in pooled.items() if value is not None}


def survival(
    task: Task, teacher: Mapping[str, float], student: Mapping[str, float]
) -> dict[str, Any]:
    """Compare two models on a task.

    Args:
        task: The task.
        teacher: Its scores, and its ``megabytes`` in the student's precision.
        student: Likewise.

    Returns:
        What was measured on, and both models, each with the share of the teacher's gain over
        chance (in AUC) that it has, and that share a megabyte; None where the teacher is no
        better than chance.
    """
    gain = teacher["auc"] - _CHANCE

    def shared(model: Mapping[str, float]) -> dict[str, float | None]:
        if gain <= 0:
            return {**model, "share": None, "share_per_megabyte": None}
        share = (model["auc"] - _CHANCE) / gain
        return {
            **model,
            "share": round(share, 4),
            "share_per_megabyte": round(share / model["megabytes"], 4),
        }

    division = task.division
    return {
        "held_out_by": division.by,
        "held_out_documents": len({document_of(row) for row in division.held_out}),
        "held_out_rows": len(division.held_out),
        "training_rows": len(division.training),
        "teacher": shared(teacher),
        "student": shared(student),
    }
