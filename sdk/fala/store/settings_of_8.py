"""The step from version 8 of the schema to version 9: settings become columns.

Version 8 kept a name and a text for each setting, in several formats of their own: JSON, words with
spaces between, and names that end with a slot's or begin with an adapter's. A damaged setting is
dropped, as version 8 ignored it. Two stay as they are, and are reported as damaged when they are
read: how texts are kept, so that a device that keeps no texts never begins to, and the key's mark.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3

import numpy as np

_TABLES = """
    CREATE TABLE device (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        overwrites INTEGER NOT NULL DEFAULT 0,
        key_mark BLOB,
        keep_text TEXT NOT NULL DEFAULT 'always',
        text_key BLOB,
        fell_back TEXT,
        trial_slot TEXT,
        trial_began INTEGER,
        trial_tries INTEGER,
        trial_answered INTEGER
    );
    CREATE TABLE versions (
        product TEXT PRIMARY KEY,
        newest INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE backbones (
        digest TEXT PRIMARY KEY,
        dimension INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE tasks (
        adapter TEXT PRIMARY KEY,
        positive TEXT,
        rolled_back INTEGER,
        left_at INTEGER
    ) WITHOUT ROWID;
    ALTER TABLE slots ADD COLUMN adapter TEXT NOT NULL DEFAULT '';
    ALTER TABLE slots ADD COLUMN fit_data INTEGER;
    ALTER TABLE slots ADD COLUMN fit_examples INTEGER;
    ALTER TABLE slots ADD COLUMN fit_further INTEGER;
    ALTER TABLE slots ADD COLUMN fit_decision TEXT;
    ALTER TABLE slots ADD COLUMN fit_trust REAL;
    ALTER TABLE slots ADD COLUMN fit_scales BLOB;
    ALTER TABLE slots ADD COLUMN replaced_at INTEGER;
    ALTER TABLE slots ADD COLUMN replaced_after INTEGER;
    ALTER TABLE slots ADD COLUMN replaced REAL;
    UPDATE slots SET adapter = substr(name, 1, length(name) - 2) WHERE name LIKE '%/_';
    INSERT INTO device (one) VALUES (1)
"""
_VERSION = re.compile(r"newest version(?: of (.*))?", re.DOTALL)
#: Errors of a setting that is damaged.
_DAMAGED = (
    ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError,
    sqlite3.IntegrityError,
)  # fmt: skip
_KEEP_TEXT = re.compile(r"(ngrams|never) ([0-9a-f]{64})")


def move_settings(database: sqlite3.Connection) -> None:
    """Make the tables of version 9, and fill them from the settings. In a transaction."""
    for statement in _TABLES.split(";"):
        database.execute(statement)
    for name, value in database.execute("SELECT name, value FROM settings").fetchall():
        with contextlib.suppress(*_DAMAGED):
            _move(database, name, value)
    database.execute("DROP TABLE settings")


def _move(database: sqlite3.Connection, name: str, value: str) -> None:
    """Write one setting to its columns.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: It is damaged.
    """

    def update(table: str, key: str, row: object, **columns: object) -> None:
        changes = ", ".join(f"{column} = ?" for column in columns)
        query = f"UPDATE {table} SET {changes} WHERE {key} = ?"
        database.execute(query, (*columns.values(), row))

    def task(**columns: object) -> None:
        database.execute("INSERT OR IGNORE INTO tasks (adapter) VALUES (?)", (adapter,))
        update("tasks", "adapter", adapter, **columns)

    adapter, _, last = name.rpartition("/")
    kind, _, suffix = name.partition(" ")
    if name == "keep text":
        match = _KEEP_TEXT.fullmatch(str(value))
        mode, key = (match[1], bytes.fromhex(match[2])) if match else ("damaged", None)
        update("device", "one", 1, keep_text=mode, text_key=key)
    elif name == "sealed":
        try:
            mark = bytes.fromhex(value)
        except ValueError:
            mark = str(value).encode()
        update("device", "one", 1, key_mark=mark)
    elif name == "overwrites":
        update("device", "one", 1, overwrites=1)
    elif name == "fell back":
        update("device", "one", 1, fell_back=value or None)
    elif name == "trial":
        slot, began, tries, answered = json.loads(value)
        update(
            "device", "one", 1, trial_slot=str(slot), trial_began=int(began),
            trial_tries=int(tries), trial_answered=int(answered),
        )  # fmt: skip
    elif version := _VERSION.fullmatch(name):
        row = version[1] or "", int(value)
        database.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", row)
    elif kind == "dimension":
        database.execute("INSERT OR REPLACE INTO backbones VALUES (?, ?)", (suffix, int(value)))
    elif kind == "fit":
        fit = json.loads(value)
        scales = np.array([float(scale) for scale in fit["scales"]], "<f8")
        update(
            "slots", "name", suffix, fit_data=int(fit["data"]), fit_examples=int(fit["fitted"]),
            fit_further=int(fit["further"]), fit_decision=str(fit["decision"]),
            fit_trust=float(fit["trust"]), fit_scales=scales.tobytes(),
        )  # fmt: skip
    elif kind == "replacement":
        at, after, time = value.split()
        update(
            "slots", "name", suffix, replaced_at=int(at), replaced_after=int(after),
            replaced=float(time),
        )  # fmt: skip
    elif last == "positive":
        task(positive=value)
    elif last == "rolled back":
        task(rolled_back=int(value))
    elif last == "left at":
        task(left_at=int(value))
