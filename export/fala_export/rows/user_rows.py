"""The rows of ``fala-replace --data``, as JSON Lines: one object on each line.

Classification::

    {"user": "u1", "split": "train", "text": "...", "label": 0}

Classification of pairs (sentence and paraphrase, question and answer)::

    {"user": "u1", "split": "train", "pair": ["...", "..."], "label": 0}

Matching (news, films)::

    {"user": "u1", "split": "test", "history": ["...", "..."], "candidate": "...", "label": 1}

- ``split`` is ``"public"`` (the vendor fits the global head to these rows), ``"train"`` (on the
  user's device) or ``"test"`` (held out, to measure with).
- ``user`` is a string. It may be null or missing in public rows only.
- ``label`` is an integer or a string, of one type in the whole file. It may be null or missing in
  train rows only, for a document without a label. For ratings it is a number, for tags a list of
  names.
- ``history`` may be an empty list: the user has opened nothing yet.
- A file has one task. Other keys are ignored, and blank lines are skipped. A byte-order mark at
  the start is allowed.

The parser is pure: it takes lines and returns rows. ``fala_export.rows.row_files`` reads files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from fala.bundle.format import MAX_LABELS
from fala.errors import DataError
from fala.examples import Example, Match, Pair, fault
from fala.model.labels import number_of
from fala.model.links import LABELS, Link
from fala_export.errors import RowError

TaskType: TypeAlias = Literal["classification", "matching"]
Split: TypeAlias = Literal["public", "train", "test"]

# The integers of an SQLite column and of a NumPy array.
_LABEL_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Row:
    """One example of one user, or of the public.

    Attributes:
        user: The user's name; None only in public rows.
        split: The row's part of the data set.
        example: A text, or a history and a candidate.
        label: As in the file, tags as a set; None only in train rows.
        line: Line number in the file, counted from 1 (0: not from a file).
    """

    user: str | None
    split: Split
    example: Example
    label: int | float | str | frozenset[str] | None
    line: int


@dataclass(frozen=True, slots=True)
class UserRows:
    """One user's rows, in the order of the file."""

    train: list[Row]
    test: list[Row]


@dataclass(frozen=True, slots=True)
class AllRows:
    """A whole data set.

    Attributes:
        task: The task of every row.
        labels: The labels or tags as strings, sorted, as numbers if all are integers; for ratings
            ``"rating"``.
        public: The rows that the vendor fits the global head to.
        users: Rows by user, in order of first appearance.
        source: The origin of the rows, in words; it says if they are synthetic.
        link: The kind of labels.
    """

    task: TaskType
    labels: tuple[str, ...]
    public: list[Row]
    users: dict[str, UserRows]
    source: str
    link: Link = LABELS


def read_rows(lines: Iterable[str | bytes]) -> list[Row]:
    """Parse the lines of one file.

    Args:
        lines: The file's lines, with or without their line ends; bytes are read as UTF-8.

    Returns:
        The rows, in order. Blank lines are skipped, but counted.

    Raises:
        RowError: For the first line that is not a row, or whose task or type of label differs from
            the rows before.
    """
    objects = ((number, json_object(number, line)) for number, line in enumerate(lines, start=1))
    return uniform_rows(row_of(number, values) for number, values in objects if values is not None)


def uniform_rows(rows: Iterable[Row]) -> list[Row]:
    """List rows, which must be of one task, and their labels of one type.

    Raises:
        RowError: For the first row that differs from those before it.
    """
    checked: list[Row] = []
    labelled: Row | None = None
    for row in rows:
        checked.append(row)
        first = checked[0]
        if _task(row) != _task(first):
            raise RowError(
                row.line,
                f"is a {_task(row)} row, but line {first.line} is a {_task(first)} row; "
                "a file is of one task",
            )
        if row.label is not None:
            labelled = labelled or row
            if type(row.label) is not type(labelled.label):
                raise RowError(
                    row.line,
                    f"label {row.label!r:.60} is not of the type of {labelled.label!r:.60} on line "
                    f"{labelled.line}; labels are all integers or all strings",
                )
    return checked


def gather_rows(rows: Iterable[Row], source: str, link: Link = LABELS) -> AllRows:
    """Group rows into public rows and each user's, and check that they are a data set.

    Args:
        rows: Rows of one task.
        source: Their origin, in words.
        link: The kind of labels of the rows.

    Raises:
        DataError: Without public rows, with fewer than two labels among them, without users, or
            with a user who has no train or no test rows.
        RowError: For a user's label that no public row has: the global head does not have it.
    """
    rows = list(rows)
    if not rows:
        raise DataError("no rows: expected one JSON object a line")
    public = [row for row in rows if row.split == "public"]
    if not public:
        raise DataError('no public rows: the global head is fitted to rows of split "public"')
    classes = {row.label for row in public if row.label is not None}
    if len(classes) < 2:
        raise DataError(
            f"all public rows have the label {public[0].label!r:.60}: "
            "a head needs two labels or more"
        )
    users: dict[str, UserRows] = {}
    for row in rows:
        if row.split == "public" or row.user is None:
            continue
        if link == LABELS and row.label is not None and row.label not in classes:
            raise RowError(row.line, f"label {row.label!r:.60} is in no public row")
        user_rows = users.setdefault(row.user, UserRows([], []))
        (user_rows.train if row.split == "train" else user_rows.test).append(row)
    if not users:
        raise DataError(
            'no users: expected rows of split "train" and "test" besides the public ones'
        )
    for user, user_rows in users.items():
        if not user_rows.train or not user_rows.test:
            missing = "test" if user_rows.train else "train"
            raise DataError(f"user {user!r:.60} has no {missing} rows; every user needs both")
    labels = ("rating",) if link.kind == "rating" else label_names(classes)
    return AllRows(_task(rows[0]), labels, public, users, source, link)


def label_names(labels: Iterable[object]) -> tuple[str, ...]:
    """The names of labels, or of sets of tags, sorted.

    Raises:
        DataError: There are more than a release can have.
    """
    sets = (label if isinstance(label, frozenset) else {label} for label in labels)
    names = in_order(map(str, set[object]().union(*sets)))
    check_count(names)
    return tuple(names)


def in_order(names: Iterable[str]) -> list[str]:
    """Labels sorted, as numbers if all are integers: 2 before 10."""
    by_text = sorted(names)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in by_text):
        return sorted(by_text, key=int)
    return by_text


def check_count(names: Sequence[str]) -> None:
    """Check that a release can have so many labels.

    Raises:
        DataError: It cannot.
    """
    if len(names) > MAX_LABELS:
        raise DataError(
            f"there are {len(names):,} labels, and a release has {MAX_LABELS:,} at most; labels "
            "are names that many rows share, and numbers of a scale are ratings"
        )


def numbers_as_classes(names: Sequence[str], source: str) -> str:
    """A remark if three or more names of classes look like numbers; else empty.

    Args:
        names: The labels.
        source: Their origin, for the error.

    Raises:
        DataError: All are numbers, and one is not whole, so they cannot be classes.
    """
    points = {name: number_of(name.replace(",", ".")) for name in names}
    numbers = {name: value for name, value in points.items() if math.isfinite(value)}
    if len(numbers) < 3:
        return ""
    low, high = min(numbers.values()), max(numbers.values())
    text = f"labels: {len(numbers)} numbers from {low:g} to {high:g}"
    option = f"--rating {low:g} {high:g} uses them as ratings"
    if word := next((name for name in names if name not in numbers), None):
        text += f" beside {word!r:.40}"
        option += f", where all are numbers ({word!r:.40} is none)"
    if comma := next((name for name in numbers if "," in name), None):
        option += f", where decimals have a point ({comma!r:.40} has a comma)"
    if not word and any(value != int(value) for value in numbers.values()):
        raise DataError(f"{source}: {text} are no names of classes; {option}")
    return f"{text} are used as classes, none of which is near another; {option}"


def _task(row: Row) -> TaskType:
    return "matching" if isinstance(row.example, Match) else "classification"


def decode(number: int, line: str | bytes) -> str:
    """A line of a file as a text.

    Raises:
        RowError: It is not UTF-8.
    """
    if isinstance(line, bytes):
        try:
            line = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RowError(
                number, f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
            ) from error
    return line.removeprefix("\ufeff") if number == 1 else line


def json_object(number: int, line: str | bytes) -> dict[str, object] | None:
    """A line's JSON object; None for a blank line.

    Raises:
        RowError: It is not a JSON object.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:  # its value is ambiguous
                raise RowError(number, f"key {_show(key)} is repeated")
        return dict(pairs)

    text = decode(number, line)
    if not text.strip():
        return None
    try:
        fields: object = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        kind = "; a file that is no .csv, .tsv or .parquet is read as JSON Lines" * (number == 1)
        message = f"not JSON at column {error.colno}: {error.msg}{kind}"
        raise RowError(number, message) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or brackets thousands deep.
        raise RowError(number, "JSON with a number too long, or nested too deep") from error
    if not isinstance(fields, dict):
        raise RowError(number, f"expected a JSON object, got {_show(fields)}")
    return fields


def row_of(number: int, fields: Mapping[str, object], link: Link = LABELS) -> Row:
    """A row from its values by field.

    Args:
        number: Its line in the file.
        fields: The values.
        link: The kind of labels.

    Raises:
        RowError: A value is missing or invalid.
    """
    split = _split(number, fields)
    return Row(
        user=_user(number, fields, split),
        split=split,
        example=_example(number, fields),
        label=_label(number, fields, split, link),
        line=number,
    )


def _split(number: int, fields: Mapping[str, object]) -> Split:
    split = fields.get("split")
    if split in get_args(Split):
        return cast(Split, split)
    value = f"got {_show(split)}" if "split" in fields else "it is missing"
    raise RowError(
        number,
        f'split must be "public", "train" or "test"; {value}. A file without a column of splits is '
        "divided when it is read",
    )


def _user(number: int, fields: Mapping[str, object], split: Split) -> str | None:
    if fields.get("user") is None:
        if split != "public":
            raise RowError(number, f"a {split} row needs a user; only public rows can lack one")
        return None
    return _text(number, "user", fields["user"])


def _example(number: int, fields: Mapping[str, object]) -> Example:
    """The example in a row's form."""
    forms = [key for key in ("text", "pair", "history", "candidate") if key in fields]
    if forms == ["text"]:
        return _text(number, "text", fields["text"])
    if forms == ["pair"]:
        texts = _texts(number, "pair", fields["pair"])
        if len(texts) != 2:
            raise RowError(number, "pair must be a list of two texts; got a list")
        try:
            return Pair(*texts)
        except DataError as error:
            raise RowError(number, str(error)) from error
    if forms == ["history", "candidate"]:
        history = _texts(number, "history", fields["history"])
        return Match(tuple(history), _text(number, "candidate", fields["candidate"]))
    if not forms:
        raise RowError(number, "has no text or pair (classification), and no history and candidate")
    if forms[0] in ("text", "pair"):
        other = "pair" if "pair" in forms[1:] else "history or candidate"
        raise RowError(number, f"has {forms[0]} as well as {other}")
    missing = "candidate" if forms == ["history"] else "history"
    raise RowError(number, f"has no {missing}; matching needs history and candidate")


def _label(
    number: int, fields: Mapping[str, object], split: Split, link: Link
) -> int | float | str | frozenset[str] | None:
    label = fields.get("label")
    if label is None:
        if split != "train":
            raise RowError(
                number,
                f"a {split} row needs a label; only train rows, which name a user, can lack one",
            )
        return None
    if link.kind == "rating":
        value = number_of(label)
        if not link.low <= value <= link.high:
            raise RowError(
                number,
                f"label must be a number from {link.low:g} to {link.high:g}; got {_show(label)}",
            )
        return value
    if link.kind == "tags":
        if not isinstance(label, list):
            raise RowError(number, f"label must be a list of tags; got {_show(label)}")
        return frozenset(_text(number, "label", tag) for tag in label)
    if isinstance(label, str):
        return _text(number, "label", label)
    # bool is a subclass of int, but true is not a class.
    if isinstance(label, int) and not isinstance(label, bool):
        if not -_LABEL_LIMIT <= label < _LABEL_LIMIT:
            raise RowError(number, "label does not fit in 64 bits")
        return label
    hint = "; other numbers are ratings" if isinstance(label, float) else ""
    raise RowError(number, f"label must be an integer or a string; got {_show(label)}{hint}")


def _texts(number: int, key: str, value: object) -> list[str]:
    if not isinstance(value, list):
        items = "two texts" if key == "pair" else "texts"
        raise RowError(number, f"{key} must be a list of {items}; got {_show(value)}")
    return [_text(number, f"{key}[{index}]", text) for index, text in enumerate(value)]


def _text(number: int, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise RowError(number, f"{key} must be a string; got {_show(value)}")
    if not value.strip():
        raise RowError(number, f"{key} is empty")
    if problem := fault(value):
        raise RowError(number, f"{key} {problem}")
    return value


def _show(value: object) -> str:
    """A value as JSON, shortened for one line of a terminal."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and not -_LABEL_LIMIT <= value < _LABEL_LIMIT:
        return "a very large number"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."
