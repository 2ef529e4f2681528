"""The tables of embeddings, by text, and of old logits, by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DataError
from fala.base.examples import as_text
from fala.store.columns import encode_floats, floats, put_rows, rows_in, whole
from fala.store.database import Database
from fala.store.encryption import decode_text
from fala.store.texts import Texts

_EMBEDDINGS = (
    "SELECT text.id, text.text, text.sealed, vector FROM embeddings JOIN texts AS text"
    " ON text.id = embeddings.text WHERE backbone = ?"
)
_EXAMPLES = "SELECT id, document, history FROM examples WHERE adapter = ?"


class EmbeddingTable:
    """Embeddings of texts in float16, by the digest of their backbone; all tasks share them.

    Args:
        database: The store's file.
        texts: The table of texts.
    """

    def __init__(self, database: Database, texts: Texts) -> None:
        self._db, self._texts = database, texts

    def add(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Store embeddings of those texts that are in the store. Call it in a transaction.

        Raises:
            DataError: If a number does not fit float16.
        """
        with self._db.connection() as db:
            ids, codec = self._texts.ids(list(embeddings)), self._db.codec
            rows = []
            for name, vector in embeddings.items():
                half = _half(vector)
                # A text that was forgotten while it was encoded leaves nothing behind.
                if name in ids:
                    row = ids[name]
                    context = ("embeddings", row, backbone, codec.lookup(name))
                    rows.append((row, backbone, codec.encode(half.tobytes(), *context)))
            put_rows(db, "embeddings", rows)

    def get(
        self, backbone: str, texts: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return a backbone's embeddings, by text.

        Args:
            backbone: The digest of the backbone.
            texts: The texts; None for all.
        """
        if texts is not None and not texts:
            return {}
        with self._db.rows("its embeddings are damaged") as db:
            codec = self._db.codec
            if texts is None:
                rows = db.execute(_EMBEDDINGS, (backbone,)).fetchall()
            else:
                names = [codec.lookup(name) for name in texts]
                rows = rows_in(db, f"{_EMBEDDINGS} AND text.text", names, backbone)
            vectors = [
                codec.decode(value, "embeddings", row, backbone, name)
                for row, name, _, value in rows
            ]
            decoded = (as_text(decode_text(codec, *row[:3])) for row in rows)
            return dict(zip(decoded, decode_vectors(vectors), strict=True))

    def has(self, backbone: str) -> bool:
        """Return whether there is an embedding of a backbone."""
        with self._db.connection() as db:
            query = "SELECT 1 FROM embeddings WHERE backbone = ? LIMIT 1"
            return db.execute(query, (backbone,)).fetchone() is not None


class Logits:
    """Old logits of a task's examples, minus the vendor's logits, by the digest of their model.

    Args:
        database: The store's file.
        adapter: The name of the task's adapter; empty for the device's own task.
    """

    def __init__(self, database: Database, adapter: str) -> None:
        self._db, self._adapter = database, adapter

    def add(self, model: str, logits: Mapping[int, NDArray[np.float32]]) -> None:
        """Store a model's logits (C,), by example. Call it in a transaction."""
        with self._db.connection() as db:
            codec, rows = self._db.codec, []
            examples = db.execute(_EXAMPLES, (self._adapter,)) if codec.encrypted else ()
            contexts = {row: texts for row, *texts in examples}
            for row, value in logits.items():
                context = ("logits", row, model, *contexts.get(row, ()))
                rows.append((row, model, codec.encode(encode_floats(value), *context)))
            put_rows(db, "logits", rows)

    def get(self, model: str) -> dict[int, NDArray[np.float32]]:
        """Return a model's logits (C,), by example."""
        with self._db.rows("its logits are damaged") as db:
            rows = db.execute(
                "SELECT example, value, document, history FROM logits"
                " JOIN examples ON id = example WHERE adapter = ? AND model = ?",
                (self._adapter, model),
            )
            decode = self._db.codec.decode
            logits = {
                whole(row): floats(decode(value, "logits", row, model, *texts))
                for row, value, *texts in rows
            }
            if len({len(value) for value in logits.values()}) > 1:
                raise ValueError("the logits have different lengths")
            return logits


def decode_vectors(blobs: Sequence[bytes]) -> NDArray[np.float32]:
    """Decode embeddings from their columns into an array of shape (n, d).

    Args:
        blobs: The n embeddings in float16.

    Raises:
        ValueError: If an embedding is damaged.
    """
    if not blobs:
        return np.empty((0, 0), dtype=np.float32)
    length = len(blobs[0])
    if not length or any(len(part) != length for part in blobs):
        raise ValueError("an embedding has another length than the first one")
    # All embeddings are read as one array, because making an array for each costs more than reading
    # them.
    half = np.frombuffer(b"".join(blobs), "<f2").reshape(len(blobs), -1)
    vectors = half.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ValueError("an embedding is not finite")
    return vectors


def as_stored(embeddings: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return embeddings as a store returns them, rounded to float16.

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
