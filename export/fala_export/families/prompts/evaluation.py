"""A trained model's answers to rows, for the laboratory to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fala import DataError
from fala.release import Row, file_rows, label_probabilities, write_atomically
from fala_export.families.prompts.inputs import UNKNOWN
from fala_export.families.prompts.model import predict
from fala_export.families.prompts.settings import HARD, NONE
from fala_export.families.prompts.training import Model, set_apart
from fala_export.training.metrics import measure_answers
from fala_export.writing import writing


def evaluate(model: Model, data: Path, out: Path, *, embeddings: bool = False) -> dict[str, Any]:
    """Write the logits of a file's test rows.

    A writer of the training is known. Any other has the unknown writer's prompt; of a hard one,
    the texts of their own train rows.

    Args:
        model: A trained one.
        data: Rows as of ``fala-replace --data``; those of split ``test`` are asked, whose labels
            are the model's.
        out: One JSON object a row, in the file's order: ``line`` of the data, ``user``, ``split``,
            ``label``, ``known``, ``logits`` (C numbers; of two labels one, the second's), and
            ``unknown``, the same for the unknown writer. Replaced if it is there.
        embeddings: Whether train rows are answered, too, and every row has its ``embedding``, for
            a personal head on top.

    Returns:
        ``rows``, ``known`` rows, and figures of the test rows: ``own`` and ``unknown``.

    Raises:
        DataError: The rows cannot be read, are of matching, or have labels of another task.
        ExportError: The output cannot be written.
    """
    rows = _read(data)
    labels = model.module.labels
    tested = [row for row in rows if row.split == "test"]
    if not tested:
        raise DataError(f"{data}: no row of split test: nothing to evaluate")
    for row in tested:
        if str(row.label) not in labels:
            raise DataError(
                f"{data}: line {row.line}: the label {row.label!r:.60} is none of the model's "
                f"({', '.join(labels)})"
            )
    own_texts: dict[str, list[str]] = {}
    for row in rows:
        if row.split == "train" and row.user is not None:
            own_texts.setdefault(row.user, []).append(str(row.example))
    asked = [row for row in rows if row.split != "public"] if embeddings else tested
    # Together: what a stranger is answered is one answer for all.
    inputs = model.inputs([*asked, *asked], own_texts)
    strangers = [UNKNOWN] * len(asked)
    numbers = strangers if model.settings.kind == NONE else inputs.numbers[: len(asked)]
    both, every = predict(model.module, inputs, [*numbers, *strangers], "answering")
    logits, alone, states = both[: len(asked)], both[len(asked) :], every[: len(asked)]
    is_known = [number != UNKNOWN for number in model.writers.numbers([row.user for row in asked])]
    lines = []
    for position, row in enumerate(asked):
        line = {
            "line": row.line,
            "user": row.user,
            "split": row.split,
            "label": row.label,
            "known": is_known[position],
            "logits": logits[position].tolist(),
            "unknown": alone[position].tolist(),
        }
        if embeddings:
            line["embedding"] = states[position].tolist()
        lines.append(json.dumps(line) + "\n")
    with writing(out):
        write_atomically(out, lambda part: part.write_text("".join(lines), encoding="utf-8"))
    new_writers = set_apart(own_texts, model.writers) if model.settings.kind in HARD else []
    tested_rows = [position for position, row in enumerate(asked) if row.split == "test"]
    return {
        "answers": str(out),
        "kind": model.settings.kind,
        "rows": len(tested),
        "known": sum(is_known[position] for position in tested_rows),
        "new_writers": len(new_writers),
        "figures": {
            name: measure_answers(labels, tested, label_probabilities(answers[tested_rows]))
            for name, answers in (("own", logits), ("unknown", alone))
        },
    }


def _read(data: Path) -> list[Row]:
    rows, _ = file_rows(data)
    if not all(isinstance(row.example, str) for row in rows):
        raise DataError(f"{data}: these rows are of matching; the model is a classifier of texts")
    return rows
