"""Find the columns that hold a row's fields: by the given names, else by usual names.

Every command that reads rows guesses in the same way and prints the columns that it uses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

from fala.base.errors import DataError
from fala_export.rows.user_rows import label_of

#: Fields of a row that have one column each.
FIELDS = ("text", "label", "user", "split", "history", "candidate")

#: Names of columns that are ratings if they hold numbers.
RATINGS = ("rating", "stars", "score", "grade", "points")
# Usual names of each field's column, the most usual first.
_USUAL = {
    "text": (
        "text", "post", "comment", "tweet", "sentence", "content", "body", "message", "review",
    ),
    "label": ("label", "class", "target", "category", "annotation", *RATINGS, "accept"),
    "user": (
        "user", "annotator", "user_id", "annotator_id", "worker", "worker_id", "author",
        "reviewer", "rater", "_annotator_id",
    ),
    "split": ("split",),
}  # fmt: skip
# Usual names of a column with two labels, and prefixes of others.
_JUDGED = ("hateful", "toxic", "offensive", "abusive", "spam", "positive")
_JUDGES = ("is_", "has_")
# Columns of rows whose example is not a single text.
_OTHER_FORMS = {"pair", "history", "candidate"}
# Longer column names may be texts.
_LONGEST_NAME = 40


#: A column's name, as an option; if None, the column is guessed.
Column: TypeAlias = Annotated[str | None, "COLUMN"]


@dataclass(frozen=True)
class Columns:
    """The names of the columns with which a file's rows are read.

    If a name is None, the column with the field's own name is used, or, if there is none, a column
    with a usual name. Whitespace in a column's name is normalized by ``column_name``.

    Attributes:
        text: The column of the document's text.
        label: The column of the document's label.
        user: The column of the user who gave the label.
        split: The column that contains ``"public"``, ``"train"`` or ``"test"``.
        history: The column of the texts that a matcher's user has opened before, as a JSON list.
        candidate: The column of the candidate's text, for a matcher.
        labels: The columns of tags, separated by commas; a row has the tags whose column is 1, and
            not those whose column is 0 or empty.
        skip_bad_rows: Leave out rows that cannot be read, and print their number and lines.

    Raises:
        DataError: One column is named for two fields.
    """

    text: Column = None
    label: Column = None
    user: Column = None
    split: Column = None
    history: Column = None
    candidate: Column = None
    labels: Column = None
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        for field in FIELDS:
            if (name := getattr(self, field)) is not None:
                object.__setattr__(self, field, column_name(name))
        columns = self.by_field
        if self.tags:
            del columns["label"]
        field_of: dict[str, str] = {}
        for field, column in [*columns.items(), *(("labels", tag) for tag in self.tags)]:
            if column in field_of:
                raise DataError(
                    f"the column {column!r:.60} is for {field_of[column]} and for {field}; name "
                    "another for one of them"
                )
            field_of[column] = field

    @property
    def tags(self) -> list[str]:
        """The columns of tags; empty if one column has all tags."""
        return [] if self.labels is None else [*map(column_name, self.labels.split(","))]

    @property
    def by_field(self) -> dict[str, str]:
        """The column of each field; an unnamed column has its field's name."""
        return {field: getattr(self, field) or field for field in FIELDS}

    def renamed(self) -> dict[str, str]:
        """Return the columns whose name differs from their field's, by field."""
        return {field: column for field, column in self.by_field.items() if column != field}

    @property
    def described(self) -> str:
        """The named columns, in words."""
        named = {field: getattr(self, field) for field in (*FIELDS, "labels")}
        return ", ".join(f"{field} = {column}" for field, column in named.items() if column)

    @property
    def expected(self) -> set[str]:
        """The lower-case names by which a table's header is recognized."""
        names = {*self.by_field.values(), *self.tags, *_OTHER_FORMS, *_JUDGED}
        return {name.casefold() for name in names.union(*_USUAL.values())}


@lru_cache(1024)  # Each row of a JSON file has the names.
def column_name(name: str) -> str:
    """Return a column's name stripped, with each run of whitespace replaced by one blank."""
    return " ".join(name.split())


def guess_columns(columns: Columns, present: Sequence[str], *, exclusive: bool) -> Columns:
    """Fill in the unnamed columns: the field's own name, else the first usual name.

    A column that is named after a property of texts (``hateful``, ``is_spam``) is used for the
    labels if it is the only such column. It must then have two values; see ``is_judged``.

    Args:
        columns: The columns that the caller named.
        present: The names of the file's columns.
        exclusive: Whether labels exclude one another, so that they may have a column of two values.

    Returns:
        The columns; None for each column that the file does not have.
    """
    taken = {*columns.renamed().values(), *columns.tags}
    free = [name for name in present if name not in taken]
    usual_names = dict(_USUAL)
    if columns.tags:
        del usual_names["label"]
    if _OTHER_FORMS.intersection(free) or columns.candidate:
        del usual_names["text"]
    by_key = {name.casefold(): name for name in reversed(free)}
    guessed: dict[str, Any] = {}
    for field, usual in usual_names.items():
        if getattr(columns, field) is None:
            own = field if field in free else None
            guessed[field] = own or next((by_key[name] for name in usual if name in by_key), None)
    judged = [name for name in free if is_judged(name)]
    if exclusive and guessed.get("label", "") is None and len(judged) == 1:
        (guessed["label"],) = judged
    return replace(columns, **guessed)


def is_judged(name: str) -> bool:
    """Return whether a column is named after a property of texts, such as ``is_spam``."""
    return name.casefold() in _JUDGED or name.casefold().startswith(_JUDGES)


def check_header(name: str, present: Sequence[str], columns: Columns) -> None:
    """Check that a table has the named columns and a column of texts.

    Args:
        name: The file's name, for error messages.
        present: The names of the table's columns.
        columns: The columns of fields.

    Raises:
        DataError: The table lacks a column, has one twice, or has no header.
    """
    missing = [column for column in columns.renamed().values() if column not in present]
    names = columns.by_field
    if not {names["text"], names["candidate"], "pair"} & set(present):
        missing = missing or [names["text"]]
    elif columns.tags:
        missing = missing or [tag for tag in columns.tags if tag not in present]
    elif names["label"] not in present:
        missing = missing or [names["label"]]
    used = [*columns.tags, *names.values()]
    if twice := [column for column in used if present.count(column) > 1]:
        raise DataError(
            f"{name}: several columns are named {twice[0]!r:.60}; rename all but one of them"
        )
    if missing:
        raise no_column(name, missing[0], present)


def check_found(
    name: str, present: Sequence[str], columns: Columns, found: Mapping[str, bool]
) -> None:
    """Check that some row had a value in each named column and in the label column.

    Args:
        name: The file's name, for error messages.
        present: The names of the columns; if each row names its own, those of the first rows.
        columns: The columns of fields.
        found: Whether any row had a value, by field.

    Raises:
        DataError: No row had a value, and there is no such column.
    """
    for field, column in columns.by_field.items():
        is_needed = getattr(columns, field) or (field == "label" and not columns.tags)
        if is_needed and not found.get(field, True) and column not in present:
            raise no_column(name, column, present)


def no_column(name: str, missing: str, present: Collection[str]) -> DataError:
    """Return the error for a table that lacks a column, with the names of the columns it has.

    Args:
        name: The file's name.
        missing: The missing column.
        present: The names of the table's columns.
    """
    if {"annotations", "data"} <= {*present}:
        return DataError(
            f"{name}: no column {missing!r:.60}, and its rows look like Label Studio's full JSON; "
            "export them as JSON-MIN or CSV"
        )
    if any(len(column) > _LONGEST_NAME or _is_number(column) for column in present):
        return DataError(
            f"{name}: no column {missing!r:.60}, and its first line looks like a row of texts; "
            "add a first line with the names of the columns"
        )
    words = [column for column in present if not any(map(str.isspace, column))]
    others = len(present) - len(words)  # A name with blanks may be a text.
    listed = ", ".join([*words, *[f"{others} with blanks"] * bool(others)])
    return DataError(
        f"{name}: no column {missing!r:.60}; its columns are {listed[:300]}; "
        "name those of texts, labels and users with --text, --label and --user"
    )


def _is_number(name: str) -> bool:
    return isinstance(label_of(name), int)
