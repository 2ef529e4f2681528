"""What a device knows: one SQLite file.

Texts, examples and labels are the user's and are never dropped by a replacement. Embeddings and
logits carry the digest of what made them. Which slot answers, and each slot's personal matrix, are
rows of the same file, so that a change of model is one transaction: a device killed at any instant
comes back with the old model or the new one, whole.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fala.errors import DataError, DeviceError
from fala.examples import Example, Match, texts_of, unique_texts

#: Milliseconds that a writer waits for another process to finish.
BUSY_TIMEOUT_MS = 5_000
# SQLite's oldest limit on variables in a statement is 999.
_VARIABLES = 900

# Statements that lead from version i to version i + 1 of the schema; a released step never changes.
_MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE texts (
        id INTEGER PRIMARY KEY,
        text TEXT NOT NULL UNIQUE
    );
    CREATE TABLE examples (
        id INTEGER PRIMARY KEY,
        document INTEGER NOT NULL REFERENCES texts (id),
        history TEXT NOT NULL,
        label TEXT,
        UNIQUE (document, history)
    );
    CREATE TABLE embeddings (
        text INTEGER NOT NULL REFERENCES texts (id),
        backbone TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (text, backbone)
    ) WITHOUT ROWID;
    CREATE TABLE logits (
        example INTEGER NOT NULL REFERENCES examples (id),
        model TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (example, model)
    ) WITHOUT ROWID;
    CREATE TABLE slots (
        name TEXT PRIMARY KEY,
        bundle TEXT NOT NULL,
        backbone TEXT NOT NULL,
        theta BLOB NOT NULL,
        bias BLOB NOT NULL,
        model TEXT NOT NULL,
        teacher TEXT,
        teacher_vendor TEXT
    ) WITHOUT ROWID;
    CREATE TABLE active (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        slot TEXT NOT NULL REFERENCES slots (name),
        previous TEXT REFERENCES slots (name)
    );
    """,
    """
    ALTER TABLE slots ADD COLUMN threshold REAL NOT NULL DEFAULT 0;
    CREATE TABLE views (
        slot TEXT PRIMARY KEY REFERENCES slots (name) ON DELETE CASCADE,
        bundle TEXT NOT NULL,
        backbone TEXT NOT NULL,
        theta BLOB NOT NULL,
        bias BLOB NOT NULL,
        weight BLOB NOT NULL
    ) WITHOUT ROWID;
    """,
)


@dataclass(frozen=True)
class ViewRecord:
    """An earlier backbone's model that answers beside a slot's own.

    Attributes:
        bundle: SHA-256 of its bundle's manifest.
        backbone: Digest of its backbone.
        theta: Its personal matrix's diagonals, float32, shape (C, d).
        bias: Shape (C,).
        weight: What its logits are multiplied by, shape (C,).
    """

    bundle: str
    backbone: str
    theta: NDArray[np.float32]
    bias: NDArray[np.float32]
    weight: NDArray[np.float32]


@dataclass(frozen=True)
class SlotRecord:
    """A slot's personal model.

    Attributes:
        name: The slot.
        bundle: SHA-256 of the bundle's manifest.
        backbone: Digest of its backbone, the provenance of embeddings.
        theta: The personal matrix's diagonals, float32, shape (C, d).
        bias: Shape (C,).
        model: Digest of backbone, head and personal matrix, the provenance of logits.
        teacher: Digest of the personal model whose stored logits it was fitted to, if any.
        teacher_vendor: Digest of that one's vendor model, whose logits are stored beside them.
        threshold: Logit above which the second of two labels is decided.
        view: The earlier model that answers beside it, if any.
    """

    name: str
    bundle: str
    backbone: str
    theta: NDArray[np.float32]
    bias: NDArray[np.float32]
    model: str
    teacher: str | None
    teacher_vendor: str | None
    threshold: float = 0.0
    view: ViewRecord | None = None


@dataclass(frozen=True)
class StoredExample:
    """An example with its label, None where the user gave none."""

    id: int
    example: Example
    label: str | None


class Store:
    """The device's SQLite file.

    Args:
        path: The file; its folder exists.
        create: Make a new file instead of opening one.

    Raises:
        DeviceError: If the file is missing, damaged, in use for too long, or from a newer SDK.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        if not create and not path.is_file():
            raise DeviceError(f"{path}: no such store")
        with self._named_errors():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
                self._db.execute("PRAGMA journal_mode = WAL")
                # A commit that was reported is on the disk, even if the power goes.
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._migrate()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside is kept, or none of it."""
        with self._named_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def remember(self, examples: Sequence[Example], labels: Sequence[str | None]) -> None:
        """Keep examples; a label replaces an earlier one, None leaves it. In a transaction."""
        texts = unique_texts(examples)
        self._db.executemany(
            "INSERT OR IGNORE INTO texts (text) VALUES (?)", ((text,) for text in texts)
        )
        ids = self._text_ids(texts)
        rows = []
        for example, label in zip(examples, labels, strict=True):
            document, *history = (ids[text] for text in texts_of(example))
            kind = json.dumps(history) if isinstance(example, Match) else ""
            rows.append((document, kind, label))
        self._db.executemany(
            "INSERT INTO examples (document, history, label) VALUES (?, ?, ?)"
            " ON CONFLICT (document, history) DO UPDATE"
            " SET label = coalesce(excluded.label, label)",
            rows,
        )

    def examples(self) -> list[StoredExample]:
        """All examples, in the order in which they came."""
        with self._named_errors():
            texts = dict(self._db.execute("SELECT id, text FROM texts"))
            rows = self._db.execute(
                "SELECT id, document, history, label FROM examples ORDER BY id"
            ).fetchall()
        return [
            StoredExample(
                id=row,
                example=Match(tuple(texts[i] for i in json.loads(history)), texts[document])
                if history
                else texts[document],
                label=label,
            )
            for row, document, history, label in rows
        ]

    def add_embeddings(self, backbone: str, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep embeddings in float16, by text; their texts are known. In a transaction.

        Raises:
            DataError: If a number does not fit float16.
        """
        ids = self._text_ids(list(embeddings))
        rows = []
        for text, vector in embeddings.items():
            with np.errstate(over="ignore"):
                half = vector.astype("<f2")
            if not np.isfinite(half).all():
                raise DataError("an embedding is not finite in float16")
            rows.append((ids[text], backbone, half.tobytes()))
        self._db.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)

    def embeddings(self, backbone: str) -> dict[str, NDArray[np.float32]]:
        """All embeddings that a backbone made, by text."""
        with self._named_errors():
            rows = self._db.execute(
                "SELECT text.text, vector FROM embeddings JOIN texts AS text"
                " ON text.id = embeddings.text WHERE backbone = ?",
                (backbone,),
            ).fetchall()
        if not rows:
            return {}
        try:
            # All at once: an array for each would cost more than reading them.
            half = np.frombuffer(b"".join(blob for _, blob in rows), "<f2")
            vectors = half.reshape(len(rows), -1).astype(np.float32)
        except ValueError as error:
            raise DeviceError(f"{self._path}: its embeddings are damaged: {error}") from error
        return dict(zip((text for text, _ in rows), vectors, strict=True))

    def has_embeddings(self, backbone: str) -> bool:
        """Whether there is an embedding that a backbone made."""
        with self._named_errors():
            row = self._db.execute(
                "SELECT 1 FROM embeddings WHERE backbone = ? LIMIT 1", (backbone,)
            ).fetchone()
        return row is not None

    def add_logits(self, model: str, logits: Mapping[int, NDArray[np.float32]]) -> None:
        """Keep a model's logits (C,), by example. In a transaction."""
        self._db.executemany(
            "INSERT OR REPLACE INTO logits VALUES (?, ?, ?)",
            ((row, model, value.astype("<f4").tobytes()) for row, value in logits.items()),
        )

    def logits(self, model: str) -> dict[int, NDArray[np.float32]]:
        """A model's stored logits (C,), by example."""
        with self._named_errors():
            rows = self._db.execute("SELECT example, value FROM logits WHERE model = ?", (model,))
            return {row: np.frombuffer(blob, "<f4") for row, blob in rows}

    def put_slot(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        self._db.execute(
            "INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.name,
                record.bundle,
                record.backbone,
                _blob(record.theta),
                _blob(record.bias),
                record.model,
                record.teacher,
                record.teacher_vendor,
                record.threshold,
            ),
        )
        view = record.view
        self._db.execute("DELETE FROM views WHERE slot = ?", (record.name,))
        if view is not None:
            blobs = (_blob(view.theta), _blob(view.bias), _blob(view.weight))
            self._db.execute(
                "INSERT INTO views VALUES (?, ?, ?, ?, ?, ?)",
                (record.name, view.bundle, view.backbone, *blobs),
            )

    def slot(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written.
        """
        with self._named_errors():
            row = self._db.execute("SELECT * FROM slots WHERE name = ?", (name,)).fetchone()
            seen = self._db.execute("SELECT * FROM views WHERE slot = ?", (name,)).fetchone()
        if row is None:
            raise DeviceError(f"{self._path}: slot {name} is empty")
        name, bundle, backbone, theta, bias, model, teacher, teacher_vendor, threshold = row
        try:
            view = None
            if seen is not None:
                view_bundle, view_backbone, view_theta, view_bias, weight = seen[1:]
                matrix = _matrix(view_theta, view_bias)
                view = ViewRecord(view_bundle, view_backbone, *matrix, np.frombuffer(weight, "<f4"))
            return SlotRecord(
                name, bundle, backbone, *_matrix(theta, bias), model, teacher, teacher_vendor,
                threshold, view,
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise DeviceError(f"{self._path}: slot {name} is damaged: {error}") from error

    def bundles(self) -> set[str]:
        """Digests of all slots' bundles, and of their views'."""
        with self._named_errors():
            rows = self._db.execute("SELECT bundle FROM slots UNION SELECT bundle FROM views")
            return {digest for (digest,) in rows}

    def activate(self, slot: str, previous: str | None) -> None:
        """Let a slot answer; ``previous`` is the one to roll back to. In a transaction."""
        self._db.execute("INSERT OR REPLACE INTO active VALUES (1, ?, ?)", (slot, previous))

    def active(self) -> tuple[str, str | None]:
        """The slot that answers, and the one to roll back to.

        Raises:
            DeviceError: If no model was ever installed.
        """
        with self._named_errors():
            row = self._db.execute("SELECT slot, previous FROM active").fetchone()
        if row is None:
            raise DeviceError(f"{self._path}: no model was ever installed")
        slot, previous = row
        return slot, previous

    def prune(self, sources: Iterable[str] = ()) -> None:
        """Drop embeddings and logits that no slot can use any more. In a transaction.

        Args:
            sources: Digests of further backbones whose embeddings are of use: those from which
                a bridge of a slot's bundle starts.
        """
        kept = list(sources)
        marks = ",".join("?" * len(kept))
        self._db.execute(
            "DELETE FROM embeddings WHERE backbone NOT IN"
            " (SELECT backbone FROM slots UNION SELECT backbone FROM views)"
            f" AND backbone NOT IN ({marks})",
            kept,
        )
        self._db.execute(
            "DELETE FROM logits WHERE model NOT IN"
            " (SELECT teacher FROM slots WHERE teacher IS NOT NULL"
            " UNION SELECT teacher_vendor FROM slots WHERE teacher_vendor IS NOT NULL)"
        )

    def _text_ids(self, texts: Sequence[str]) -> dict[str, int]:
        ids: dict[str, int] = {}
        for start in range(0, len(texts), _VARIABLES):
            part = texts[start : start + _VARIABLES]
            marks = ",".join("?" * len(part))
            rows = self._db.execute(f"SELECT text, id FROM texts WHERE text IN ({marks})", part)
            ids.update(rows)
        return ids

    def _migrate(self) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(_MIGRATIONS):
            raise DeviceError(
                f"{self._path}: written by a newer fala (schema {version}, this one knows "
                f"{len(_MIGRATIONS)}); update fala"
            )
        for step in range(version, len(_MIGRATIONS)):
            # executescript commits what is open; so the transaction is in the script.
            self._db.executescript(
                f"BEGIN IMMEDIATE; {_MIGRATIONS[step]} PRAGMA user_version = {step + 1}; COMMIT;"
            )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DeviceError(f"{self._path}: {error}") from error


def _blob(array: NDArray[np.float32]) -> bytes:
    return array.astype("<f4").tobytes()


def _matrix(theta: bytes, bias: bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    offsets = np.frombuffer(bias, "<f4")
    return np.frombuffer(theta, "<f4").reshape(len(offsets), -1), offsets
