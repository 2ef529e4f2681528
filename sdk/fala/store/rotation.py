"""Writing all records of a store anew, under another key."""

from __future__ import annotations

import sqlite3

from fala.store.columns import SLOT_COLUMNS, blob, text, whole
from fala.store.sealing import (
    Plain,
    column_of_compiled,
    column_of_label,
    column_of_made,
    columns_of_slot,
    columns_of_text,
    compiled_of,
    label_of,
    made_of,
    slot_row_of,
    text_of,
)


def rotate(db: sqlite3.Connection, old: Plain, new: Plain) -> None:
    """Open every record, and seal it anew. In a transaction.

    Args:
        db: The store's connection.
        old: What the records are sealed by.
        new: What they are to be.

    Raises:
        ValueError: A record is damaged.
    """
    for row, name, sealed in db.execute("SELECT id, text, sealed FROM texts").fetchall():
        known = columns_of_text(new, row, text(text_of(old, row, name, sealed)))
        db.execute("UPDATE texts SET text = ?, sealed = ? WHERE id = ?", (*known[1:], row))
    labelled = "SELECT id, label FROM examples WHERE label IS NOT NULL"
    for row, label in db.execute(labelled).fetchall():
        value = column_of_label(new, row, text(label_of(old, row, label)))
        db.execute("UPDATE examples SET label = ? WHERE id = ?", (value, row))
    for table, key, by, column in (
        ("embeddings", "text", "backbone", "vector"), ("logits", "example", "model", "value"),
    ):  # fmt: skip
        rows = db.execute(f"SELECT {key}, {by}, {column} FROM {table}").fetchall()
        for row, name, value in rows:
            made = blob(made_of(old, table, row, name, value))
            db.execute(
                f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {by} = ?",
                (column_of_made(new, table, whole(row), text(name), made), row, name),
            )
    for backbone, value in db.execute("SELECT backbone, compiled FROM prompts").fetchall():
        compiled = column_of_compiled(new, backbone, blob(compiled_of(old, backbone, value)))
        db.execute("UPDATE prompts SET compiled = ? WHERE backbone = ?", (compiled, backbone))
    names = [name.strip() for name in SLOT_COLUMNS.split(",")]
    for row in db.execute(f"SELECT {SLOT_COLUMNS} FROM slots").fetchall():
        opened = dict(zip(names, slot_row_of(old, row, SLOT_COLUMNS), strict=True))
        for name, part in columns_of_slot(new, opened).items():
            db.execute(f"UPDATE slots SET {name} = ? WHERE name = ?", (part, row[0]))
