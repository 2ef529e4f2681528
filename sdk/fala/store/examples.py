"""The table of a task's examples."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fala.examples import MATCHING, Example, Match, as_text, texts_of, unique_texts
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
from fala.store.records import StoredExample
from fala.store.texts import Texts

#: The columns that ``example_of`` takes, in this order.
EXAMPLE_COLUMNS = "id, document, history, label, added, labelled, adapter"

#: Reads what ``earlier_label_of`` takes.
EARLIER_LABELS = (
    "SELECT example, since, until, earlier_labels.label, document, history FROM earlier_labels"
    " JOIN examples ON id = example"
)

_IDS = "SELECT id FROM examples WHERE adapter = ?"
_ID = f"{_IDS} AND document = ? AND history = ?"


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

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Store examples; a label replaces an earlier one, None keeps it. In a transaction.

        Returns:
            The examples' ids.
        """
        now = time.time()
        rows: list[int] = []
        with self._db.writer() as db:
            data = self._count_change(db)
            ids = self._texts.add(unique_texts(examples))
            for example, label in zip(examples, labels, strict=True):
                document, history = columns_of_example(example, ids)
                db.execute(
                    "INSERT INTO examples (document, history, added, adapter, added_data)"
                    " VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (adapter, document, history) DO NOTHING",
                    (document, history, now, self._adapter, data),
                )
                (row,) = db.execute(_ID, (self._adapter, document, history)).fetchone()
                rows.append(row)
                if label is not None:
                    self._label(db, row, label, now, data)
            prune_labels(db, self._adapter)
        return rows

    def restore(self, examples: Iterable[StoredExample]) -> None:
        """Write examples with their ids, labels and times. In a transaction, into an empty store.

        The order of their changes is not kept: all of them count as one change.
        """
        codec, rows = self._db.codec, [*examples]
        with self._db.writer() as db:
            ids = self._texts.add(unique_texts(row.known for row in rows))
            for row in rows:
                document, history = columns_of_example(row.known, ids)
                context = label_context(row.id, document, history, row.labelled, self._adapter)
                label = None if row.label is None else codec.encode_text(row.label, *context)
                db.execute(
                    "INSERT OR IGNORE INTO examples VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?)",
                    (
                        row.id, document, history, label, row.added, row.labelled, self._adapter,
                        None if label is None else 1,
                    ),
                )  # fmt: skip

    def _label(self, db: sqlite3.Connection, row: int, label: str, now: float, data: int) -> None:
        """Write an example's label; keep the earlier one as long as a model needs it."""
        codec = self._db.codec
        query = f"SELECT {EXAMPLE_COLUMNS}, labelled_data FROM examples WHERE id = ?"
        *before, since = db.execute(query, (row,)).fetchone()
        _, document, history, *_ = before
        earlier = None
        with contextlib.suppress(ValueError):  # a damaged one cannot be kept
            earlier = label_of(codec, before)
        if earlier is not None and earlier != label:
            context = ("earlier_labels", row, since, "label", document, history)
            db.execute(
                "INSERT OR REPLACE INTO earlier_labels VALUES (?, ?, ?, ?)",
                (row, since, data, codec.encode_text(earlier, *context)),
            )
        encoded = codec.encode_text(
            label, *label_context(row, document, history, now, self._adapter)
        )
        db.execute(
            "UPDATE examples SET label = ?, labelled = ?, labelled_data = ? WHERE id = ?",
            (encoded, now, since if earlier == label else data, row),
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
                used.update(history_of(history))
            unused = [(row,) for (row,) in db.execute("SELECT id FROM texts") if row not in used]
            db.executemany("DELETE FROM embeddings WHERE text = ?", unused)
            db.executemany("DELETE FROM texts WHERE id = ?", unused)
            self._db.note_deletion()
            self._count_change(db)
        return len(rows)

    def all(self, ids: Iterable[int] | None = None) -> list[StoredExample]:
        """Examples, in the order in which they were added.

        Args:
            ids: Their ids; None for all.
        """
        with self._db.rows("its examples are damaged") as db:
            if ids is None:
                texts = self._texts.by_id()
                # The plus makes SQLite read the table in order, without an index.
                query = f"SELECT {EXAMPLE_COLUMNS} FROM examples WHERE +adapter = ? ORDER BY id"
                rows = db.execute(query, (self._adapter,)).fetchall()
            else:
                query = f"SELECT {EXAMPLE_COLUMNS} FROM examples WHERE +adapter = ? AND id"
                rows = sorted(rows_in(db, query, [*set(ids)], self._adapter))
                used = {document for _, document, *_ in rows}
                used.update(identity for row in rows for identity in history_of(row[2]))
                texts = self._texts.by_id(list(used))
            codec = self._db.codec
            if codec.encrypted:
                rows = [(*row[:3], label_of(codec, row), *row[4:]) for row in rows]
            return [example_of(row, texts, self.task) for row in rows]

    def at(self, data: float) -> list[StoredExample]:
        """Examples with their labels as they were at a count of data changes.

        Args:
            data: The task's count; infinity returns the present state.
        """
        with self._db.rows("its examples are damaged") as db:
            added = {row for row, since in self._added(db) if since <= data}
            query = f"{_IDS} AND labelled_data > ?"
            later = {row for (row,) in db.execute(query, (self._adapter, data))}
            rows = db.execute(f"{EARLIER_LABELS} WHERE since <= ? AND ? < until", (data, data))
            labels = {row[0]: earlier_label_of(self._db.codec, row) for row in rows}
            return [
                replace(row, label=labels.get(row.id)) if row.id in later else row
                for row in self.all()
                if row.id in added
            ]

    def first_added(self, ids: Collection[int]) -> int:
        """The count of data changes when the first of some examples was added."""
        with self._db.rows("its examples are damaged") as db:
            return min((since for row, since in self._added(db) if row in ids), default=0)

    def ids(self, examples: Sequence[Example]) -> list[int]:
        """The ids of those examples that the table has."""
        ids = self._texts.ids(unique_texts(examples))
        rows: list[int] = []
        with self._db.rows("its examples are damaged") as db:
            for example in examples:
                if all(text in ids for text in texts_of(example)):
                    columns = (self._adapter, *columns_of_example(example, ids))
                    rows += [row for (row,) in db.execute(_ID, columns)]
        return rows

    def some_labelled(self, count: int) -> list[int]:
        """Ids of about ``count`` labelled examples, a random sample with a fixed seed."""
        with self._db.rows("its examples are damaged") as db:
            query = "SELECT count(label), max(id) FROM examples WHERE +adapter = ?"
            total, last = db.execute(query, (self._adapter,)).fetchone()
            if total <= count:
                labelled = db.execute(f"{_IDS} AND label IS NOT NULL", (self._adapter,))
                return [whole(row) for (row,) in labelled]
            sample = random.Random(0).sample(range(1, last + 1), min(last, last * count // total))
            query = "SELECT id FROM examples WHERE +adapter = ? AND label IS NOT NULL AND id"
            return [whole(row) for (row,) in rows_in(db, query, sample, self._adapter)]

    def counts(self) -> tuple[int, int]:
        """How many examples there are, and how many of them have a label."""
        with self._db.writer() as db:
            query = "SELECT count(*), count(label) FROM examples WHERE +adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        return int(row[0]), int(row[1])

    def _added(self, db: sqlite3.Connection) -> list[tuple[int, int]]:
        """Every example's id, and the count of data changes when it was added."""
        query = "SELECT id, added_data FROM examples WHERE +adapter = ?"
        rows = db.execute(query, (self._adapter,))
        return [(whole(row), change_count(data)) for row, data in rows]

    def _count_change(self, db: sqlite3.Connection) -> int:
        """Count a change of examples or labels; returns the task's count."""
        db.execute("UPDATE active SET data = data + 1 WHERE adapter = ?", (self._adapter,))
        query = "SELECT data FROM active WHERE adapter = ?"
        with self._db.rows("its count of changes is damaged"):
            row = db.execute(query, (self._adapter,)).fetchone()
            return 0 if row is None else change_count(row[0])


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


def example_of(
    row: tuple[object, ...], texts: Mapping[int, object], task: str | None = None
) -> StoredExample:
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
    candidate = _text_of(texts, document)
    example: Example = candidate
    if written:
        opened = tuple(_text_of(texts, text_id) for text_id in history_of(written))
        example = Match(opened, candidate)
    return StoredExample(
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


def history_of(value: object) -> list[int]:
    """The texts' ids of a match's history; empty for a document.

    Raises:
        ValueError: It is damaged.
    """
    listed = json.loads(text(value)) if value != "" else []
    if not isinstance(listed, list) or any(type(text_id) is not int for text_id in listed):
        raise ValueError("a history that is no list of texts")
    return listed


def label_of(codec: Codec, row: Sequence[object]) -> str | None:
    """The label of an example's row; see ``EXAMPLE_COLUMNS``.

    Raises:
        ValueError: It is damaged, or of another row.
    """
    identity, document, history, label, _, labelled, adapter = row
    context = label_context(identity, document, history, labelled, adapter)
    return None if label is None else codec.decode_text(label, *context)


def earlier_label_of(codec: Codec, row: Sequence[object]) -> str:
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


def _text_of(texts: Mapping[int, object], identity: object) -> str:
    if identity not in texts:
        raise ValueError("an example whose text is missing")
    return as_text(text(texts[whole(identity)]))
