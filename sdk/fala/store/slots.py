"""The tables of slots: each task's personal models, and which of them is active."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from fala.errors import DeviceError, UnknownAdapterError, model_changed
from fala.store.columns import (
    blob,
    bytes_of,
    cell_of,
    floats,
    number,
    optional_number,
    optional_text,
    per_tag,
    text,
    whole,
)
from fala.store.database import Database, damaged
from fala.store.encryption import BOUND_SLOT_COLUMNS, Codec
from fala.store.examples import prune_labels
from fala.store.records import FitRecord, LexicalRecord, Replacement, SlotRecord, Version

#: The names of the device's own slots; those of a further task have its adapter's before them.
SLOTS = ("a", "b")
#: The columns that ``_slot_of`` takes, in this order.
_SLOT_COLUMNS = (
    "name", "bundle", "backbone", "weight", "bias", "model", "teacher", "teacher_vendor",
    "threshold", "labels", "buckets", "lexical", "loss",
)  # fmt: skip
_ENCRYPTED = ("weight", "bias", "buckets", "lexical")
_FIT_COLUMNS = "fit_data, fit_examples, fit_further, fit_decision, fit_trust, fit_scales"


class Slots:
    """A task's slots, which of them is active, and the task's counts of changes.

    Args:
        database: The store's.
        adapter: The task's; empty for the device's own.
    """

    def __init__(self, database: Database, adapter: str) -> None:
        self._db, self._adapter = database, adapter

    # Which slot is active

    def version(self) -> Version:
        """The committed version.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.reader() as db:
            query = "SELECT generation, data FROM active WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        if row is None:
            raise self._not_installed()
        generation, data = row
        if not isinstance(generation, int) or not isinstance(data, int):
            raise DeviceError(damaged(self._db.path, "its counts of changes are damaged"))
        return Version(generation, data)

    def advance(self, expected: int) -> int:
        """Count a change of the active model. In a transaction.

        Returns:
            The new generation.

        Raises:
            DeviceChangedError: The generation differs: another thread or process was first.
        """
        with self._db.writer() as db:
            changed = db.execute(
                "UPDATE active SET generation = generation + 1"
                " WHERE adapter = ? AND generation = ?",
                (self._adapter, expected),
            )
        if changed.rowcount != 1:
            raise model_changed(self._db.path)
        return expected + 1

    def active(self) -> tuple[str, str | None]:
        """The active slot, and the one to roll back to.

        Raises:
            DeviceError: If no model was ever installed.
            UnknownAdapterError: No adapter of the task's name is installed.
        """
        with self._db.rows("its active slot is damaged") as db:
            query = "SELECT slot, previous FROM active WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
            if row is None:
                raise self._not_installed()
            return text(row[0]), optional_text(row[1])

    def activate(self, slot: str, previous: str | None) -> None:
        """Make a slot active, and delete all but the previous one. In a transaction.

        Their releases are written twice, in different pages of the file: a repair needs one.

        Args:
            slot: The slot.
            previous: The one to roll back to; None leaves none.
        """
        # Random, so that an adapter that is loaded again has another generation.
        first = secrets.randbits(40) if self._adapter else 0
        with self._db.writer() as db:
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
            row = "(SELECT bundle, labels FROM slots WHERE name = ?)"
            db.execute(
                f"UPDATE tasks SET (bundle, labels) = {row},"
                f" (previous_bundle, previous_labels) = {row} WHERE adapter = ?",
                (slot, previous, self._adapter),
            )

    def deactivate(self) -> None:
        """Leave the task, whose examples stay, without a slot. In a transaction."""
        with self._db.writer() as db:
            for table in ("active", "slots"):
                db.execute(f"DELETE FROM {table} WHERE adapter = ?", (self._adapter,))
        self._set_task(bundle=None, labels=None, previous_bundle=None, previous_labels=None)

    def adapters(self) -> list[str]:
        """The device's further tasks, by their adapters' names."""
        with self._db.rows("its adapters are damaged") as db:
            rows = db.execute("SELECT adapter FROM active WHERE adapter <> '' ORDER BY adapter")
            return [text(name) for (name,) in rows]

    # Their personal models

    def put(self, record: SlotRecord) -> None:
        """Write a slot's personal model. In a transaction."""
        codec = self._db.codec
        cells = _columns_of_slot(record)
        row = {
            column: codec.encode(value, *_context(cells, column))
            if column in _ENCRYPTED and isinstance(value, bytes)
            else value
            for column, value in cells.items()
        } | {"adapter": self._adapter}
        marks = ", ".join(f":{name}" for name in row)
        changes = ", ".join(f"{name} = excluded.{name}" for name in row)
        with self._db.writer() as db:
            db.execute(
                f"INSERT INTO slots ({', '.join(row)}) VALUES ({marks})"
                f" ON CONFLICT (name) DO UPDATE SET {changes}", row
            )  # fmt: skip
            written = db.execute("SELECT 1 FROM prompts WHERE backbone = ?", (record.backbone,))
            if record.prompt is not None and written.fetchone() is None:
                compiled = codec.encode(record.prompt, "prompts", record.backbone)
                db.execute("INSERT INTO prompts VALUES (?, ?)", (record.backbone, compiled))

    def get(self, name: str) -> SlotRecord:
        """Read a slot's personal model.

        Raises:
            DeviceError: If the slot was never written, or is damaged.
        """
        codec = self._db.codec
        with self._db.rows(f"slot {name:.60} is damaged") as db:
            query = f"SELECT {', '.join(_SLOT_COLUMNS)} FROM slots WHERE name = ?"
            row = db.execute(query, (name,)).fetchone()
            if row is None:
                raise DeviceError(f"{self._db.path}: slot {name:.60} is empty")
            record = _slot_of(row, codec)
            query = "SELECT compiled FROM prompts WHERE backbone = ?"
            prompt = db.execute(query, (record.backbone,)).fetchone()
            if prompt is None:
                return record
            return replace(record, prompt=codec.decode(prompt[0], "prompts", record.backbone))

    def bundle(self, name: str) -> str:
        """The digest of a slot's bundle, even where its personal model is damaged."""
        with self._db.rows(f"slot {name:.60} is damaged") as db:
            return text(
                db.execute("SELECT bundle FROM slots WHERE name = ?", (name,)).fetchone()[0]
            )

    def names(self) -> set[str]:
        """The names of the task's slots."""
        with self._db.rows("its slots are damaged") as db:
            rows = db.execute("SELECT name FROM slots WHERE adapter = ?", (self._adapter,))
            return {text(name) for (name,) in rows}

    def bundles(self) -> set[str]:
        """Digests of the bundles of all tasks' slots."""
        with self._db.rows("its slots are damaged") as db:
            return {text(digest) for (digest,) in db.execute("SELECT bundle FROM slots")}

    def fit(self, name: str) -> FitRecord | None:
        """The record of a slot's fit; None if it is unknown, or damaged."""
        with self._db.writer() as db:
            query = f"SELECT {_FIT_COLUMNS} FROM slots WHERE name = ?"
            row = db.execute(query, (name,)).fetchone()
        try:
            return None if row is None else _fit_of(row)
        except ValueError:
            return None

    def set_fit(self, name: str, record: FitRecord | None) -> None:
        """Write the record of a slot's fit; None deletes it. In a transaction."""
        values: list[object] = [None] * 6
        if record is not None:
            scales = np.array(record.scales, "<f8").tobytes()
            values = [
                record.data, record.fitted, record.further, record.decision,
                cell_of(record.trust), scales,
            ]  # fmt: skip
        marks = ", ".join("?" * len(values))
        with self._db.writer() as db:
            query = f"UPDATE slots SET ({_FIT_COLUMNS}) = ({marks}) WHERE name = ?"
            db.execute(query, (*values, name))
            prune_labels(db, self._adapter)

    # Their replacements

    def note_replacement(self, name: str, generation: int, data: int, before: str) -> None:
        """Note that a replacement installed a slot. In a transaction.

        Args:
            name: The slot.
            generation: The task's, after it.
            data: The task's count of data changes at which the old logits were computed.
            before: The slot that it replaces.
        """
        with self._db.writer() as db:
            db.execute(
                "UPDATE slots SET replaced_at = ?, replaced_data = ?, replaced_fit_data ="
                " (SELECT fit_data FROM slots WHERE name = ?) WHERE name = ?",
                (generation, data, before, name),
            )
            prune_labels(db, self._adapter)

    def replacements(self) -> dict[str, Replacement]:
        """The replacements that installed the task's slots, by name; without damaged ones."""
        with self._db.writer() as db:
            rows = db.execute(
                "SELECT name, replaced_at, replaced_data, replaced_fit_data"
                " FROM slots WHERE adapter = ?",
                (self._adapter,),
            ).fetchall()
        replacements: dict[str, Replacement] = {}
        for name, generation, data, fit_data in rows:
            with contextlib.suppress(ValueError):
                fitted = None if fit_data is None else whole(fit_data)
                replacements[text(name)] = Replacement(whole(generation), whole(data), fitted)
        return replacements

    def note_data(self) -> None:
        """Note the count of data changes at a switch of slots. In a transaction."""
        self._set_task(left_at=self.version().data)

    def data_changed(self) -> bool:
        """Whether an example or label was added since the last switch of slots."""
        (left_at,) = self._task("left_at")
        if not isinstance(left_at, int):
            return True
        with self._db.writer() as db:
            query = (
                "SELECT 1 FROM examples WHERE +adapter = ? AND"
                " (added_data > ? OR labelled_data > ?) LIMIT 1"
            )
            row = db.execute(query, (self._adapter, left_at, left_at)).fetchone()
        return row is not None

    # What belongs to the task

    def positive(self) -> str | None:
        """The label, of two, whose F1 thresholds are for; None is the release's second."""
        with self._db.rows("its settings are damaged"):
            return optional_text(self._task("positive")[0])

    def set_positive(self, label: str) -> None:
        """Write the label whose F1 thresholds are for. In a transaction."""
        self._set_task(positive=label)

    def tried_prompts(self) -> tuple[str, int] | None:
        """Digest of the release whose prompts were tried last, and on how many labels."""
        release, labels = self._task("tried_release, tried_labels")
        if isinstance(release, str) and isinstance(labels, int):
            return release, labels
        return None

    def set_tried_prompts(self, release: str | None, labels: int | None) -> None:
        """Write which prompts were tried; None deletes it. In a transaction."""
        self._set_task(tried_release=release, tried_labels=labels)

    def note_prompt(self, backbone: str, examples: Iterable[int]) -> None:
        """Write the examples of a prompt, before it is in use. In a transaction.

        The prompt is deleted when one of them is forgotten. Its keys and values are a function of
        their texts, and reveal as much of them as embeddings of each token would.

        Args:
            backbone: The provenance of the embeddings with the prompt.
            examples: Their ids.
        """
        with self._db.writer() as db:
            db.execute(
                "DELETE FROM prompt_examples WHERE adapter = ? AND (backbone = ?"
                " OR backbone NOT IN (SELECT backbone FROM slots WHERE adapter = ?))",
                (self._adapter, backbone, self._adapter),
            )
            rows = [(self._adapter, backbone, example) for example in examples]
            db.executemany("INSERT OR IGNORE INTO prompt_examples VALUES (?, ?, ?)", rows)

    def prompt_is_of(self, backbone: str, examples: Collection[int]) -> bool:
        """Whether a prompt has one of some examples; True if that is unknown."""
        with self._db.writer() as db:
            query = "SELECT example FROM prompt_examples WHERE adapter = ? AND backbone = ?"
            ids = {row for (row,) in db.execute(query, (self._adapter, backbone))}
        return not ids or not ids.isdisjoint(examples)

    def _last_count(self, db: sqlite3.Connection) -> int:
        """The largest count of data changes in the task's rows; 0 without any."""
        row = db.execute(
            "SELECT max(added_data, coalesce(labelled_data, 0)) FROM examples WHERE adapter = ?"
            " UNION ALL SELECT max(coalesce(replaced_data, 0), coalesce(fit_data, 0))"
            " FROM slots WHERE adapter = ? ORDER BY 1 DESC LIMIT 1",
            (self._adapter, self._adapter),
        ).fetchone()
        return 0 if row is None or not isinstance(row[0], int) else row[0]

    def _task(self, columns: str) -> tuple[object, ...]:
        with self._db.writer() as db:
            query = f"SELECT {columns} FROM tasks WHERE adapter = ?"
            row = db.execute(query, (self._adapter,)).fetchone()
        return (None,) * len(columns.split(", ")) if row is None else tuple(row)

    def _set_task(self, **values: object) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        with self._db.writer() as db:
            db.execute("INSERT OR IGNORE INTO tasks (adapter) VALUES (?)", (self._adapter,))
            query = f"UPDATE tasks SET {changes} WHERE adapter = ?"
            db.execute(query, (*values.values(), self._adapter))

    def _not_installed(self) -> DeviceError:
        if not self._adapter:
            return DeviceError(f"{self._db.path}: no model was ever installed")
        return UnknownAdapterError(
            f"{self._db.path.parent}: no adapter {self._adapter} is installed; load one with "
            "Device.load_adapter"
        )


def slots_of(adapter: str) -> tuple[str, ...]:
    """The names of a task's slots, by its adapter; empty for the device's own."""
    return tuple(f"{adapter}/{name}" if adapter else name for name in SLOTS)


def _slot_of(row: tuple[object, ...], codec: Codec) -> SlotRecord:
    """The slot of a row; see ``_SLOT_COLUMNS``.

    Raises:
        ValueError: It is damaged.
    """
    cells = dict(zip(_SLOT_COLUMNS, row, strict=True))
    name = text(cells["name"])
    weights = {
        column: codec.decode(cells[column], *_context(cells, column))
        for column in _ENCRYPTED
        if cells[column] is not None
    }
    bias = floats(weights.get("bias"))
    teacher, vendor = optional_text(cells["teacher"]), optional_text(cells["teacher_vendor"])
    return SlotRecord(
        name=name,
        bundle=text(cells["bundle"]),
        backbone=text(cells["backbone"]),
        weight=floats(weights.get("weight")).reshape(len(bias), -1),
        bias=bias,
        model=text(cells["model"]),
        teachers=None if teacher is None or vendor is None else (teacher, vendor),
        threshold=per_tag(cells["threshold"]),
        labels=labels_of(cells["labels"]),
        lexical=_lexical(weights.get("buckets"), weights.get("lexical"), len(bias)),
        loss=optional_number(cells["loss"]),
    )


def labels_of(value: object) -> tuple[str, ...]:
    """The labels of a slot's column.

    Raises:
        ValueError: They are damaged.
    """
    labels = json.loads(text(value))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("labels that are no list of names")
    return tuple(labels)


def _columns_of_slot(record: SlotRecord) -> dict[str, object]:
    """A slot's row, by column."""
    lexical = record.lexical
    teacher, vendor = record.teachers or (None, None)
    changed = {
        "weight": bytes_of(record.weight),
        "bias": bytes_of(record.bias),
        "teacher": teacher,
        "teacher_vendor": vendor,
        "threshold": cell_of(record.threshold),
        "labels": json.dumps(record.labels),
        "buckets": None if lexical is None else lexical.buckets.astype("<u2").tobytes(),
        "lexical": None if lexical is None else bytes_of(lexical.weight),
        "loss": None if record.loss is None else float(record.loss),
    }
    same = (name for name in _SLOT_COLUMNS if name not in changed)
    return {name: getattr(record, name) for name in same} | changed


def _context(cells: dict[str, object], column: str) -> tuple[object, ...]:
    """The context that an encrypted column of a slot is bound to."""
    return "slots", cells["name"], column, *(cells[name] for name in BOUND_SLOT_COLUMNS)


def _lexical(buckets: bytes | None, weight: bytes | None, logits: int) -> LexicalRecord | None:
    if buckets is None and weight is None:
        return None
    touched = np.frombuffer(blob(buckets), "<u2")
    if (np.diff(touched.astype(np.int64)) <= 0).any():
        raise ValueError("n-grams that are not in order")
    values = np.frombuffer(blob(weight), "<f4").reshape(logits, len(touched))
    return LexicalRecord(touched, values)


def _fit_of(row: tuple[object, ...]) -> FitRecord:
    """The record of a slot's fit, from its columns.

    Raises:
        ValueError: It is damaged, or missing.
    """
    data, fitted, further, decision, trust, scales = row
    counts = whole(data), whole(fitted), whole(further)
    values = tuple(number(scale) for scale in np.frombuffer(blob(scales), "<f8").tolist())
    shares = per_tag(trust)
    if min(counts) < 0 or not 0 <= np.min(shares) <= np.max(shares) <= 1:
        raise ValueError("a fit that cannot be")
    return FitRecord(*counts, text(decision), shares, values)
