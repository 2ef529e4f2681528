"""What was made of a store's texts and examples: embeddings and logits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.store.columns import DIMENSION, dimension_of, floats, vectors_of, whole
from fala.store.columns import text as as_text
from fala.store.keeping import Keeper
from fala.store.sealing import column_of_made, made_of, text_of

# SQLite's oldest limit on variables in a statement is 999.
_VARIABLES = 900


class Made(Keeper):
    """A store's embeddings and logits, and the ids of its texts."""

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
                    row, size = ids[text], len(half)
                    data = half.tobytes()
                    sealed = column_of_made(self._seal, "embeddings", row, backbone, data)
                    rows.append((row, backbone, sealed))
            db.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)
            if rows:
                self.set(DIMENSION + backbone, str(size))

    def embeddings(
        self, backbone: str, texts: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Embeddings that a backbone made, by text.

        Args:
            backbone: Its digest.
            texts: Those that are wanted; None for all.
        """
        query = (
            "SELECT text.id, text.text, vector FROM embeddings JOIN texts AS text"
            " ON text.id = embeddings.text WHERE backbone = ?"
        )
        with self._db.rows("its embeddings are damaged") as db:
            seal, rows = self._seal, []
            if texts is None:
                rows = db.execute(query, (backbone,)).fetchall()
            named = {seal.name(text): text for text in texts or ()}
            for part in _parts(list(named)):
                marks = ",".join("?" * len(part))
                found = db.execute(f"{query} AND text.text IN ({marks})", (backbone, *part))
                rows.extend(found)
            size = dimension_of(self.get(DIMENSION + backbone))
            parts = [made_of(seal, "embeddings", row, backbone, part) for row, _, part in rows]
            if texts is None and seal.sealed:
                known = self._texts(db)
                names = [as_text(known[row]) for row, *_ in rows]
            elif seal.sealed:
                names = [named[name] for _, name, _ in rows]
            else:
                names = [as_text(name) for _, name, _ in rows]
            return dict(zip(names, vectors_of(parts, size), strict=True))

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
            known = {row for (row,) in db.execute(*self._own("SELECT id FROM examples"))}
            db.executemany(
                "INSERT OR REPLACE INTO logits VALUES (?, ?, ?)",
                (
                    (row, model, self._sealed_logits(row, model, value))
                    for row, value in logits.items()
                    if row in known
                ),
            )

    def logits(self, model: str) -> dict[int, NDArray[np.float32]]:
        """A model's stored logits (C,), by example."""
        with self._db.rows("its logits are damaged") as db:
            own, values = self._own("SELECT id FROM examples")
            query = f"SELECT example, value FROM logits WHERE example IN ({own}) AND model = ?"
            rows = db.execute(query, (*values, model))
            found = {
                whole(row): floats(made_of(self._seal, "logits", row, model, value))
                for row, value in rows
            }
            if len({len(value) for value in found.values()}) > 1:
                raise ValueError("logits of several lengths")
            return found

    def forget_logits(self, model: str) -> None:
        """Delete a model's logits. In a transaction."""
        own, values = self._own("SELECT id FROM examples")
        with self._db.writer() as db:
            db.execute(
                f"DELETE FROM logits WHERE example IN ({own}) AND model = ?", (*values, model)
            )

    def _own(self, query: str, *values: object) -> tuple[str, tuple[object, ...]]:
        """A query of examples, or of what answers, for the task alone; with its values."""
        word = "AND" if " WHERE " in query else "WHERE"
        return f"{query} {word} adapter = ?", (*values, self.adapter)

    def _text_ids(self, texts: Sequence[str]) -> dict[str, int]:
        ids: dict[str, int] = {}
        with self._db.writer() as db:
            named = {self._seal.name(text): text for text in texts}
            for part in _parts(list(named)):
                marks = ",".join("?" * len(part))
                found = db.execute(f"SELECT text, id FROM texts WHERE text IN ({marks})", part)
                ids.update((named[name], row) for name, row in found)
        return ids

    def _texts(self, db: sqlite3.Connection, ids: Sequence[int] | None = None) -> dict[int, object]:
        """Texts by id; None for all."""
        columns, seal = "id, text, sealed", self._seal
        if ids is None:
            rows = db.execute(f"SELECT {columns} FROM texts").fetchall()
        else:
            rows = of_ids(db, columns, "texts", ids)
        return {row: text_of(seal, row, name, sealed) for row, name, sealed in rows}

    def _sealed_logits(self, row: int, model: str, value: NDArray[np.float32]) -> bytes:
        data = value.astype("<f4").tobytes()
        return column_of_made(self._seal, "logits", row, model, data)


def of_ids(
    db: sqlite3.Connection, columns: str, table: str, ids: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Some rows of a table, in the order of their ids."""
    rows: list[tuple[Any, ...]] = []
    for start in range(0, len(ids), _VARIABLES):
        part = ids[start : start + _VARIABLES]
        marks = ",".join("?" * len(part))
        rows += db.execute(f"SELECT {columns} FROM {table} WHERE id IN ({marks}) ORDER BY id", part)
    return rows


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


def _parts(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + _VARIABLES] for start in range(0, len(texts), _VARIABLES))
