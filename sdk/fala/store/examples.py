"""The table of a task's examples."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fala.base.errors import DataError
from fala.base.examples import MATCHING, Example, Match, as_text, texts_of, unique_texts
from fala.model.labels import OwnLabel
from fala.store.columns import (
    adapter_named,
    change_count,
    number,
    optional_number,
    optional_text,
    rows_in,
    text,
    whole,
)
from fala.store.database import Database
from fala.store.encryption import Codec
from fala.store.texts import LARGEST_ID, Texts

#: The columns that ``decode_example`` takes, in this order.
EXAMPLE_COLUMNS = "id, document, history, label, added, labelled, adapter"

#: Reads what ``decode_earlier_label`` takes.
EARLIER_LABELS = (
    "SELECT example, since, until, earlier_labels.label, document, history FROM earlier_labels"
    " JOIN examples ON id = example"
)

# The plus makes SQLite read the table in order, without an index.
_EXAMPLES = f"SELECT {EXAMPLE_COLUMNS} FROM examples WHERE +adapter = ?"
_IDS = "SELECT id FROM examples WHERE adapter = ?"
_ID = f"{_IDS} AND document = ? AND history = ?"


@dataclass(frozen=True, eq=False)
class Remembered:
    """What was stored.

    Attributes:
        ids: The examples' ids.
        new_texts: The names of texts that the store did not have.
    """

    ids: list[int]
    new_texts: Collection[str]


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example that a device keeps.

    Attributes:
        id: Its number in the store.
        example: A text, or a ``Match``; None on a device that keeps no texts.
        label: Its label, an integer or a string as those of ``Device.labels``; of tags a frozenset
            of them, of a rating a number. None without one.
        added: When it was first stored, in seconds since 1970 (UTC).
        labelled: When its label was stored; None without one.
        adapter: Its task, by the adapter; empty for the device's own.
    """

    id: int
    example: Example | None
    label: OwnLabel | None
    added: float
    labelled: float | None = None
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """An example as the store has it, which does not know the labels of its head.

    Attributes:
        id: See ``StoredExample``.
        example: See ``StoredExample``.
        label: The text of its label; see ``Link.as_stored``.
        added: See ``StoredExample``.
        labelled: See ``StoredExample``.
        adapter: See ``StoredExample``.
    """

    id: int
    example: Example | None
    label: str | None
    added: float
    labelled: float | None = None
    adapter: str = ""

    @property
    def stored(self) -> Example:
        """The example as stored: with names for texts where texts are not kept."""
        if self.example is None:
            raise DataError(f"the texts of example {self.id} are not kept")
        return self.example


class Examples:
    """A task's examples and labels.

    Args:
        database: The store's.
        texts: Its texts.
        adapter: The task's; empty for the device's own.

    Attributes:
        task: The examples' kind, ``"classification"`` or ``"matching"``; None until the task's
            model is opened. Rows of the other kind are damaged.
    """

    def __init__(self, database: Database, texts: Texts, adapter: str) -> None:
        self._db, self._texts, self._adapter = database, texts, adapter
        self.task: str | None = None

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> Remembered:
        """Store examples; a label replaces an earlier one, None keeps it. In a transaction."""
        now = time.time()
        with self._db.rows("its examples are damaged") as db:
            data, last, last_text = self._count_change(db)
            texts, new_texts = self._texts.add(unique_texts(examples), last_text)
            keys = [columns_of_example(example, texts) for example in examples]
            query = (
                f"SELECT {EXAMPLE_COLUMNS}, coalesce(labelled_data, 0) FROM examples"
                " WHERE adapter = ? AND document"
            )
            documents = list({document for document, _ in keys} - {*new_texts.values()})
            before = {(row[1], row[2]): row for row in rows_in(db, query, documents, self._adapter)}
            given: dict[tuple[int, str], str | None] = {}  # the last label of each counts
            for key, label in zip(keys, labels, strict=True):
                given[key] = given.get(key) if label is None else label
            new = [key for key in given if key not in before]
            ids = {key: row[0] for key, row in before.items()}
            ids |= {key: last + 1 + position for position, key in enumerate(new)}
            if last >= LARGEST_ID - len(new):
                raise ValueError("an example has an id that none can have")
            db.executemany(
                "INSERT INTO examples (id, document, history, label, added, labelled, adapter,"
                " added_data, labelled_data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self._new_row(ids[key], key, given[key], now, data) for key in new),
            )
            changed = [key for key in before if given.get(key) is not None]
            for key in changed:
                self._relabel(db, before[key], str(given[key]), now, data)
            if changed:
                prune_labels(db, self._adapter)
        return Remembered([ids[key] for key in keys], new_texts.keys())

    def _new_row(
        self, row: int, key: tuple[int, str], label: str | None, now: float, data: int
    ) -> tuple[object, ...]:
        """The columns of a new example."""
        if label is None:
            return (row, *key, None, now, None, self._adapter, data, None)
        encoded = self._db.codec.encode_text(label, *label_context(row, *key, now, self._adapter))
        return (row, *key, encoded, now, now, self._adapter, data, data)

    def _relabel(
        self, db: sqlite3.Connection, before: Sequence[Any], label: str, now: float, data: int
    ) -> None:
        """Write an example's label; keep the earlier one as long as a model needs it."""
        codec = self._db.codec
        *row, since = before
        identity, document, history, *_ = row
        earlier = None
        with contextlib.suppress(ValueError):  # a damaged one cannot be kept
            earlier = decode_label(codec, row)
        if earlier is not None and earlier != label:
            context = ("earlier_labels", identity, since, "label", document, history)
            db.execute(
                "INSERT OR REPLACE INTO earlier_labels VALUES (?, ?, ?, ?)",
                (identity, since, data, codec.encode_text(earlier, *context)),
            )
        if earlier != label:
            since = data
        encoded = codec.encode_text(
            label, *label_context(identity, document, history, now, self._adapter)
        )
        db.execute(
            "UPDATE examples SET label = ?, labelled = ?, labelled_data = ? WHERE id = ?",
            (encoded, now, since, identity),
        )

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples of the task with everything computed from them. In a transaction.

        A text is deleted when no task has an example of it any more.

        Returns:
            The number of deleted examples.
        """
        with self._db.rows("its examples are damaged") as db:
            # Other numbers are no ids in SQLite.
            requested = {row for row in ids if -(2**63) <= row < 2**63}
            stored = {row for (row,) in db.execute(_IDS, (self._adapter,))}
            rows = [(row,) for row in requested & stored]
            db.executemany("DELETE FROM logits WHERE example = ?", rows)
            db.executemany("DELETE FROM earlier_labels WHERE example = ?", rows)
            db.executemany("DELETE FROM examples WHERE id = ?", rows)
            used = {row for (row,) in db.execute("SELECT document FROM examples")}
            for (history,) in db.execute("SELECT history FROM examples WHERE history <> ''"):
                used.update(decode_history(history))
            unused = [(row,) for (row,) in db.execute("SELECT id FROM texts") if row not in used]
            db.executemany("DELETE FROM embeddings WHERE text = ?", unused)
            db.executemany("DELETE FROM texts WHERE id = ?", unused)
            self._db.note_deletion()
            self._count_change(db)
        return len(rows)

    def unlabel(self, ids: Iterable[int]) -> int:
        """Delete the labels of examples, as if they never had one. In a transaction.

        Returns:
            The number of deleted labels.
        """
        with self._db.rows("its examples are damaged") as db:
            rows = [(row,) for row in ids]
            db.executemany("DELETE FROM earlier_labels WHERE example = ?", rows)
            changed = db.executemany(
                "UPDATE examples SET label = NULL, labelled = NULL, labelled_data = NULL"
                " WHERE id = ? AND label IS NOT NULL",
                rows,
            )
            self._db.note_deletion()
            self._count_change(db)
        return changed.rowcount

    def all(self, ids: Iterable[int] | None = None) -> list[ExampleRow]:
        """Examples, in the order in which they were added.

        Args:
            ids: Their ids; None for all.
        """
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            if ids is None:
                texts = self._texts.by_id()
                rows = db.execute(f"{_EXAMPLES} ORDER BY id", (self._adapter,)).fetchall()
                return self._examples_of(rows, texts)
            return self._examples_of(
                sorted(rows_in(db, f"{_EXAMPLES} AND id", [*set(ids)], self._adapter))
            )

    def _examples_of(
        self, rows: Sequence[tuple[object, ...]], texts: Mapping[int, object] | None = None
    ) -> list[ExampleRow]:
        """The examples of some rows.

        Args:
            rows: The rows; see ``EXAMPLE_COLUMNS``.
            texts: All texts, by id; None reads those of the rows.
        """
        if texts is None:
            used = {whole(text) for row in rows for text in (row[1], *decode_history(row[2]))}
            texts = self._texts.by_id([*used])
        codec = self._db.codec
        if codec.encrypted:
            rows = [(*row[:3], decode_label(codec, row), *row[4:]) for row in rows]
        return [decode_example(row, texts, self.task) for row in rows]

    def since(self, data: int) -> list[ExampleRow]:
        """Examples that were added, or whose labels changed, after a count of data changes."""
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            # A label comes with its example or after it. Each part reads the index alone.
            changed = (
                f"{_IDS} AND labelled_data > ? UNION ALL"
                f" {_IDS} AND labelled_data IS NULL AND added_data > ?"
            )
            ids = [row for (row,) in db.execute(changed, (self._adapter, data) * 2)]
            return self.all(ids)

    def at(self, data: float, present: Sequence[ExampleRow]) -> list[ExampleRow]:
        """Examples with their labels as they were at a count of data changes.

        Args:
            data: The task's count; infinity returns the present state.
            present: All examples as they are now.
        """
        if data == math.inf:
            return list(present)
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            added = {row for row, count in self._added(db) if count <= data}
            query = f"{_IDS} AND labelled_data > ?"
            later = {row for (row,) in db.execute(query, (self._adapter, data))}
            rows = db.execute(f"{EARLIER_LABELS} WHERE since <= ? AND ? < until", (data, data))
            labels = {row[0]: decode_earlier_label(self._db.codec, row) for row in rows}
            return [
                replace(row, label=labels.get(row.id)) if row.id in later else row
                for row in present
                if row.id in added
            ]

    def first_added(self, ids: Collection[int]) -> int | None:
        """The count of data changes when the first of some examples was added.

        None if none of them is an example of the task.
        """
        with self._db.rows("its examples are damaged") as db:
            return min((count for row, count in self._added(db) if row in ids), default=None)

    def first_labelled(self, ids: Collection[int]) -> int | None:
        """The count of data changes when the first of some examples had a label; None without.

        As far as labels are kept that some slot's model was fitted to.
        """
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            query = "SELECT id, labelled_data FROM examples WHERE label IS NOT NULL"
            counts = [change_count(count) for row, count in db.execute(query) if row in ids]
            query = "SELECT example, since FROM earlier_labels"
            counts += [change_count(count) for row, count in db.execute(query) if row in ids]
        return min(counts, default=None)

    def ids(self, examples: Sequence[Example]) -> list[int]:
        """The ids of those examples that the table has."""
        ids = self._texts.ids(unique_texts(examples))
        rows: list[int] = []
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            for example in examples:
                if all(text in ids for text in texts_of(example)):
                    columns = (self._adapter, *columns_of_example(example, ids))
                    rows += [row for (row,) in db.execute(_ID, columns)]
        return rows

    def counts(self) -> tuple[int, int]:
        """How many examples there are, and how many of them have a label."""
        with self._db.connection() as db:
            query = "SELECT count(*), count(label) FROM examples WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        return int(row[0]), int(row[1])

    def waiting(self, backbones: Collection[str]) -> int:
        """How many examples have a text that none of some backbones has encoded.

        Args:
            backbones: Their digests.
        """
        with self._db.rows("its examples are damaged") as db:
            rows = rows_in(db, "SELECT text FROM embeddings WHERE backbone", [*backbones])
            encoded = {row for (row,) in rows}
            examples = db.execute(
                "SELECT document, history FROM examples WHERE adapter = ?", (self._adapter,)
            ).fetchall()
            return sum(
                not encoded.issuperset([document, *decode_history(history)])
                for document, history in examples
            )

    def adapters(self) -> list[str]:
        """The tasks that have examples, by their adapters."""
        with self._db.connection() as db:
            rows = db.execute("SELECT DISTINCT adapter FROM examples ORDER BY adapter")
            return [adapter for (adapter,) in rows]

    def _added(self, db: sqlite3.Connection) -> list[tuple[int, int]]:
        """Every example's id, and the count of data changes when it was added."""
        query = "SELECT id, added_data FROM examples WHERE +adapter = ?"
        rows = db.execute(query, (self._adapter,))
        return [(whole(row), change_count(data)) for row, data in rows]

    def _count_change(self, db: sqlite3.Connection) -> tuple[int, int, int]:
        """Count a change of examples or labels.

        Returns:
            The task's count, and the last ids of an example and of a text.
        """
        db.execute("UPDATE active SET data = data + 1 WHERE adapter = ?", (self._adapter,))
        query = (
            "SELECT (SELECT data FROM active WHERE adapter = ?),"
            " (SELECT coalesce(max(id), 0) FROM examples), (SELECT coalesce(max(id), 0) FROM texts)"
        )
        with self._db.rows("its count of changes is damaged"):
            data, *last = db.execute(query, (self._adapter,)).fetchone()
            return 0 if data is None else change_count(data), whole(last[0]), whole(last[1])


def prune_labels(db: sqlite3.Connection, adapter: str) -> None:
    """Delete a task's earlier labels, except those that a slot's model was fitted to.

    In the slot's own fit, or in the fit whose old logits are stored. In a transaction.
    """
    db.execute(
        "DELETE FROM earlier_labels"
        " WHERE (SELECT adapter FROM examples WHERE id = example) = :adapter"
        " AND NOT EXISTS (SELECT 1 FROM slots WHERE slots.adapter = :adapter"
        " AND (since <= fit_data AND fit_data < until"
        " OR since <= replaced_fit_data AND replaced_fit_data < until))",
        {"adapter": adapter},
    )


def decode_example(
    row: tuple[object, ...], texts: Mapping[int, object], task: str | None = None
) -> ExampleRow:
    """The example of a row with a decrypted label; see ``EXAMPLE_COLUMNS``.

    Args:
        row: The columns.
        texts: All texts, by id.
        task: The device's; None accepts an example of either kind.

    Raises:
        ValueError: It is damaged.
    """
    identity, document, history, label, added, labelled, adapter = row
    written = text(history)
    if task is not None and bool(written) != (task == MATCHING):
        raise ValueError("an example of another task")
    candidate = _decode_text(texts, document)
    example: Example = candidate
    if written:
        opened = tuple(_decode_text(texts, text_id) for text_id in decode_history(written))
        example = Match(opened, candidate)
    return ExampleRow(
        whole(identity),
        example,
        optional_text(label),
        number(added),
        optional_number(labelled),
        adapter_named(adapter),
    )


def columns_of_example(example: Example, ids: Mapping[str, int]) -> tuple[int, str]:
    """An example's document and history, as columns, by the ids of its texts."""
    document, *history = (ids[name] for name in texts_of(example))
    return document, json.dumps(history) if isinstance(example, Match) else ""


def decode_history(value: object) -> list[int]:
    """The texts' ids of a match's history; empty for a document.

    Raises:
        ValueError: It is damaged.
    """
    listed = json.loads(text(value)) if value != "" else []
    if not isinstance(listed, list) or any(type(text_id) is not int for text_id in listed):
        raise ValueError("a history that is no list of texts")
    return listed


def decode_label(codec: Codec, row: Sequence[object]) -> str | None:
    """The label of an example's row; see ``EXAMPLE_COLUMNS``.

    Raises:
        ValueError: It is damaged, or of another row.
    """
    identity, document, history, label, _, labelled, adapter = row
    context = label_context(identity, document, history, labelled, adapter)
    return None if label is None else codec.decode_text(label, *context)


def decode_earlier_label(codec: Codec, row: Sequence[object]) -> str:
    """The label of an earlier label's row; see ``EARLIER_LABELS``.

    Raises:
        ValueError: It is damaged, or of another row.
    """
    example, since, _, label, document, history = row
    return codec.decode_text(label, "earlier_labels", example, since, "label", document, history)


def label_context(
    identity: object, document: object, history: object, labelled: object, adapter: object
) -> tuple[object, ...]:
    """The context that a label is bound to; see ``fala.store.encryption``."""
    return "examples", identity, "label", document, history, labelled, adapter


def _decode_text(texts: Mapping[int, object], identity: object) -> str:
    if identity not in texts:
        raise ValueError("an example whose text is missing")
    return as_text(text(texts[whole(identity)]))
