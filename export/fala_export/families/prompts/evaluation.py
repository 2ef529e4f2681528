"""Write a trained model's logits of rows, for the laboratory to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fala import DataError
from fala.model.losses import label_probabilities
from fala_export.families.prompts.inputs import UNKNOWN
from fala_export.families.prompts.model import predict
from fala_export.families.prompts.settings import HARD, NONE
from fala_export.families.prompts.training import Model, new_writers
from fala_export.rows.row_files import file_rows
from fala_export.rows.user_rows import Row
from fala_export.training.metrics import measure_probabilities
from fala_export.writing import write_file


def evaluate(model: Model, data: Path, out: Path, *, embeddings: bool = False) -> dict[str, Any]:
    """Write the logits of a file's test rows.

    A writer of the training is known. Any other writer has the unknown writer's prompt, or a hard
    prompt of the texts of their train rows.

    Args:
        model: A trained model.
        data: Rows as of ``fala-replace --data``, with the model's labels; those of split ``test``
            are predicted.
        out: One JSON object a row, in the file's order: ``line`` of the data, ``user``, ``split``,
            ``label``, ``known``, ``logits`` (C numbers; for two labels only the second's), and
            ``unknown``, the logits for the unknown writer. An existing file is replaced.
        embeddings: Whether to predict train rows, too, and to write every row's ``embedding``, for
            a personal head.

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
    chosen = [row for row in rows if row.split != "public"] if embeddings else tested
    # In one call, so that rows of one text share the unknown writer's pass.
    inputs = model.inputs([*chosen, *chosen], own_texts)
    unknown = [UNKNOWN] * len(chosen)
    numbers = unknown if model.settings.kind == NONE else inputs.numbers[: len(chosen)]
    all_logits, all_states = predict(model.module, inputs, [*numbers, *unknown], "answering")
    logits, unknown_logits = all_logits[: len(chosen)], all_logits[len(chosen) :]
    states = all_states[: len(chosen)]
    is_known = [number != UNKNOWN for number in model.writers.numbers([row.user for row in chosen])]
    lines = []
    for position, row in enumerate(chosen):
        line = {
            "line": row.line,
            "user": row.user,
            "split": row.split,
            "label": row.label,
            "known": is_known[position],
            "logits": logits[position].tolist(),
            "unknown": unknown_logits[position].tolist(),
        }
        if embeddings:
            line["embedding"] = states[position].tolist()
        lines.append(json.dumps(line) + "\n")
    write_file(out, "".join(lines).encode())
    added = new_writers(own_texts, model.writers) if model.settings.kind in HARD else []
    tested_rows = [position for position, row in enumerate(chosen) if row.split == "test"]
    return {
        "answers": str(out),
        "kind": model.settings.kind,
        "rows": len(tested),
        "known": sum(is_known[position] for position in tested_rows),
        "new_writers": len(added),
        "figures": {
            name: measure_probabilities(labels, tested, label_probabilities(values[tested_rows]))
            for name, values in (("own", logits), ("unknown", unknown_logits))
        },
    }


def _read(data: Path) -> list[Row]:
    rows, _ = file_rows(data)
    if not all(isinstance(row.example, str) for row in rows):
        raise DataError(f"{data}: these rows are of matching; the model is a classifier of texts")
    return rows
