"""The tables of slots: the personal models of each task, and the choice of the active one."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import DeviceError, UnknownAdapterError, model_changed
from fala.model.heads import OwnNgrams
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
    put_rows,
    text,
    whole,
)
from fala.store.database import Database
from fala.store.encryption import BOUND_SLOT_COLUMNS, SLOT_WEIGHTS, Codec

#: The names of the device's own slots; a further task's slots have the adapter's name in front.
SLOTS = ("a", "b")
#: The columns of a slot's row that its record has; the adapter's column is not in the record.
_COLUMNS = (
    "name", "bundle", "backbone", "weight", "bias", "model", "teacher",
    "labels", "buckets", "lexical", "loss", "fit_data", "fit_examples", "fit_further",
    "fit_decision", "fit_mixing", "fit_scales", "replaced_at", "replaced_data", "replaced_fit_data",
)  # fmt: skip


@dataclass(frozen=True)
class TaskState:
    """The slots of a task.

    Attributes:
        generation: Number of changes of the active model.
        data: Number of changes of examples and labels.
        slot: The name of the active slot.
        previous: The name of the slot to roll back to; None if there is none.
        to_fit: Whether the active model still has to be fitted to labels that are newer than its
            fit.
        positive: The label that rankings are by; None for the release's own choice.
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
        generation: The task's generation after the replacement.
        data: The task's count of data changes at which the old logits were computed.
        fit_data: The count of data changes at which the old model was fitted; None if it never was.
    """

    generation: int
    data: int
    fit_data: int | None


@dataclass(frozen=True)
class FitRecord:
    """The fit of a slot's personal model, to which further labels can be added.

    Attributes:
        data: The store's count of changes of examples and labels that the fit includes.
        fitted: Number of examples in the last full fit.
        further: Number of examples that were added since.
        decision: The name of the compared model that was chosen; see ``fala.solver.decision``.
        mixing: The mixing weight: the model's share of the full fit, one per tag for tags.
        scales: The prior scales of the blocks, the slope and the bias.
    """

    data: int
    fitted: int
    further: int
    decision: str
    mixing: PerTag
    scales: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class SlotRecord:
    """A slot's personal model.

    Attributes:
        name: The name of the slot.
        bundle: SHA-256 of the bundle's manifest.
        backbone: The digest of the backbone, which is the provenance of its embeddings.
        weight: The weights omega, float32, shape (C, d).
        bias: The biases, shape (C,).
        model: The digest of backbone, head and weights, which is the provenance of logits.
        teacher: The digest of the personal model whose stored logits the fit used; None if none
            did.
        labels: The labels, in the device's order.
        ngrams: The user's own weights of n-grams; None if they are the vendor's, or there are none.
        loss: The leave-one-out cross-entropy on the labelled examples; None if unknown.
        fit: The record of the fit; None if unknown.
        replacement: The replacement that installed the slot; None if unknown.
    """

    name: str
    bundle: str
    backbone: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    model: str
    labels: tuple[str, ...]
    teacher: str | None = None
    ngrams: OwnNgrams | None = None
    loss: float | None = None
    fit: FitRecord | None = None
    replacement: Replacement | None = None


class Slots:
    """A task's slots, the choice of the active one, and the task's counts of changes.

    Args:
        database: The store's file.
        adapter: The name of the task's adapter; empty for the device's own task.
    """

    def __init__(self, database: Database, adapter: str) -> None:
        self._db, self._adapter = database, adapter

    # Which slot is active

    def state(self) -> TaskState:
        """Return the slots of the task, as they are committed.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: If no adapter of the task's name is installed.
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
                whole(generation), whole(data), text(slot), optional_text(previous),
                bool(whole(to_fit)), optional_text(positive),
            )  # fmt: skip

    def advance(self, expected: int, *, to_fit: bool | None = False) -> int:
        """Count a change of the active model. Call it in a transaction.

        Args:
            expected: The generation before the change.
            to_fit: Whether the model still has to be fitted to newer labels; None keeps the
                setting.

        Returns:
            The new generation.

        Raises:
            DeviceChangedError: If the generation differs, because another thread or process was
                first.
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
        """Make a slot active, and delete all slots but the previous one. Call it in a transaction.

        Its release is written twice, in different pages of the file, because a repair needs one of
        them.

        Args:
            slot: The name of the slot.
            previous: The name of the slot to roll back to; None keeps no other slot.
        """
        # The generation begins at random, so that it changes when an adapter is loaded again.
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
        """Leave the task without a slot, and keep its examples. Call it in a transaction."""
        with self._db.connection() as db:
            for table in ("active", "slots"):
                db.execute(f"DELETE FROM {table} WHERE adapter = ?", (self._adapter,))
            db.execute(
                "UPDATE tasks SET bundle = NULL, labels = NULL WHERE adapter = ?", (self._adapter,)
            )

    def adapters(self) -> list[str]:
        """Return the names of the adapters of the device's further tasks."""
        with self._db.rows("its adapters are damaged") as db:
            rows = db.execute("SELECT adapter FROM active WHERE adapter <> '' ORDER BY adapter")
            return [text(name) for (name,) in rows]

    # Their personal models

    def put(self, record: SlotRecord) -> None:
        """Write a slot's personal model. Call it in a transaction."""
        codec, cells = self._db.codec, _cells_of(record) | {"adapter": self._adapter}
        row = {
            column: codec.encode(value, *_context(cells, column))
            if column in SLOT_WEIGHTS and isinstance(value, bytes)
            else value
            for column, value in cells.items()
        }
        with self._db.connection() as db:
            put_rows(db, f"slots ({', '.join(row)})", [tuple(row.values())])

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

    def bundles(self) -> set[str]:
        """Return the digests of the bundles of all tasks' slots."""
        with self._db.rows("its slots are damaged") as db:
            return {text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def has_newer_data(self, record: SlotRecord) -> bool:
        """Return whether an example or a label was added since a slot's fit."""
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
        """Return the label that was chosen for rankings; None if none was."""
        with self._db.rows("its settings are damaged") as db:
            query = "SELECT positive FROM tasks WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
            return None if row is None else optional_text(row[0])

    def set_positive(self, label: str) -> None:
        """Write the label that rankings are by. Call it in a transaction."""
        with self._db.connection() as db:
            db.execute(
                "INSERT INTO tasks (adapter, positive) VALUES (?, ?)"
                " ON CONFLICT (adapter) DO UPDATE SET positive = excluded.positive",
                (self._adapter, label),
            )

    def _last_count(self, db: sqlite3.Connection) -> int:
        """Return the largest count of data changes in the task's rows; 0 if there is none."""
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
        loaded = f"loaded: {', '.join(names)}" if (names := self.adapters()) else "none is loaded"
        return UnknownAdapterError(
            f"{self._db.path.parent}: no adapter has this name ({loaded}); load it with "
            "Device.load_adapter"
        )


def slots_of(adapter: str) -> tuple[str, ...]:
    """Return the names of a task's slots, given its adapter; empty for the device's own task."""
    return tuple(f"{adapter}/{name}" if adapter else name for name in SLOTS)


def read_slot(db: sqlite3.Connection, name: str, codec: Codec) -> SlotRecord | None:
    """Read a slot's row; None if there is none.

    Raises:
        ValueError: If the row is damaged.
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
        ngrams=_ngrams(weights.get("buckets"), weights.get("lexical"), len(bias)),
        loss=optional_number(cells["loss"]),
        fit=_decode_fit(cells),
        replacement=_decode_replacement(cells),
    )


def decode_labels(value: object) -> tuple[str, ...]:
    """Decode the labels in a slot's column.

    Raises:
        ValueError: If the labels are damaged.
    """
    labels = json.loads(text(value))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("the labels are not a list of names")
    return tuple(labels)


def _cells_of(record: SlotRecord) -> dict[str, object]:
    """Return a slot's row, by column; the inverse of ``read_slot``."""
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
    if (ngrams := record.ngrams) is not None:
        cells["buckets"] = ngrams.buckets.astype("<u2").tobytes()
        cells["lexical"] = encode_floats(np.column_stack([ngrams.factor, ngrams.weight]))
    if (fit := record.fit) is not None:
        cells["fit_data"], cells["fit_examples"] = fit.data, fit.fitted
        cells["fit_further"], cells["fit_decision"] = fit.further, fit.decision
        cells["fit_mixing"] = encode_cell(fit.mixing)
        cells["fit_scales"] = np.array(fit.scales, "<f8").tobytes()
    if (replacement := record.replacement) is not None:
        cells["replaced_at"], cells["replaced_data"] = replacement.generation, replacement.data
        cells["replaced_fit_data"] = replacement.fit_data
    return cells


def _context(cells: Mapping[str, object], column: str) -> tuple[object, ...]:
    """Return the context that an encrypted column of a slot is bound to."""
    return "slots", cells["name"], column, *(cells[name] for name in BOUND_SLOT_COLUMNS)


def _ngrams(buckets: bytes | None, weight: bytes | None, logits: int) -> OwnNgrams | None:
    if buckets is None and weight is None:
        return None
    touched = np.frombuffer(blob(buckets), "<u2")
    if (np.diff(touched.astype(np.int64)) <= 0).any():
        raise ValueError("the n-grams are not in order")
    values = floats(weight).reshape(logits, 1 + len(touched))
    return OwnNgrams(values[:, 0], touched, values[:, 1:])


def _decode_fit(cells: Mapping[str, object]) -> FitRecord | None:
    """Decode the record of a slot's fit; None if it is missing or damaged."""
    try:
        counts = whole(cells["fit_data"]), whole(cells["fit_examples"]), whole(cells["fit_further"])
        scales = np.frombuffer(blob(cells["fit_scales"]), "<f8").tolist()
        shares = per_tag(cells["fit_mixing"])
        if min(counts) < 0 or len(scales) < 3 or not 0 <= np.min(shares) <= np.max(shares) <= 1:
            return None
        decision = text(cells["fit_decision"])
        return FitRecord(*counts, decision, shares, tuple(map(number, scales)))
    except ValueError:
        return None


def _decode_replacement(cells: Mapping[str, object]) -> Replacement | None:
    """Decode the replacement that installed a slot; None if its record is missing or damaged."""
    try:
        fit_data = cells["replaced_fit_data"]
        fitted = None if fit_data is None else whole(fit_data)
        return Replacement(whole(cells["replaced_at"]), whole(cells["replaced_data"]), fitted)
    except ValueError:
        return None
