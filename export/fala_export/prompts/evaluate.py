"""A trained model's answers to rows, for the laboratory to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fala import DataError, ExportError, Match
from fala.vendor import Row, label_probabilities, read_rows, write_atomically
from fala_export.prompts.classifier import predict
from fala_export.prompts.settings import HARD
from fala_export.prompts.train import Model, set_apart
from fala_export.prompts.writers import UNKNOWN
from fala_export.training.figures import measure_answers


def evaluate(model: Model, data: Path, out: Path) -> dict[str, Any]:
    """Write the logits of a file's test rows.

    A writer of the training is known. Any other has the unknown writer's prompt; of a hard one,
    the texts of their own train rows.

    Args:
        model: A trained one.
        data: Rows as of ``fala-replace --data``; those of split ``test`` are asked, whose labels
            are the model's.
        out: One JSON object a test row, in the file's order: ``line`` of the data, ``user``,
            ``label``, ``known``, ``logits`` (C numbers; of two labels one, the second's), and
            ``unknown``, the same for the unknown writer. Replaced if it is there.

    Returns:
        ``rows``, ``known`` rows, and figures of both: ``own`` and ``unknown``, over all rows.

    Raises:
        DataError: The rows cannot be read, are of matching, or have labels of another task.
        ExportError: The output cannot be written.
    """
    rows = _read(data)
    asked = [row for row in rows if row.split == "test"]
    labels = model.module.labels
    if not asked:
        raise DataError(f"{data}: no row of split test: nothing to evaluate")
    for row in asked:
        if str(row.label) not in labels:
            raise DataError(
                f"{data}: line {row.line}: the label {row.label!r:.60} is none of the model's "
                f"({', '.join(labels)})"
            )
    others: dict[str, list[str]] = {}
    for row in rows:
        if row.split == "train" and row.user is not None:
            others.setdefault(row.user, []).append(str(row.example))
    inputs = model.inputs(asked, others)
    own = predict(model.module, inputs, inputs.numbers, "answering")
    alone = predict(model.module, inputs, [UNKNOWN] * len(asked), "answering as to a stranger")
    known = [number != UNKNOWN for number in model.writers.numbers([row.user for row in asked])]
    lines = [
        json.dumps(
            {
                "line": row.line,
                "user": row.user,
                "label": row.label,
                "known": is_known,
                "logits": [float(number) for number in logits],
                "unknown": [float(number) for number in stranger],
            }
        )
        + "\n"
        for row, is_known, logits, stranger in zip(asked, known, own, alone, strict=True)
    ]
    try:
        write_atomically(out, lambda part: _write(part, lines))
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return {
        "answers": str(out),
        "kind": model.settings.kind,
        "rows": len(asked),
        "known": sum(known),
        "new_writers": len(set_apart(others, model.writers)) if model.settings.kind in HARD else 0,
        "figures": {
            name: measure_answers(labels, asked, label_probabilities(answers))
            for name, answers in (("own", own), ("unknown", alone))
        },
    }


def _read(data: Path) -> list[Row]:
    try:
        with data.open("rb") as stream:
            rows = read_rows(stream)
    except OSError as error:
        raise DataError(f"{data}: cannot be read: {error.strerror or error}") from error
    if rows and isinstance(rows[0].example, Match):
        raise DataError(f"{data}: these rows are of matching; the model is a classifier")
    return rows


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(lines), encoding="utf-8")
