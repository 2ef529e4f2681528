"""A commented recipe for a vendor's rows."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fala import DataError, ExportError
from fala.release import Columns, Row, column_names, file_rows

_USUAL = {
    "text": ("text", "post", "comment", "tweet", "sentence", "content", "body", "message"),
    "label": ("label", "class", "target", "category", "rating", "annotation"),
    "user": ("user", "annotator", "user_id", "annotator_id", "worker", "worker_id", "author"),
    "split": ("split",),
}


def guess_columns(path: Path, columns: Columns) -> Columns:
    """Guess the columns that are not named, by the usual names.

    Args:
        path: A file of rows.
        columns: Those that the vendor names.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: A Parquet file, and pyarrow is not installed.
    """
    present = {name.casefold(): name for name in column_names(path)}
    guessed = {}
    for field, usual in _USUAL.items():
        if getattr(columns, field) is None:
            guessed[field] = next((present[name] for name in usual if name in present), None)
    return replace(columns, **guessed)


def write_recipe(
    data: Path, out: Path, columns: Columns, *, source: Path | None, name: str | None
) -> dict[str, Any]:
    """Write a recipe for rows.

    Args:
        data: The rows.
        out: The recipe.
        columns: Those that the vendor names; the others are guessed.
        source: Folder of a model, or file of word vectors; None leaves it to be filled in.
        name: The release's; None takes that of the rows' file.

    Returns:
        What was written, and what the rows are.

    Raises:
        DataError: The rows cannot be read, or not be divided.
        ExportError: The recipe exists, or cannot be written.
    """
    columns = guess_columns(data, columns)
    rows, divided = file_rows(data, columns)
    chosen = {key: value for key, value in asdict(columns).items() if value is not None}
    facts = {
        "columns": ", ".join(f"{key} = {value}" for key, value in chosen.items()),
        **_counted(rows),
        "split": divided or "the file's own",
    }
    notes = "".join(f"# {key}: {_one_line(value)}\n" for key, value in facts.items())
    table = "".join(f"{key} = {_quoted(value)}\n" for key, value in chosen.items())
    recipe = (
        f"# A release's recipe: fala-export release {_one_line(out.name)}\n"
        "# Paths count from this file's folder.\n"
        f"name = {_quoted(name or data.stem)}\n\n"
        f"# Rows; the public ones make the release.\n{notes}"
        f"data = {_quoted(_from(out, data))}\n\n"
        f"[columns]\n{table}\n{_source_table(source, out)}\n"
        "# Without [training] the model stays, and the head is fitted in closed form.\n"
        "# [training]\n# epochs = 2\n"
    )
    try:
        with out.open("x", encoding="utf-8") as stream:
            stream.write(recipe)
    except FileExistsError as error:
        raise ExportError(f"{out} exists; name another with --out") from error
    except OSError as error:
        raise ExportError(f"{out}: cannot be written: {error.strerror or error}") from error
    return {"written": str(out), **facts}


def _counted(rows: list[Row]) -> dict[str, Any]:
    labelled = [row for row in rows if row.label is not None]
    if not labelled:
        raise DataError("no row has a label; name their column with --label")
    labels = sorted({str(row.label) for row in labelled})
    return {
        "rows": len(rows),
        "public_rows": sum(row.split == "public" for row in rows),
        "users": len({row.user for row in rows if row.user is not None}),
        "labels": f"{len(labels)}: {', '.join(labels[:10])}" + (", ..." * (len(labels) > 10)),
    }


def _source_table(source: Path | None, out: Path) -> str:
    if source is None:
        return (
            "# A model's folder; or its name on the hub, with revision = its full commit.\n"
            '[backbone]\nsource = "path/to/model"\n'
        )
    kind = "backbone" if source.is_dir() else "word-vectors"
    return f"[{kind}]\nsource = {_quoted(_from(out, source))}\n"


def _from(out: Path, path: Path) -> str:
    return Path(os.path.relpath(path, out.parent)).as_posix()


def _quoted(text: str) -> str:
    """A string of TOML; JSON's escapes are TOML's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(value: object) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in str(value))
