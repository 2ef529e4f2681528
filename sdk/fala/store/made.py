"""What was made of a store's texts and examples: embeddings and logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError
from fala.store.rows import DIMENSION, dimension_of, floats, vectors_of, whole
from fala.store.rows import text as as_text
from fala.store.settings import Settings

# SQLite's oldest limit on variables in a statement is 999.
_VARIABLES = 900


class Made(Settings):
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
                    rows.append((ids[text], backbone, half.tobytes()))
            db.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)
            if rows:
                self.set(DIMENSION + backbone, str(len(rows[0][2]) // 2))

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
            size = dimension_of(self.get(DIMENSION + backbone))
            vectors = vectors_of([part for _, part in rows], size)
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

    def forget_logits(self, model: str) -> None:
        """Delete a model's logits. In a transaction."""
        with self._db.writer() as db:
            db.execute("DELETE FROM logits WHERE model = ?", (model,))

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


def _parts(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    return (texts[start : start + _VARIABLES] for start in range(0, len(texts), _VARIABLES))
