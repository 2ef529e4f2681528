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
from typing import Any

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
        left_at INTEGER,
        tried_release TEXT,
        tried_labels INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE prompt_examples (
        adapter TEXT NOT NULL,
        backbone TEXT NOT NULL,
        example INTEGER NOT NULL,
        PRIMARY KEY (adapter, backbone, example)
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
    # A mixture of a release's prompts is in use no more, and so are weights that are fitted to it.
    database.execute(
        "UPDATE slots SET prompt = NULL, form = 'unusable', fit_data = NULL"
        " WHERE prompt IS NOT NULL"
    )


def _move(database: sqlite3.Connection, name: str, value: str) -> None:
    """Write one setting to its columns.

    Raises:
        ValueError, TypeError, LookupError, OverflowError: It is damaged.
    """
    if name == "keep text":
        kept = _KEEP_TEXT.fullmatch(str(value))
        columns = (kept[1], bytes.fromhex(kept[2])) if kept else ("damaged", None)
        database.execute("UPDATE device SET keep_text = ?, text_key = ?", columns)
    elif name == "sealed":
        database.execute("UPDATE device SET key_mark = ?", (_bytes(value),))
    elif name == "overwrites":
        database.execute("UPDATE device SET overwrites = 1")
    elif name == "fell back":
        database.execute("UPDATE device SET fell_back = ?", (value or None,))
    elif name == "trial":
        slot, began, tries, answered = json.loads(value)
        database.execute(
            "UPDATE device SET trial_slot = ?, trial_began = ?, trial_tries = ?,"
            " trial_answered = ?", (str(slot), int(began), int(tries), int(answered))
        )  # fmt: skip
    elif version := _VERSION.fullmatch(name):
        row = version[1] or "", int(value)
        database.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", row)
    elif name.startswith("dimension "):
        row = name.removeprefix("dimension "), int(value)
        database.execute("INSERT OR REPLACE INTO backbones VALUES (?, ?)", row)
    elif name.startswith("fit "):
        _fit(database, name.removeprefix("fit "), json.loads(value))
    elif name.startswith("replacement "):
        at, after, time = value.split()
        database.execute(
            "UPDATE slots SET replaced_at = ?, replaced_after = ?, replaced = ? WHERE name = ?",
            (int(at), int(after), float(time), name.removeprefix("replacement ")),
        )
    else:
        adapter, _, last = name.rpartition("/")
        _task(database, adapter, last, value)


def _fit(database: sqlite3.Connection, slot: str, fit: dict[str, Any]) -> None:
    scales = np.array([float(scale) for scale in fit["scales"]], "<f8")
    database.execute(
        "UPDATE slots SET fit_data = ?, fit_examples = ?, fit_further = ?, fit_decision = ?,"
        " fit_trust = ?, fit_scales = ? WHERE name = ?",
        (
            int(fit["data"]), int(fit["fitted"]), int(fit["further"]), str(fit["decision"]),
            float(fit["trust"]), scales.tobytes(), slot,
        ),
    )  # fmt: skip


def _task(database: sqlite3.Connection, adapter: str, name: str, value: str) -> None:
    if name == "prompts mixed":
        for backbone, examples in json.loads(value).items():
            rows = [(adapter, str(backbone), int(example)) for example in examples]
            database.executemany("INSERT OR IGNORE INTO prompt_examples VALUES (?, ?, ?)", rows)
        return
    columns: dict[str, object] = {}
    if name == "positive":
        columns = {"positive": value}
    elif name == "rolled back":
        columns = {"rolled_back": int(value)}
    elif name == "left at":
        columns = {"left_at": int(value)}
    elif name == "prompts tried":
        release, labels = json.loads(value)
        columns = {"tried_release": str(release), "tried_labels": int(labels)}
    if columns:
        database.execute("INSERT OR IGNORE INTO tasks (adapter) VALUES (?)", (adapter,))
    for column, cell in columns.items():
        database.execute(f"UPDATE tasks SET {column} = ? WHERE adapter = ?", (cell, adapter))


def _bytes(value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        return str(value).encode()
