"""A commented recipe for a vendor's rows."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fala import Bundle, DataError, ExportError
from fala.release import Columns, Row, column_names, unique_texts
from fala.release.population.annotators import LEAST_ANNOTATORS, LEAST_ROWS
from fala.release.row_files import divide, undivided_rows

_USUAL = {
    "text": ("text", "post", "comment", "tweet", "sentence", "content", "body", "message"),
    "label": ("label", "class", "target", "category", "rating", "annotation"),
    "user": ("user", "annotator", "user_id", "annotator_id", "worker", "worker_id", "author"),
    "split": ("split",),
}
# What a column of two labels is named after; the names of others begin with one of these.
_JUDGED = ("hateful", "toxic", "offensive", "abusive", "spam", "positive")
_JUDGES = ("is_", "has_")

# What makes no difference between near copies: addresses and names, and all that is no letter.
_NAMES, _NO_LETTERS = re.compile(r"https?://\S+|@\w+"), re.compile(r"[\W\d_]+")


def guess_columns(path: Path, columns: Columns) -> Columns:
    """Guess the columns that are not named, by the usual names.

    A column whose name says what texts may be (``hateful``, ``is_spam``) is that of the labels
    where it has two values and no other column is in question.

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
    columns = replace(columns, **guessed)
    if columns.label is None:
        judged = [
            name
            for key, name in present.items()
            if (key in _JUDGED or key.startswith(_JUDGES)) and _has_two(path, columns, name)
        ]
        columns = replace(columns, label=judged[0] if len(judged) == 1 else None)
    return columns


def _has_two(path: Path, columns: Columns, name: str) -> bool:
    """Whether a column has two values."""
    try:
        rows, _ = undivided_rows(path, replace(columns, label=name))
    except DataError:
        return False
    return len({row.label for row in rows if row.label is not None}) == 2


def write_recipe(
    data: Path,
    out: Path,
    columns: Columns,
    *,
    source: Path | None,
    name: str | None,
    earlier: Path | None = None,
    repository: Path | None = None,
) -> dict[str, Any]:
    """Write a recipe for rows.

    Args:
        data: The rows.
        out: The recipe.
        columns: Those that the vendor names; the others are guessed.
        source: Folder of a model, or file of word vectors; None leaves it to be filled in.
        name: The release's; None takes that of the rows' file.
        earlier: The release that devices have; without it the tables about it are comments.
        repository: Where the release is published; without it that table is a comment.

    Returns:
        What was written, and what the rows are.

    Raises:
        DataError: The rows cannot be read, or not be divided.
        ExportError: The recipe exists, or cannot be written.
        BundleError: The earlier release cannot be trusted.
    """
    columns = guess_columns(data, columns)
    rows, has_splits = undivided_rows(data, columns)
    kept, divided = (rows, "the file's own") if has_splits else divide(rows, seed=0)
    chosen = {key: value for key, value in asdict(columns).items() if value is not None}
    facts = {
        "columns": ", ".join(f"{key} = {value}" for key, value in chosen.items()),
        **_counted(rows),
        "public_rows": sum(row.split == "public" for row in kept),
        "split": divided,
    }
    if earlier is not None:
        Bundle.open(earlier)
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
        "# [training]\n# epochs = 2\n\n"
        f"{_tables(kept, out, earlier, repository)}"
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
    texts = unique_texts(row.example for row in rows)
    distinct = {_letters(text) or text for text in texts}
    return {
        "rows": len(rows),
        "texts": len(texts),
        "near_copies": len(texts) - len(distinct),
        "users": len({row.user for row in rows if row.user is not None}),
        "labels": f"{len(labels)}: {', '.join(labels[:10])}" + (", ..." * (len(labels) > 10)),
    }


def _letters(text: str) -> str:
    """A text's words, which its near copies share."""
    return _NO_LETTERS.sub(" ", _NAMES.sub("", text.casefold())).strip()


def _tables(rows: list[Row], out: Path, earlier: Path | None, repository: Path | None) -> str:
    """The tables about devices: comments where they cannot be meant."""
    busy = Counter(row.user for row in rows if row.split == "public" and row.user is not None)
    annotators = sum(count >= LEAST_ROWS for count in busy.values())
    labels = len({row.label for row in rows} - {None})
    old = "earlier.fala" if earlier is None else _from(out, earlier)
    folder = "REPO" if repository is None else _from(out, repository)
    tables = (
        (
            "A bridge lets devices with an earlier release answer at once.",
            f"[bridge]\nfrom = [{_quoted(old)}]\n",
            earlier is not None,
        ),
        (
            f"How people differ, from {annotators} public annotators of {LEAST_ROWS} rows or more "
            f"({LEAST_ANNOTATORS} are needed).",
            f"[prior]\nscales_only = {'false' if labels == 2 else 'true'}\n",
            earlier is not None and annotators >= LEAST_ANNOTATORS,
        ),
        (
            "Held-out users are played as devices; below the least gain nothing is written.",
            f"[check]\nfrom = {_quoted(old)}\nminimum_gain = 0.0\n",
            earlier is not None,
        ),
        ("fala-export key vendor.pem makes a key.", '[sign]\nkey = "vendor.pem"\n', False),
        (
            "A repository that is not there is begun, with new keys beside it.",
            f"[publish]\nrepository = {_quoted(folder)}\n",
            repository is not None,
        ),
    )
    return "\n".join(
        f"# {_one_line(about)}\n{table if active else _commented(table)}"
        for about, table, active in tables
    )


def _commented(table: str) -> str:
    return "".join(f"# {line}\n" for line in table.splitlines())


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
