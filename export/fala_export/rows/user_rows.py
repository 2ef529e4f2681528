"""Define and parse the rows of ``fala-replace --data``, as JSON Lines: one object on each line.

Classification::

    {"user": "u1", "split": "train", "text": "...", "label": 0}

Classification of pairs (sentence and paraphrase, question and answer)::

    {"user": "u1", "split": "train", "pair": ["...", "..."], "label": 0}

Matching (news, films)::

    {"user": "u1", "split": "test", "history": ["...", "..."], "candidate": "...", "label": 1}

- ``split`` is ``"public"`` (the vendor fits the global head to these rows), ``"train"`` (on the
user's device) or ``"test"`` (held out, to measure with).
- ``user`` is a string or an integer. It may be null or missing in public rows only.
- ``label`` is an integer or a string, which are labels of two types; true and false are 1 and 0. It
may be null or missing in train rows only, for a document without a label. A rating is a number, and
tags are a list of integers or strings.
- ``history`` may be an empty list, because a user may not have opened anything yet.
- A file has one task. Other keys are ignored, and blank lines are skipped. A byte-order mark at the
start is allowed.

The parser is pure: it takes lines or values and returns rows. ``fala_export.rows.row_files`` reads
files of every form.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from fala.base.errors import BundleFormatError, DataError, counted, printable, shown, type_of
from fala.base.examples import Example, Match, Pair, fault
from fala.bundle.format import MAX_LABELS
from fala.model.labels import HeadLabel, in_one_type, integer_of, is_missing, number_of
from fala.model.links import LABELS, Link, Rating
from fala_export.base.errors import RowError

TaskType: TypeAlias = Literal["classification", "matching"]
Split: TypeAlias = Literal["public", "train", "test"]
#: A row's label: an integer or a name, a rating's number, or a set of tags; None if there is none.
AnyLabel: TypeAlias = int | float | str | frozenset[HeadLabel] | None

# The integers of an SQLite column and of a NumPy array.
_LABEL_LIMIT = 2**63
# A string that spells a number without a leading zero; and the strings for a boolean.
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"false": 0, "true": 1}
# Names that other programs write for a missing value.
_MISSING = {"nan", "none", "null", "n/a", "na", "#n/a", "<na>"}
#: What to write into a column of splits, for error messages.
SPLITS = (
    'Write "public" for rows that make the release, "train" and "test" for those of a user\'s '
    "device; or train, validation and test in all rows, for splits of documents; or leave the "
    "column out, and the rows are divided when they are read"
)
# The most labels that a message lists, and the characters of each, because longer ones may be
# texts.
_SHOWN, _LONGEST_SHOWN = 20, 30
# A value that an error may show: one short word, which cannot be a text.
_WORD = re.compile(r"[\w.,+-]{1,12}")


@dataclass(frozen=True, slots=True)
class Row:
    """One example of a user or of the public.

    Attributes:
        user: The user's name; None only in public rows.
        split: The row's part of the data set.
        example: A text, or a history and a candidate.
        label: The label as in the file, tags as a set; None only in train rows.
        line: Line number in the file, counted from 1; 0 if the row is not from a file.
    """

    user: str | None
    split: Split
    example: Example
    label: AnyLabel
    line: int


def label_of(value: object) -> int | str | None:
    """Return the label that a table's cell spells, or the user that any file's value spells.

    Blanks around a string are ignored. A whole number is the integer, also as a string that spells
    it: 1, 1.0, ``"1"``, ``"+1"`` and ``"1.0"`` are 1. A string with a leading zero is a name:
    ``"01"``. None, NaN and a blank string are no label. A boolean is True or False.

    Args:
        value: A string, a number, a boolean, None, or any other value from a file.

    Raises:
        DataError: The value has another type, or is a number that is not whole.
    """
    if is_missing(value):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            return text or None
        try:
            integer: int | None = int(text)
        except ValueError:  # The string has a decimal point, an exponent, or thousands of digits.
            integer = integer_of(float(text))
        return text if integer is None else integer
    if isinstance(value, bool | np.bool_):
        return bool(value)
    integer = integer_of(value)
    if integer is None:
        hint = "; if these are ratings, use --rating" if isinstance(value, float) else ""
        raise DataError(f"must be an integer or a string, not {as_json(value)}{hint}")
    return integer


def in_file_type(values: Iterable[AnyLabel], *, cells: bool) -> dict[AnyLabel, AnyLabel]:
    """Map a file's distinct labels, or sets of tags, to labels of one type.

    They become integers if all are integers or booleans, else strings. In a table of cells every
    value is a string; there True and False, in upper or lower case, are 1 and 0, unless another
    name is among the labels (true, false, unproven).

    Args:
        values: The labels.
        cells: Whether the labels come from a table of cells.
    """
    distinct = list(values)
    each = set[object]().union(*(_members(value) for value in distinct))
    names = {value for value in each if isinstance(value, str)}
    integers = not names or (cells and all(name.lower() in _BOOLEANS for name in names))

    def typed(value: object) -> HeadLabel:
        if integers:
            return _BOOLEANS[value.lower()] if isinstance(value, str) else integer_of(value) or 0
        return str(value)

    return {
        value: frozenset(map(typed, value)) if isinstance(value, frozenset) else typed(value)
        for value in distinct
        if value is not None and not isinstance(value, float)
    }


def _members(label: AnyLabel) -> Collection[object]:
    """Return the tags of a set, or a label alone."""
    return label if isinstance(label, frozenset) else {label}


def remarks_on(labels: Sequence[HeadLabel], link: Link) -> Iterator[str]:
    """Yield remarks on labels or tags that resemble one another, a missing value, or several tags.

    Args:
        labels: The labels or tags.
        link: The kind of labels.
    """
    names = [str(label) for label in labels]
    spellings: dict[str, list[str]] = {}
    for name in names:
        key = "".join(unicodedata.normalize("NFKC", name).casefold().split())
        spellings.setdefault(key.lstrip("0") if key.isdecimal() else key, []).append(name)
    if groups := [shown_labels(group) for group in spellings.values() if len(group) > 1]:
        if len(names) > _SHOWN:
            groups = [f"{len(groups)} pairs or more"]
        yield (
            "labels that differ only by case, blanks or leading zeros are different labels: "
            f"{printable('; '.join(groups))}"
        )
    if missing := [name for name in names if name.lower() in _MISSING]:
        yield f"{shown_labels(missing)} is a label here; leave a cell empty if it has no label"
    if link.kind == "tags" and any(re.search("[,;]", name) for name in names):
        yield 'a tag contains a comma or a semicolon, but tags in one cell are separated by "|"'


def read_rows(lines: Iterable[str | bytes]) -> list[Row]:
    """Parse the lines of one file.

    Args:
        lines: The file's lines, with or without line ends; bytes are decoded as UTF-8.

    Returns:
        The rows, in order. Blank lines are skipped, but counted.

    Raises:
        RowError: A line is not a row, or its task differs from the task of the rows before.
    """
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if (values := json_object(number, decode(number, line))) is not None:
            rows.append(row_of(number, values))
            check_task(rows[-1], rows[0])
    typed = in_file_type({row.label for row in rows}, cells=False)
    return [replace(row, label=typed.get(row.label, row.label)) for row in rows]


def check_task(row: Row, first: Row) -> None:
    """Check that a row has the same task as the first row of its file.

    Raises:
        RowError: The row has another task.
    """
    if task_of(row) != task_of(first):
        raise RowError(
            row.line,
            f"is a {task_of(row)} row, but line {first.line} is a {task_of(first)} row; a file "
            "must have one task",
        )


def label_names(labels: Iterable[object]) -> tuple[HeadLabel, ...]:
    """Return the distinct labels, or the tags of sets, sorted; see ``distinct_labels``.

    Raises:
        DataError: There are more labels than a release can have.
    """
    names = distinct_labels(labels)
    check_count(names)
    return tuple(names)


def distinct_labels(labels: Iterable[object]) -> list[HeadLabel]:
    """Return the distinct labels or tags, sorted: integers, or strings if one is a string."""
    sets = (label if isinstance(label, frozenset) else {label} for label in labels)
    return in_order(in_one_type(set[object]().union(*sets)))


def shown_labels(names: Sequence[HeadLabel]) -> str:
    """Show labels in a message: only the number if many, and only the length of long ones."""
    if len(names) > _SHOWN:
        return f"{len(names):,} labels"
    texts = map(str, names)
    return ", ".join(text if len(text) <= _LONGEST_SHOWN else shown(text) for text in texts)


def in_order(names: Iterable[HeadLabel]) -> list[HeadLabel]:
    """Sort distinct labels, as numbers if all are integers or spell one: 2 comes before 10."""
    by_text = sorted(set(names), key=str)
    if all(re.fullmatch(r"-?[0-9]{1,19}", str(name)) for name in by_text):
        return sorted(by_text, key=int)
    return by_text


def check_count(names: Sequence[HeadLabel]) -> None:
    """Check that the number of labels is one that a release can have.

    Raises:
        DataError: There are too many labels.
    """
    if len(names) > MAX_LABELS:
        raise DataError(
            f"there are {len(names):,} labels, but a release has at most {MAX_LABELS:,}; a label "
            "is a name that many rows share, and numbers on a scale are ratings"
        )


def numbers_as_classes(labels: Sequence[HeadLabel], source: str) -> str:
    """Return a remark if at least three classes are numbers or look like numbers, else "".

    Args:
        labels: The labels.
        source: The origin of the labels, for error messages.

    Raises:
        DataError: All labels are numbers, and one is not whole, so they cannot be classes.
    """
    names = [str(label) for label in labels]
    points = {name: number_of(name.replace(",", ".")) for name in names}
    numbers = {name: value for name, value in points.items() if math.isfinite(value)}
    whole = len(numbers) < len(names) or all(value.is_integer() for value in numbers.values())
    if not numbers or (whole and len(numbers) < 3):
        return ""
    low, high = min(numbers.values()), max(numbers.values())
    text = f"labels: {len(numbers)} numbers from {low:g} to {high:g}"
    option = f"--rating {low:g} {high:g} uses them as ratings"
    if word := next((name for name in names if name not in numbers), None):
        text += f" as well as {shown_labels([word])!r}"
        option += f", if all are numbers ({shown_labels([word])!r} is not)"
    if comma := next((name for name in numbers if "," in name), None):
        option += f", if decimals have a point ({comma!r:.40} has a comma)"
    if not whole:
        raise DataError(f"{source}: {text} cannot be names of classes; {option}")
    return f"{text} are used as classes, and no class is nearer to one than to another; {option}"


def rating_of(low: float, high: float) -> Rating:
    """Return a rating of a range whose noise is unknown; the default is the range's width.

    Raises:
        BundleFormatError: The ends are not valid numbers.
    """
    try:
        return Rating(low, high, high - low)
    except TypeError as error:
        raise BundleFormatError("a rating's range must be two numbers") from error


def task_of(row: Row) -> TaskType:
    """Return the task of a row."""
    return "matching" if isinstance(row.example, Match) else "classification"


def decode(number: int, line: str | bytes) -> str:
    """Decode a line of a file.

    Raises:
        RowError: The line is not UTF-8.
    """
    if isinstance(line, bytes):
        try:
            line = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RowError(
                number, f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
            ) from error
    return line.removeprefix("\ufeff") if number == 1 else line


def json_object(number: int, line: str) -> dict[str, object] | None:
    """Parse a line's JSON object; return None for a blank line.

    Raises:
        RowError: The line is not a JSON object.
    """
    if not (text := line.rstrip()):
        return None
    fields, _ = json_value(number, text)
    if not isinstance(fields, dict):
        raise RowError(number, f"must be a JSON object, not {_kind_of(fields)}")
    return fields


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object, and reject repeated keys, because their value would be ambiguous."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise RowError(0, f"key {as_json(key)} is repeated")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def json_value(number: int, text: str, position: int | None = None) -> tuple[object, int]:
    """Parse a JSON value in a text, and return it with the position where it ends.

    Args:
        number: The value's line in the file.
        text: The text.
        position: Where the value begins; if None, the whole text is the value.

    Raises:
        RowError: The text is not JSON, or a key is repeated.
    """
    try:
        if position is None:
            return _DECODER.decode(text), len(text)
        return _DECODER.raw_decode(text, position)
    except RowError as error:
        raise RowError(number, error.reason) from error
    except json.JSONDecodeError as error:
        line = number + text.count("\n", position or 0, error.pos)
        raise RowError(line, f"is not JSON at column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        # The text has a number of thousands of digits, or brackets thousands deep.
        raise RowError(
            number, "JSON has a number that is too long, or is nested too deeply"
        ) from error


def row_of(number: int, fields: Mapping[str, object], link: Link = LABELS) -> Row:
    """Make a row from its values by field.

    Args:
        number: The line of the row in the file.
        fields: The values, by field.
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
    value = f"got {as_json(split)}" if "split" in fields else "it is missing"
    raise RowError(number, f'split must be "public", "train" or "test"; {value}. {SPLITS}')


def _user(number: int, fields: Mapping[str, object], split: Split) -> str | None:
    if is_missing(fields.get("user")):
        if split != "public":
            raise RowError(number, f"a {split} row needs a user; only public rows can lack one")
        return None
    user = _named(number, "user", fields["user"])
    return user if isinstance(user, str) else str(user)


def _example(number: int, fields: Mapping[str, object]) -> Example:
    """Return the example that a row's fields describe."""
    forms = [key for key in ("text", "pair", "history", "candidate") if key in fields]
    if forms == ["text"]:
        return _text(number, "text", fields["text"])
    if forms == ["pair"]:
        texts = _texts(number, "pair", fields["pair"])
        if len(texts) != 2:
            raise RowError(number, "pair must be a list of two texts, not a list of another length")
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


def _label(number: int, fields: Mapping[str, object], split: Split, link: Link) -> AnyLabel:
    label = fields.get("label")
    if is_missing(label):
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
                f"label must be a number from {link.low:g} to {link.high:g}, not {as_json(label)}",
            )
        return value
    if link.kind == "tags" and not isinstance(label, list):
        raise RowError(number, f"label must be a list of tags, not {as_json(label)}")
    tags = label if isinstance(label, list) and link.kind == "tags" else [label]
    names = [_label_of(number, tag) for tag in tags]
    if any(isinstance(name, int) and not -_LABEL_LIMIT <= name < _LABEL_LIMIT for name in names):
        raise RowError(number, "label does not fit in 64 bits")
    return frozenset(names) if link.kind == "tags" else names[0]


def _label_of(number: int, value: object) -> HeadLabel:
    """Return a label or tag; a string stays a string, even if it spells an integer."""
    if isinstance(value, str):
        return _text(number, "label", value.strip())
    return _named(number, "label", value)


def _named(number: int, key: str, value: object) -> int | str:
    """Return a user, or a label that is not a text."""
    try:
        name = label_of(value)
    except DataError as error:
        raise RowError(number, f"{key} {error}") from error
    if name is None or isinstance(name, str):
        return _text(number, key, name or "")
    return name


def _texts(number: int, key: str, value: object) -> list[str]:
    if not isinstance(value, list):
        items = "two texts" if key == "pair" else "texts"
        raise RowError(number, f"{key} must be a list of {items}, not {_kind_of(value)}")
    return [_text(number, f"{key}[{index}]", text) for index, text in enumerate(value)]


def _text(number: int, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise RowError(number, f"{key} must be a string, not {_kind_of(value)}")
    if not value.strip():
        raise RowError(number, f"{key} is empty")
    if problem := fault(value):
        raise RowError(number, f"{key} {problem}")
    return value


def as_json(value: object) -> str:
    """Show a value as JSON in an error; for a string that may be a text of the file, its length."""
    if isinstance(value, str) and not _WORD.fullmatch(value):
        return f"a text of {counted(len(value), 'character')}"
    if isinstance(value, str | float | bool | None):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < _LABEL_LIMIT else "a very large number"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return type_of(value)


def _kind_of(value: object) -> str:
    """Name the kind of a value that should have been a text, or should not be one."""
    return "a text" if isinstance(value, str) else as_json(value)
