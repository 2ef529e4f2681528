"""The table of a task's examples."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fala.base.errors import DataError
from fala.base.examples import MATCHING, Example, Match, as_text, texts_of, unique_texts
from fala.model.labels import OwnLabel
from fala.store.columns import (
    adapter_named,
    change_count,
    number,
    optional_number,
    optional_text,
    put_rows,
    rows_in,
    text,
    whole,
)
from fala.store.database import Database
from fala.store.encryption import Codec, decode_text
from fala.store.texts import LARGEST_ID, Texts

#: The columns that ``decode_example`` takes, in this order.
EXAMPLE_COLUMNS = "id, document, history, label, added, labelled, adapter"

#: The query for the rows that ``decode_earlier_label`` takes.
EARLIER_LABELS = (
    "SELECT example, since, until, earlier_labels.label, document, history FROM earlier_labels"
    " JOIN examples ON id = example"
)

# The plus makes SQLite read the table in order, without an index.
_WITH_TEXT = (
    f"SELECT examples.{EXAMPLE_COLUMNS}, text, sealed"
    " FROM examples LEFT JOIN texts ON texts.id = document WHERE +adapter = ?"
)
_IDS = "SELECT id FROM examples WHERE adapter = ?"
_HISTORY = (
    "SELECT id, since, until, earlier_labels.label, document, history, added_data, labelled_data"
    " FROM examples LEFT JOIN earlier_labels ON example = id"
)

Cells: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example that a device keeps.

    Attributes:
        id: The example's number in the store.
        example: A text, or a ``Match``; None on a device that keeps no texts.
        label: The label, an integer or a string like those of ``Device.labels``; a frozenset of
            such labels for tags, a number for a rating. None if the example has no label. The store
            keeps the label's text.
        added: When the example was first stored, in seconds since 1970 (UTC).
        labelled: When the label was stored; None if there is none.
        adapter: The adapter of the example's task; empty for the device's own task.
    """

    id: int
    example: Example | None
    label: OwnLabel | None
    added: float
    labelled: float | None = None
    adapter: str = ""

    @property
    def stored(self) -> Example:
        """The example as stored, with names in place of texts if texts are not kept."""
        if self.example is None:
            raise DataError(f"the texts of example {self.id} are not kept")
        return self.example

    @property
    def stored_label(self) -> str | None:
        """The text of the label, as stored."""
        return None if self.label is None else str(self.label)


@dataclass(frozen=True)
class History:
    """When examples and labels arrived, in a task's counts of data changes.

    Attributes:
        added: The count at which each example arrived, by id.
        labelled: The count at which each label arrived, by the example's id.
        earlier: The labels that were replaced: the example's id, the counts at which the label and
            the next one arrived, and the label.
    """

    added: Mapping[int, int]
    labelled: Mapping[int, int]
    earlier: Sequence[tuple[int, int, int, str]]

    def first_added(self, ids: Collection[int]) -> int | None:
        """Return the count at which the first of some examples arrived; None if there are none."""
        return min((self.added[row] for row in ids if row in self.added), default=None)

    def first_labelled(self, ids: Collection[int]) -> int | None:
        """Return the count at which the first of some examples' labels arrived; None without any.

        Earlier labels are kept only as long as the model of some slot was fitted to them.
        """
        present = [self.labelled[row] for row in ids if row in self.labelled]
        earlier = [since for row, since, *_ in self.earlier if row in ids]
        return min(present + earlier, default=None)

    def without(self, ids: Collection[int]) -> History:
        """Return the history after the labels of some examples were deleted."""
        labelled = {row: count for row, count in self.labelled.items() if row not in ids}
        earlier = [row for row in self.earlier if row[0] not in ids]
        return replace(self, labelled=labelled, earlier=earlier)

    def at(self, data: float, present: Sequence[StoredExample]) -> list[StoredExample]:
        """Return examples with their labels as they were at a count.

        Args:
            data: The count; infinity returns the present state.
            present: All examples as they are now.
        """
        labels = {row: label for row, since, until, label in self.earlier if since <= data < until}
        return [
            replace(row, label=labels.get(row.id)) if self.labelled.get(row.id, 0) > data else row
            for row in present
            if self.added[row.id] <= data
        ]


class Examples:
    """A task's examples and labels.

    Args:
        database: The store's file.
        texts: The table of texts.
        adapter: The name of the task's adapter; empty for the device's own task.

    Attributes:
        task: The examples' kind, ``"classification"`` or ``"matching"``; None until the task's
            model is opened. Rows of the other kind are damaged.
    """

    def __init__(self, database: Database, texts: Texts, adapter: str) -> None:
        self._db, self._texts, self._adapter = database, texts, adapter
        self.task: str | None = None

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Store examples and labels, and return the examples' ids. Call it in a transaction.

        Args:
            examples: The examples.
            labels: Their labels, as stored; None keeps an earlier label.
        """
        now = time.time()
        with self._db.rows("its examples are damaged") as db:
            self._count_change(db)
            data = self._count(db)
            texts = self._texts.add(unique_texts(examples))
            keys = [columns_of_example(example, texts) for example in examples]
            query = (
                f"SELECT {EXAMPLE_COLUMNS}, added_data, coalesce(labelled_data, 0) FROM examples"
                " WHERE adapter = ? AND document"
            )
            documents = [*{document for document, _ in keys}]
            before = {(row[1], row[2]): row for row in rows_in(db, query, documents, self._adapter)}
            given: dict[tuple[int, str], str | None] = {}  # the last label of each example counts
            for key, label in zip(keys, labels, strict=True):
                given[key] = given.get(key) if label is None else label
            new = [key for key in given if key not in before]
            (last,) = db.execute("SELECT coalesce(max(id), 0) FROM examples").fetchone()
            ids = {key: row[0] for key, row in before.items()}
            ids |= {key: last + 1 + position for position, key in enumerate(new)}
            if last >= LARGEST_ID - len(new):
                raise ValueError("an example has an id that is out of range")
            rows = [self._row(ids[key], key, given[key], (now, now), (data, data)) for key in new]
            relabelled = [
                self._relabelled(row, label, now, data)
                for key, row in before.items()
                if (label := given.get(key)) is not None
            ]
            rows += [row for row, _ in relabelled]
            put_rows(db, "examples", rows)
            earlier = [row for _, row in relabelled if row is not None]
            put_rows(db, "earlier_labels", earlier)
            if relabelled:
                self.prune_labels()
        return [ids[key] for key in keys]

    def restore(self, examples: Sequence[StoredExample]) -> None:
        """Write examples with their ids and times into a new store. Call it in a transaction."""
        with self._db.connection() as db:
            texts = self._texts.add(unique_texts(row.stored for row in examples))
            rows = []
            for row in examples:
                key, times = columns_of_example(row.stored, texts), (row.added, row.labelled)
                rows.append(self._row(row.id, key, row.stored_label, times, (1, 1)))
            put_rows(db, "examples", rows)

    def _row(
        self,
        identity: int,
        key: tuple[int, str],
        label: str | None,
        times: tuple[float, float | None],
        counts: tuple[int, int],
    ) -> Cells:
        """Return the columns of an example.

        Args:
            identity: The example's id.
            key: The columns for document and history.
            label: The label's text; None without a label.
            times: When the example and its label were stored.
            counts: The counts of data changes at which the example and its label arrived.
        """
        if label is None:
            return (identity, *key, None, times[0], None, self._adapter, counts[0], None)
        context = label_context(identity, *key, times[1], self._adapter)
        cell = self._db.codec.encode_text(label, *context)
        return (identity, *key, cell, *times, self._adapter, *counts)

    def _relabelled(
        self, row: Cells, label: str, now: float, data: int
    ) -> tuple[Cells, Cells | None]:
        """Return an example's columns with another label, and its earlier label's, if any."""
        codec = self._db.codec
        identity, document, history, _, added, *_, added_data, since = row
        earlier, replaced = None, None
        with contextlib.suppress(ValueError):  # a damaged label cannot be kept
            earlier = decode_label(codec, row[:7])
        if earlier != label:
            if earlier is not None:
                context = ("earlier_labels", identity, since, "label", document, history)
                replaced = (identity, since, data, codec.encode_text(earlier, *context))
            since = data
        key, times = (document, history), (added, now)
        return self._row(identity, key, label, times, (added_data, since)), replaced

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples of the task with everything computed from them. Call it in a transaction.

        A text is deleted when no task has an example of it any more.

        Returns:
            The number of deleted examples.
        """
        with self._db.rows("its examples are damaged") as db:
            query = "SELECT id, document, history FROM examples WHERE +adapter = ? AND id"
            # Numbers out of this range cannot be ids in SQLite.
            possible = [row for row in {*ids} if -(2**63) <= row < 2**63]
            rows = rows_in(db, query, possible, self._adapter)
            for column in (
                "logits WHERE example",
                "earlier_labels WHERE example",
                "examples WHERE id",
            ):
                rows_in(db, f"DELETE FROM {column}", [row for row, *_ in rows])
            texts = {
                text
                for _, document, history in rows
                for text in (document, *decode_history(history))
            }
            query = "SELECT document, history FROM examples WHERE history <> '' OR document"
            for document, history in rows_in(db, query, [*texts]):
                texts.difference_update((document, *decode_history(history)))
            for column in ("embeddings WHERE text", "texts WHERE id"):
                rows_in(db, f"DELETE FROM {column}", [*texts])
            self._db.note_deletion()
            self._count_change(db)
        return len(rows)

    def unlabel(self, ids: Collection[int]) -> None:
        """Delete the labels of examples, as if they had never had one. Call it in a transaction."""
        with self._db.rows("its examples are damaged") as db:
            deletion = "UPDATE examples SET label = NULL, labelled = NULL, labelled_data = NULL"
            for statement in ("DELETE FROM earlier_labels WHERE example", f"{deletion} WHERE id"):
                rows_in(db, statement, [*ids])
            self._db.note_deletion()
            self._count_change(db)

    def prune_labels(self) -> None:
        """Delete earlier labels that no slot's model was fitted to. Call it in a transaction.

        A slot needs the labels of its own fit, and of the fit whose old logits are stored.
        """
        with self._db.connection() as db:
            db.execute(
                "DELETE FROM earlier_labels"
                " WHERE (SELECT adapter FROM examples WHERE id = example) = :adapter"
                " AND NOT EXISTS (SELECT 1 FROM slots WHERE slots.adapter = :adapter"
                " AND (since <= fit_data AND fit_data < until"
                " OR since <= replaced_fit_data AND replaced_fit_data < until))",
                {"adapter": self._adapter},
            )

    def all(self, ids: Iterable[int] | None = None) -> list[StoredExample]:
        """Return examples, in the order in which they were added.

        Args:
            ids: The ids of the examples; None for all.
        """
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            if ids is None:
                rows = db.execute(f"{_WITH_TEXT} ORDER BY examples.id", (self._adapter,)).fetchall()
            else:
                query = f"{_WITH_TEXT} AND examples.id"
                rows = sorted(rows_in(db, query, [*set(ids)], self._adapter))
            codec = self._db.codec
            texts: dict[int, object] = {
                row[1]: decode_text(codec, row[1], *row[7:]) for row in rows if row[7] is not None
            }
            others = {text for row in rows for text in decode_history(row[2])} - texts.keys()
            texts |= self._texts.by_id([*others])
            return [
                decode_example(
                    (*row[:3], decode_label(codec, row[:7]), *row[4:7]), texts, self.task
                )
                for row in rows
            ]

    def since(self, data: int) -> list[StoredExample]:
        """Return the examples that were added or relabelled after a count of data changes."""
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            # A label arrives with its example or after it. Each part of the query reads only the
            # index.
            changed = (
                f"{_IDS} AND labelled_data > ? UNION ALL"
                f" {_IDS} AND labelled_data IS NULL AND added_data > ?"
            )
            ids = [row for (row,) in db.execute(changed, (self._adapter, data) * 2)]
            return self.all(ids)

    def history(self) -> History:
        """Return when the task's examples and labels arrived."""
        with self._db.reading(), self._db.rows("its examples are damaged") as db:
            rows = db.execute(f"{_HISTORY} WHERE +adapter = ?", (self._adapter,)).fetchall()
            codec = self._db.codec
            earlier = [
                (row[0], *map(change_count, row[1:3]), decode_earlier_label(codec, row[:6]))
                for row in rows
                if row[1] is not None
            ]
            added = {whole(row[0]): change_count(row[6]) for row in rows}
            labelled = {row[0]: change_count(row[7]) for row in rows if row[7] is not None}
        return History(added, labelled, earlier)

    def ids(self, examples: Sequence[Example]) -> list[int]:
        """Return the ids of those examples that the table has."""
        if not examples:
            return []
        ids = self._texts.ids(unique_texts(examples))
        known = [each for each in examples if all(text in ids for text in texts_of(each))]
        keys = [columns_of_example(example, ids) for example in known]
        with self._db.rows("its examples are damaged") as db:
            query = "SELECT document, history, id FROM examples WHERE adapter = ? AND document"
            rows = rows_in(db, query, [*{document for document, _ in keys}], self._adapter)
        by_key = {(document, history): row for document, history, row in rows}
        return [by_key[key] for key in keys if key in by_key]

    def counts(self) -> tuple[int, int]:
        """Return how many examples there are, and how many of them have a label."""
        with self._db.connection() as db:
            query = "SELECT count(*), count(label) FROM examples WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        return int(row[0]), int(row[1])

    def waiting(self, backbones: Collection[str]) -> int:
        """Return how many examples have a text that none of some backbones has encoded.

        Args:
            backbones: The digests of the backbones.
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

    def _count_change(self, db: sqlite3.Connection) -> None:
        """Count a change of examples or labels."""
        db.execute("UPDATE active SET data = data + 1 WHERE adapter = ?", (self._adapter,))

    def _count(self, db: sqlite3.Connection) -> int:
        """Return the task's count of data changes."""
        query = "SELECT data FROM active WHERE adapter = ?"
        with self._db.rows("its count of changes is damaged"):
            row = db.execute(query, (self._adapter,)).fetchone()
            return 0 if row is None else change_count(row[0])


def decode_example(
    row: tuple[object, ...], texts: Mapping[int, object], task: str | None = None
) -> StoredExample:
    """Decode the example of a row whose label is already decrypted; see ``EXAMPLE_COLUMNS``.

    Args:
        row: The columns.
        texts: All texts, by id.
        task: The examples' kind on the device; None accepts either kind.

    Raises:
        ValueError: If the row is damaged.
    """
    identity, document, history, label, added, labelled, adapter = row
    written = text(history)
    if task is not None and bool(written) != (task == MATCHING):
        raise ValueError("an example belongs to the other kind of task")
    candidate = _decode_text(texts, document)
    example: Example = candidate
    if written:
        opened = tuple(_decode_text(texts, text_id) for text_id in decode_history(written))
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
    """Return an example's columns for document and history, given the ids of its texts."""
    document, *history = (ids[name] for name in texts_of(example))
    return document, json.dumps(history) if isinstance(example, Match) else ""


def decode_history(value: object) -> list[int]:
    """Return the ids of the texts in a match's history; empty for a document.

    Raises:
        ValueError: If the column is damaged.
    """
    listed = json.loads(text(value)) if value != "" else []
    if not isinstance(listed, list) or any(type(text_id) is not int for text_id in listed):
        raise ValueError("a history is not a list of texts")
    return listed


def decode_label(codec: Codec, row: Sequence[object]) -> str | None:
    """Decrypt the label of an example's row; see ``EXAMPLE_COLUMNS``.

    Raises:
        ValueError: If the label is damaged, or belongs to another row.
    """
    identity, document, history, label, _, labelled, adapter = row
    context = label_context(identity, document, history, labelled, adapter)
    return None if label is None else codec.decode_text(label, *context)


def decode_earlier_label(codec: Codec, row: Sequence[object]) -> str:
    """Decrypt the label in a row of earlier labels; see ``EARLIER_LABELS``.

    Raises:
        ValueError: If the label is damaged, or belongs to another row.
    """
    example, since, _, label, document, history = row
    return codec.decode_text(label, "earlier_labels", example, since, "label", document, history)


def label_context(
    identity: object, document: object, history: object, labelled: object, adapter: object
) -> tuple[object, ...]:
    """Return the context that a label is bound to; see ``fala.store.encryption``."""
    return "examples", identity, "label", document, history, labelled, adapter


def _decode_text(texts: Mapping[int, object], identity: object) -> str:
    if identity not in texts:
        raise ValueError("the text of an example is missing")
    return as_text(text(texts[whole(identity)]))
