"""What a device knows: one SQLite file.

Texts, examples and labels are the user's and are never dropped by a replacement. Embeddings and
logits carry the digest of what made them. Which slot answers, and each slot's personal model, are
rows of the same file, so that a change of model is one transaction: a device killed at any instant
comes back with the old model or the new one, whole.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError, DeviceChangedError, DeviceError
from fala.examples import Example, texts_of, unique_texts
from fala.store.database import Database, damaged
from fala.store.records import FitRecord, SlotRecord, StoredExample
from fala.store.rows import (
    EXAMPLE_COLUMNS,
    SLOT_COLUMNS,
    columns_of,
    example_of,
    fit_of,
    floats,
    history_of,
    kept_as,
    slot_of,
    vectors_of,
    whole,
)
from fala.store.rows import text as as_text

# SQLite's oldest limit on variables in a statement is 999.
_VARIABLES = 900
#: The setting that tells how long a backbone's embeddings are; its digest follows.
_DIMENSION = "dimension "
#: And what a slot's model was fitted to; its name follows.
_FIT = "fit "


@dataclass(frozen=True)
class Version:
    """What a snapshot of the store is told by.

    Attributes:
        generation: Counts the changes of what answers.
        data: Counts the changes of examples and labels.
    """

    generation: int
    data: int


class Store:
    """The device's SQLite file; see ``Database`` for threads, processes and errors.

    Args:
        path: The file; its folder exists.
        create: Make the file if there is none.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._db = Database(path, create=create)
        #: What its examples are of; None until a model is opened.
        self.task: str | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self._db.path

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written inside is kept, or none of it."""
        return self._db.transaction()

    def version(self) -> Version:
        """What is committed.

        Raises:
            DeviceError: If no model was ever installed.
        """
        with self._db.reader() as db:
            row = db.execute("SELECT generation, data FROM active").fetchone()
        if row is None:
            raise DeviceError(f"{self.path}: no model was ever installed")
        generation, data = row
        if not isinstance(generation, int) or not isinstance(data, int):
            raise DeviceError(damaged(self.path, "its counts of changes are damaged"))
        return Version(generation, data)

    def advance(self, expected: int) -> int:
        """Count a change of what answers. In a transaction.

        Returns:
            The new generation.

        Raises:
            DeviceChangedError: The generation is not the one expected: somebody else was first.
        """
        with self._db.writer() as db:
            found = db.execute(
                "UPDATE active SET generation = generation + 1 WHERE generation = ?", (expected,)
            )
        if found.rowcount != 1:
            raise DeviceChangedError(f"{self.path}: the device's model was changed meanwhile")
        return expected + 1

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> list[int]:
        """Keep examples; a label replaces an earlier one, None leaves it. In a transaction.

        Returns:
            The examples' ids.
        """
        now = time.time()
        texts = unique_texts(examples)
        found: list[int] = []
        with self._db.writer() as db:
            db.executemany(
                "INSERT OR IGNORE INTO texts (text) VALUES (?)", ((text,) for text in texts)
            )
            ids = self._text_ids(texts)
            for example, label in zip(examples, labels, strict=True):
                document, kind = kept_as(example, ids)
                db.execute(
                    "INSERT INTO examples (document, history, label, added, labelled)"
                    " VALUES (?, ?, ?, ?, ?) ON CONFLICT (document, history) DO UPDATE"
                    " SET label = coalesce(excluded.label, label),"
                    " labelled = coalesce(excluded.labelled, labelled)",
                    (document, kind, label, now, None if label is None else now),
                )
                row = db.execute(
                    "SELECT id FROM examples WHERE document = ? AND history = ?", (document, kind)
                )
                found.append(row.fetchone()[0])
            db.execute("UPDATE active SET data = data + 1")
        return found

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples with all that was made of them. In a transaction.

        Returns:
            How many there were.
        """
        # Others are no ids of SQLite's.
        rows = [(row,) for row in ids if -(2**63) <= row < 2**63]
        with self._db.rows("its examples are damaged") as db:
            before = db.execute("SELECT count(*) FROM examples").fetchone()[0]
            db.executemany("DELETE FROM logits WHERE example = ?", rows)
            db.executemany("DELETE FROM examples WHERE id = ?", rows)
            used = {row for (row,) in db.execute("SELECT document FROM examples")}
            for (history,) in db.execute("SELECT history FROM examples WHERE history <> ''"):
                used.update(history_of(history))
            gone = [(row,) for (row,) in db.execute("SELECT id FROM texts") if row not in used]
            db.executemany("DELETE FROM embeddings WHERE text = ?", gone)
            db.executemany("DELETE FROM texts WHERE id = ?", gone)
            db.execute("UPDATE active SET data = data + 1")
            after = db.execute("SELECT count(*) FROM examples").fetchone()[0]
        return int(before - after)

    def examples(self, ids: Iterable[int] | None = None) -> list[StoredExample]:
        """Examples, in the order in which they came.

        Args:
            ids: Those that are wanted; None for all.
        """
        with self._db.rows("its examples are damaged") as db:
            if ids is None:
                texts = dict(db.execute("SELECT id, text FROM texts"))
                rows = db.execute(f"SELECT {EXAMPLE_COLUMNS} FROM examples ORDER BY id").fetchall()
            else:
                rows = _of_ids(db, EXAMPLE_COLUMNS, "examples", sorted(set(ids)))
                used = {document for _, document, *_ in rows}
                used.update(one for row in rows for one in history_of(row[2]))
                texts = dict(_of_ids(db, "id, text", "texts", list(used)))
            return [example_of(row, texts, self.task) for row in rows]

    def known(self, examples: Sequence[Example]) -> list[int]:
        """Ids of those of some examples that are kept already."""
        ids = self._text_ids(unique_texts(examples))
        found: list[int] = []
        with self._db.rows("its examples are damaged") as db:
            for example in examples:
                if all(text in ids for text in texts_of(example)):
                    query = "SELECT id FROM examples WHERE document = ? AND history = ?"
                    found += [row for (row,) in db.execute(query, kept_as(example, ids))]
        return found

    def some_labelled(self, count: int) -> list[int]:
        """Ids of about so many labelled examples, drawn from all; the same ones each time."""
        with self._db.rows("its examples are damaged") as db:
            total, last = db.execute("SELECT count(label), max(id) FROM examples").fetchone()
            if total <= count:
                chosen = db.execute("SELECT id FROM examples WHERE label IS NOT NULL")
                return [whole(row) for (row,) in chosen]
            drawn = random.Random(0).sample(range(1, last + 1), min(last, last * count // total))
            rows = _of_ids(db, "id, label", "examples", drawn)
            return [whole(row) for row, label in rows if label is not None]

    def newest_texts(self, count: int) -> list[str]:
        """The texts that came last."""
        with self._db.writer() as db:
            rows = db.execute("SELECT text FROM texts ORDER BY id DESC LIMIT ?", (count,))
            return [text for (text,) in rows]

    def counts(self) -> tuple[int, int]:
        """How many examples there are, and how many of them have a label."""
        with self._db.writer() as db:
            row = db.execute("SELECT count(*), count(label) FROM examples").fetchone()
        return int(row[0]), int(row[1])

    def add_embeddings(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep embeddings in float16, by text; of texts that are known. In a transaction.

        Raises:
            DataError: If a number does not fit float16.
        """
        with self._db.writer() as db:
            ids = self._text_ids(list(embeddings))
            rows = []
            for text, vector in embeddings.items():
                half = _half(vector)
                # A text that was forgotten while it was encoded leaves nothing behind.
                if text in ids:
                    rows.append((ids[text], backbone, half.tobytes()))
            db.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)
            if rows:
                self.set(_DIMENSION + backbone, str(len(rows[0][2]) // 2))

    def embeddings(
        self, backbone: str, texts: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Embeddings that a backbone made, by text.

        Args:
            backbone: Its digest.
            texts: Those that are wanted; None for all.
        """
        query = (
            "SELECT text.text, vector FROM embeddings JOIN texts AS text"
            " ON text.id = embeddings.text WHERE backbone = ?"
        )
        rows: list[tuple[object, object]] = []
        with self._db.rows("its embeddings are damaged") as db:
            if texts is None:
                rows = db.execute(query, (backbone,)).fetchall()
            for part in _parts(texts or ()):
                marks = ",".join("?" * len(part))
                found = db.execute(f"{query} AND text.text IN ({marks})", (backbone, *part))
                rows.extend(found)
            known = self.get(_DIMENSION + backbone)
            vectors = vectors_of([part for _, part in rows], None if known is None else int(known))
            return dict(zip((as_text(one) for one, _ in rows), vectors, strict=True))

    def has_embeddings(self, backbone: str) -> bool:
        """Whether there is an embedding that a backbone made."""
        with self._db.writer() as db:
            row = db.execute(
                "SELECT 1 FROM embeddings WHERE backbone = ? LIMIT 1", (backbone,)
            ).fetchone()
        return row is not None

    def add_logits(self, model: str, logits: Mapping[int, NDArray[np.float32]]) -> None:
        """Keep a model's logits (C,), by example. In a transaction."""
        with self._db.writer() as db:
            known = {row for (row,) in db.execute("SELECT id FROM examples")}
            db.executemany(
                "INSERT OR REPLACE INTO logits VALUES (?, ?, ?)",
                (
                    (row, model, value.astype("<f4").tobytes())
                    for row, value in logits.items()
                    if row in known
                ),
            )

    def logits(self, model: str) -> dict[int, NDArray[np.float32]]:
        """A model's stored logits (C,), by example."""
        with self._db.rows("its logits are damaged") as db:
            rows = db.execute("SELECT example, value FROM logits WHERE model = ?", (model,))
            found = {whole(row): floats(value) for row, value in rows}
            if len({len(value) for value in found.values()}) > 1:
                raise ValueError("logits of several lengths")
            return found

    def put_slot(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        row = columns_of(record)
        marks = ", ".join(f":{name}" for name in row)
        with self._db.writer() as db:
            db.execute(f"INSERT OR REPLACE INTO slots ({', '.join(row)}) VALUES ({marks})", row)

    def slot(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written, or is damaged.
        """
        with self._db.rows(f"slot {name} is damaged") as db:
            row = db.execute(f"SELECT {SLOT_COLUMNS} FROM slots WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise DeviceError(f"{self.path}: slot {name} is empty")
            return slot_of(row)

    def bundles(self) -> set[str]:
        """Digests of all slots' bundles."""
        with self._db.rows("its slots are damaged") as db:
            return {as_text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def activate(self, slot: str, previous: str | None) -> None:
        """Let a slot answer; ``previous`` is the one to roll back to. In a transaction."""
        with self._db.writer() as db:
            db.execute(
                "INSERT INTO active (one, slot, previous) VALUES (1, ?, ?) ON CONFLICT (one)"
                " DO UPDATE SET slot = excluded.slot, previous = excluded.previous",
                (slot, previous),
            )

    def drop_slot(self, name: str) -> None:
        """Delete a slot that does not answer, and is not gone back to. In a transaction."""
        with self._db.writer() as db:
            db.execute("DELETE FROM slots WHERE name = ?", (name,))

    def active(self) -> tuple[str, str | None]:
        """The slot that answers, and the one to roll back to.

        Raises:
            DeviceError: If no model was ever installed.
        """
        with self._db.rows("its active slot is damaged") as db:
            row = db.execute("SELECT slot, previous FROM active").fetchone()
            if row is None:
                raise DeviceError(f"{self.path}: no model was ever installed")
            slot, previous = row
            return as_text(slot), None if previous is None else as_text(previous)

    @property
    def finished(self) -> bool:
        """Whether a model was ever installed: else the device was never finished."""
        with self._db.writer() as db:
            return db.execute("SELECT 1 FROM active").fetchone() is not None

    def set_fit(self, slot: str, record: FitRecord | None) -> None:
        """Keep what a slot's model was fitted to; None forgets it. In a transaction."""
        self.set(_FIT + slot, "" if record is None else json.dumps(asdict(record)))

    def fit(self, slot: str) -> FitRecord | None:
        """What a slot's model was fitted to, where that is known."""
        value = self.get(_FIT + slot)
        return None if not value else fit_of(value)

    def set(self, name: str, value: str) -> None:
        """Keep a setting. In a transaction."""
        with self._db.writer() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def get(self, name: str) -> str | None:
        """A setting, or None."""
        with self._db.rows("its settings are damaged") as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
            return None if row is None else as_text(row[0])

    def prune(self, sources: Iterable[str] = ()) -> None:
        """Drop embeddings and logits that no slot can use any more. In a transaction.

        Args:
            sources: Digests of further backbones whose embeddings are of use: those from which
                a bridge of a slot's bundle starts.
        """
        kept = list(sources)
        marks = ",".join("?" * len(kept))
        with self._db.writer() as db:
            db.execute(
                "DELETE FROM embeddings WHERE backbone NOT IN"
                " (SELECT backbone FROM slots)"
                f" AND backbone NOT IN ({marks})",
                kept,
            )
            db.execute(
                "DELETE FROM logits WHERE model NOT IN"
                " (SELECT teacher FROM slots WHERE teacher IS NOT NULL"
                " UNION SELECT teacher_vendor FROM slots WHERE teacher_vendor IS NOT NULL)"
            )

    def _text_ids(self, texts: Sequence[str]) -> dict[str, int]:
        ids: dict[str, int] = {}
        with self._db.writer() as db:
            for part in _parts(texts):
                marks = ",".join("?" * len(part))
                ids.update(db.execute(f"SELECT text, id FROM texts WHERE text IN ({marks})", part))
        return ids


def as_stored(embeddings: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Embeddings as they come back from a store.

    Raises:
        DataError: If a number does not fit float16.
    """
    return {text: _half(vector).astype(np.float32) for text, vector in embeddings.items()}


def _half(vector: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = vector.astype("<f2")
    if not np.isfinite(half).all():
        raise DataError("an embedding is not finite in float16")
    return half


def _of_ids(
    db: sqlite3.Connection, columns: str, table: str, ids: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Some rows of a table, in the order of their ids."""
    rows: list[tuple[Any, ...]] = []
    for start in range(0, len(ids), _VARIABLES):
        part = ids[start : start + _VARIABLES]
        marks = ",".join("?" * len(part))
        rows += db.execute(f"SELECT {columns} FROM {table} WHERE id IN ({marks}) ORDER BY id", part)
    return rows


def _parts(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + _VARIABLES] for start in range(0, len(texts), _VARIABLES))
