"""The tables of slots: each task's personal models, and which of them is active."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DeviceError, UnknownAdapterError, model_changed
from fala.model.heads import OwnWords
from fala.model.links import PerTag
from fala.store.columns import (
    blob,
    encode_cell,
    encode_floats,
    floats,
    number,
    optional_number,
    optional_text,
    per_tag,
    text,
    whole,
)
from fala.store.database import Database, damaged
from fala.store.encryption import BOUND_SLOT_COLUMNS, SLOT_WEIGHTS, Codec
from fala.store.examples import prune_labels

#: The names of the device's own slots; those of a further task have its adapter's before them.
SLOTS = ("a", "b")
#: The columns of a slot's row that its record has, but the adapter.
_COLUMNS = (
    "name", "bundle", "backbone", "weight", "bias", "model", "teacher",
    "labels", "buckets", "lexical", "loss", "fit_data", "fit_examples", "fit_further",
    "fit_decision", "fit_trust", "fit_scales", "replaced_at", "replaced_data", "replaced_fit_data",
)  # fmt: skip


@dataclass(frozen=True)
class TaskState:
    """Which slots a task has.

    Attributes:
        generation: Counts the changes of the active model.
        data: Counts the changes of examples and labels.
        slot: The name of the active slot.
        previous: The one to roll back to; None without one.
        to_fit: Whether the active model is to be fitted to labels that are newer than its fit.
        positive: The label that a ranking is by; None is the release's.
    """

    generation: int
    data: int
    slot: str
    previous: str | None
    to_fit: bool
    positive: str | None


@dataclass(frozen=True)
class Replacement:
    """The replacement that installed a slot.

    Attributes:
        generation: The task's, after it.
        data: The task's count of data changes at which the old logits were computed.
        fit_data: The count at which the old model was fitted; None if it never was.
    """

    generation: int
    data: int
    fit_data: int | None


@dataclass(frozen=True)
class FitRecord:
    """The fit of a slot's personal model, to which further labels can be added.

    Attributes:
        data: The store's count of changes of examples and labels that it includes.
        fitted: How many examples the last full fit had.
        further: How many were added since.
        decision: Which of the compared models it is: see ``fala.solver.decision``.
        trust: Its share of the full fit; of tags one each.
        scales: The scales of the blocks, the slope and the bias.
    """

    data: int
    fitted: int
    further: int
    decision: str
    trust: PerTag
    scales: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class SlotRecord:
    """A slot's personal model.

    Attributes:
        name: The slot.
        bundle: SHA-256 of the bundle's manifest.
        backbone: The digest of its backbone, the provenance of its embeddings.
        weight: Its weights omega, float32, shape (C, d).
        bias: Shape (C,).
        model: Digest of backbone, head and weights, the provenance of logits.
        teacher: Digest of the personal model whose stored logits it was fitted to; None without.
        labels: The labels, in the device's order.
        words: The user's own weights of n-grams; None where they are the vendor's, or there are
            none.
        loss: Its leave-one-out cross-entropy on the labelled examples; None if unknown.
        fit: The record of its fit; None if it is unknown.
        replacement: The replacement that installed it; None if it is unknown.
    """

    name: str
    bundle: str
    backbone: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    model: str
    labels: tuple[str, ...]
    teacher: str | None = None
    words: OwnWords | None = None
    loss: float | None = None
    fit: FitRecord | None = None
    replacement: Replacement | None = None


class Slots:
    """A task's slots, which of them is active, and the task's counts of changes.

    Args:
        database: The store's.
        adapter: The task's; empty for the device's own.
    """

    def __init__(self, database: Database, adapter: str) -> None:
        self._db, self._adapter = database, adapter

    # Which slot is active

    def counts(self) -> tuple[int, int]:
        """The committed counts of changes, of the active model and of data; see ``TaskState``.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.connection() as db:
            query = "SELECT generation, data FROM active WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        if row is None:
            raise self._not_installed()
        return self._whole(*row)

    def state(self) -> TaskState:
        """Which slots the task has.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.rows("its active slot is damaged") as db:
            row = db.execute(
                "SELECT generation, data, slot, previous, to_fit, positive"
                " FROM active LEFT JOIN tasks USING (adapter) WHERE adapter = ?",
                (self._adapter,),
            ).fetchone()
            if row is None:
                raise self._not_installed()
            generation, data, slot, previous, to_fit, positive = row
            return TaskState(
                *self._whole(generation, data), text(slot), optional_text(previous),
                bool(whole(to_fit)), optional_text(positive),
            )  # fmt: skip

    def _whole(self, generation: object, data: object) -> tuple[int, int]:
        if not isinstance(generation, int) or not isinstance(data, int):
            raise DeviceError(damaged(self._db.path, "its counts of changes are damaged"))
        return generation, data

    def advance(self, expected: int, *, to_fit: bool | None = False) -> int:
        """Count a change of the active model. In a transaction.

        Args:
            expected: The generation before.
            to_fit: Whether the model is to be fitted to newer labels; None keeps it.

        Returns:
            The new generation.

        Raises:
            DeviceChangedError: The generation differs: another thread or process was first.
        """
        with self._db.connection() as db:
            changed = db.execute(
                "UPDATE active SET generation = generation + 1, to_fit = coalesce(?, to_fit)"
                " WHERE adapter = ? AND generation = ?",
                (to_fit, self._adapter, expected),
            )
        if changed.rowcount != 1:
            raise model_changed(self._db.path)
        return expected + 1

    def activate(self, slot: str, previous: str | None) -> None:
        """Make a slot active, and delete all but the previous one. In a transaction.

        Its release is written twice, in different pages of the file: a repair needs one.

        Args:
            slot: The slot.
            previous: The one to roll back to; None leaves none.
        """
        # Random, so that an adapter that is loaded again has another generation.
        first = secrets.randbits(40) if self._adapter else 0
        with self._db.connection() as db:
            db.execute(
                "INSERT INTO active (adapter, slot, previous, generation, data)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT (adapter)"
                " DO UPDATE SET slot = excluded.slot, previous = excluded.previous",
                (self._adapter, slot, previous, first, self._last_count(db)),
            )
            db.execute(
                "DELETE FROM slots WHERE adapter = ? AND name <> ? AND name IS NOT ?",
                (self._adapter, slot, previous),
            )
            db.execute("INSERT OR IGNORE INTO tasks (adapter) VALUES (?)", (self._adapter,))
            row = "SELECT bundle, labels FROM slots WHERE name = ?"
            query = f"UPDATE tasks SET (bundle, labels) = ({row}) WHERE adapter = ?"
            db.execute(query, (slot, self._adapter))

    def deactivate(self) -> None:
        """Leave the task, whose examples stay, without a slot. In a transaction."""
        with self._db.connection() as db:
            for table in ("active", "slots"):
                db.execute(f"DELETE FROM {table} WHERE adapter = ?", (self._adapter,))
            db.execute(
                "UPDATE tasks SET bundle = NULL, labels = NULL WHERE adapter = ?", (self._adapter,)
            )

    def adapters(self) -> list[str]:
        """The device's further tasks, by their adapters' names."""
        with self._db.rows("its adapters are damaged") as db:
            rows = db.execute("SELECT adapter FROM active WHERE adapter <> '' ORDER BY adapter")
            return [text(name) for (name,) in rows]

    # Their personal models

    def put(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        codec, cells = self._db.codec, _cells_of(record) | {"adapter": self._adapter}
        row = {
            column: codec.encode(value, *_context(cells, column))
            if column in SLOT_WEIGHTS and isinstance(value, bytes)
            else value
            for column, value in cells.items()
        }
        marks = ", ".join(f":{name}" for name in row)
        changes = ", ".join(f"{name} = excluded.{name}" for name in row)
        with self._db.connection() as db:
            db.execute(
                f"INSERT INTO slots ({', '.join(row)}) VALUES ({marks})"
                f" ON CONFLICT (name) DO UPDATE SET {changes}", row
            )  # fmt: skip

    def get(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written, or is damaged.
        """
        with self._db.rows(f"slot {name:.60} is damaged") as db:
            record = read_slot(db, name, self._db.codec)
            if record is None:
                raise DeviceError(f"{self._db.path}: slot {name:.60} is empty")
            return record

    def prune_labels(self) -> None:
        """Delete earlier labels that no slot's model was fitted to. In a transaction."""
        with self._db.connection() as db:
            prune_labels(db, self._adapter)

    def bundles(self) -> set[str]:
        """Digests of the bundles of all tasks' slots."""
        with self._db.rows("its slots are damaged") as db:
            return {text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def has_newer_data(self, record: SlotRecord) -> bool:
        """Whether an example or a label was added since a slot's fit."""
        since = -1 if record.fit is None else record.fit.data
        with self._db.connection() as db:
            query = (
                "SELECT 1 FROM examples WHERE +adapter = ? AND"
                " (added_data > ? OR labelled_data > ?) LIMIT 1"
            )
            row = db.execute(query, (self._adapter, since, since)).fetchone()
        return row is not None

    # What belongs to the task

    def positive(self) -> str | None:
        """The label that was chosen for rankings; None without a choice."""
        with self._db.rows("its settings are damaged") as db:
            query = "SELECT positive FROM tasks WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
            return None if row is None else optional_text(row[0])

    def set_positive(self, label: str) -> None:
        """Write the label that rankings are by. In a transaction."""
        with self._db.connection() as db:
            db.execute(
                "INSERT INTO tasks (adapter, positive) VALUES (?, ?)"
                " ON CONFLICT (adapter) DO UPDATE SET positive = excluded.positive",
                (self._adapter, label),
            )

    def _last_count(self, db: sqlite3.Connection) -> int:
        """The largest count of data changes in the task's rows; 0 without any."""
        row = db.execute(
            "SELECT max(added_data, coalesce(labelled_data, 0)) FROM examples WHERE adapter = ?"
            " UNION ALL SELECT max(coalesce(replaced_data, 0), coalesce(fit_data, 0))"
            " FROM slots WHERE adapter = ? ORDER BY 1 DESC LIMIT 1",
            (self._adapter, self._adapter),
        ).fetchone()
        return 0 if row is None or not isinstance(row[0], int) else row[0]

    def _not_installed(self) -> DeviceError:
        if not self._adapter:
            return DeviceError(f"{self._db.path}: no model was ever installed")
        loaded = f"there are {', '.join(names)}" if (names := self.adapters()) else "there is none"
        return UnknownAdapterError(
            f"{self._db.path.parent}: no adapter of this name is loaded; {loaded}; load one with "
            "Device.load_adapter"
        )


def slots_of(adapter: str) -> tuple[str, ...]:
    """The names of a task's slots, by its adapter; empty for the device's own."""
    return tuple(f"{adapter}/{name}" if adapter else name for name in SLOTS)


def read_slot(db: sqlite3.Connection, name: str, codec: Codec) -> SlotRecord | None:
    """Read a slot's row; None without one.

    Raises:
        ValueError: It is damaged.
    """
    row = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM slots WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    cells = dict(zip(_COLUMNS, row, strict=True))
    weights = {
        column: codec.decode(cells[column], *_context(cells, column))
        for column in SLOT_WEIGHTS
        if cells[column] is not None
    }
    bias = floats(weights.get("bias"))
    return SlotRecord(
        name=text(cells["name"]),
        bundle=text(cells["bundle"]),
        backbone=text(cells["backbone"]),
        weight=floats(weights.get("weight")).reshape(len(bias), -1),
        bias=bias,
        model=text(cells["model"]),
        teacher=optional_text(cells["teacher"]),
        labels=decode_labels(cells["labels"]),
        words=_words(weights.get("buckets"), weights.get("lexical"), len(bias)),
        loss=optional_number(cells["loss"]),
        fit=_decode_fit(cells),
        replacement=_decode_replacement(cells),
    )


def decode_labels(value: object) -> tuple[str, ...]:
    """The labels of a slot's column.

    Raises:
        ValueError: They are damaged.
    """
    labels = json.loads(text(value))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("labels that are no list of names")
    return tuple(labels)


def _cells_of(record: SlotRecord) -> dict[str, object]:
    """A slot's row, by column; the inverse of ``read_slot``."""
    cells: dict[str, object] = dict.fromkeys(_COLUMNS) | {
        "name": record.name,
        "bundle": record.bundle,
        "backbone": record.backbone,
        "weight": encode_floats(record.weight),
        "bias": encode_floats(record.bias),
        "model": record.model,
        "teacher": record.teacher,
        "labels": json.dumps(record.labels),
        "loss": None if record.loss is None else float(record.loss),
    }
    if (words := record.words) is not None:
        cells["buckets"] = words.buckets.astype("<u2").tobytes()
        cells["lexical"] = encode_floats(np.column_stack([words.factor, words.weight]))
    if (fit := record.fit) is not None:
        cells["fit_data"], cells["fit_examples"] = fit.data, fit.fitted
        cells["fit_further"], cells["fit_decision"] = fit.further, fit.decision
        cells["fit_trust"] = encode_cell(fit.trust)
        cells["fit_scales"] = np.array(fit.scales, "<f8").tobytes()
    if (replacement := record.replacement) is not None:
        cells["replaced_at"], cells["replaced_data"] = replacement.generation, replacement.data
        cells["replaced_fit_data"] = replacement.fit_data
    return cells


def _context(cells: Mapping[str, object], column: str) -> tuple[object, ...]:
    """The context that an encrypted column of a slot is bound to."""
    return "slots", cells["name"], column, *(cells[name] for name in BOUND_SLOT_COLUMNS)


def _words(buckets: bytes | None, weight: bytes | None, logits: int) -> OwnWords | None:
    if buckets is None and weight is None:
        return None
    touched = np.frombuffer(blob(buckets), "<u2")
    if (np.diff(touched.astype(np.int64)) <= 0).any():
        raise ValueError("n-grams that are not in order")
    values = floats(weight).reshape(logits, 1 + len(touched))
    return OwnWords(values[:, 0], touched, values[:, 1:])


def _decode_fit(cells: Mapping[str, object]) -> FitRecord | None:
    """The record of a slot's fit; None if it is missing or damaged."""
    try:
        counts = whole(cells["fit_data"]), whole(cells["fit_examples"]), whole(cells["fit_further"])
        scales = np.frombuffer(blob(cells["fit_scales"]), "<f8").tolist()
        shares = per_tag(cells["fit_trust"])
        if min(counts) < 0 or len(scales) < 3 or not 0 <= np.min(shares) <= np.max(shares) <= 1:
            return None
        decision = text(cells["fit_decision"])
        return FitRecord(*counts, decision, shares, tuple(map(number, scales)))
    except ValueError:
        return None


def _decode_replacement(cells: Mapping[str, object]) -> Replacement | None:
    """The replacement that installed a slot; None if its record is missing or damaged."""
    try:
        fit_data = cells["replaced_fit_data"]
        fitted = None if fit_data is None else whole(fit_data)
        return Replacement(whole(cells["replaced_at"]), whole(cells["replaced_data"]), fitted)
    except ValueError:
        return None
