"""The store's schema, and the steps from every earlier version of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from fala.errors import DeviceError
from fala.store.settings_of_8 import move_settings

#: All tables, those that refer to others first.
TABLES = (
    "logits", "earlier_labels", "embeddings", "backbones", "examples", "texts", "active", "tasks",
    "slots", "versions", "device", "digests",
)  # fmt: skip

#: A step is statements, or a function.
Step = str | Callable[[sqlite3.Connection], None]

# Steps from version i of the schema to version i + 1; a released step never changes.
MIGRATIONS: tuple[Step, ...] = (
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
    """
    ALTER TABLE slots RENAME COLUMN theta TO weight;
    ALTER TABLE slots ADD COLUMN form TEXT NOT NULL DEFAULT 'theta';
    ALTER TABLE slots ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE views RENAME COLUMN theta TO own;
    ALTER TABLE views ADD COLUMN form TEXT NOT NULL DEFAULT 'theta';
    ALTER TABLE examples ADD COLUMN added REAL;
    ALTER TABLE examples ADD COLUMN labelled REAL;
    ALTER TABLE active ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE active ADD COLUMN data INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE settings (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE slots ADD COLUMN buckets BLOB;
    ALTER TABLE slots ADD COLUMN lexical BLOB;
    ALTER TABLE slots ADD COLUMN loss REAL;
    DROP TABLE views;
    """,
    """
    ALTER TABLE texts ADD COLUMN sealed BLOB;
    """,
    # Several tasks: what belongs to one, or answers for one, names its adapter; the device's own
    # has none. A constraint cannot be changed, so the tables are written anew.
    """
    CREATE TABLE all_examples (
        id INTEGER PRIMARY KEY,
        document INTEGER NOT NULL REFERENCES texts (id),
        history TEXT NOT NULL,
        label TEXT,
        added REAL,
        labelled REAL,
        adapter TEXT NOT NULL DEFAULT '',
        UNIQUE (adapter, document, history)
    );
    INSERT INTO all_examples (id, document, history, label, added, labelled)
        SELECT id, document, history, label, added, labelled FROM examples;
    CREATE TABLE all_logits (
        example INTEGER NOT NULL REFERENCES all_examples (id),
        model TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (example, model)
    ) WITHOUT ROWID;
    INSERT INTO all_logits SELECT example, model, value FROM logits;
    DROP TABLE logits;
    DROP TABLE examples;
    ALTER TABLE all_examples RENAME TO examples;
    ALTER TABLE all_logits RENAME TO logits;
    CREATE TABLE all_active (
        adapter TEXT PRIMARY KEY,
        slot TEXT NOT NULL REFERENCES slots (name),
        previous TEXT REFERENCES slots (name),
        generation INTEGER NOT NULL DEFAULT 0,
        data INTEGER NOT NULL DEFAULT 0
    );
    INSERT INTO all_active SELECT '', slot, previous, generation, data FROM active;
    DROP TABLE active;
    ALTER TABLE all_active RENAME TO active;
    """,
    # Versions 7 and 8 added what is gone.
    "",
    "",
    move_settings,
    # Examples, labels and replacements are ordered by the task's count of changes of data, as no
    # clock orders them. Of a store that has times, those say what came before a replacement: it has
    # the count 2 (a second one 4), and what came before it 1. All later counts are larger.
    """
    ALTER TABLE examples ADD COLUMN added_data INTEGER;
    ALTER TABLE examples ADD COLUMN labelled_data INTEGER;
    ALTER TABLE slots ADD COLUMN replaced_data INTEGER;
    ALTER TABLE slots ADD COLUMN replaced_fit_data INTEGER;
    CREATE TABLE earlier_labels (
        example INTEGER NOT NULL REFERENCES examples (id),
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        label TEXT NOT NULL,
        PRIMARY KEY (example, since)
    ) WITHOUT ROWID;
    UPDATE slots SET replaced_data = 2 * (
        SELECT count(*) FROM slots AS other
        WHERE other.adapter = slots.adapter AND other.replaced_at <= slots.replaced_at
    ) WHERE replaced_at IS NOT NULL;
    UPDATE slots SET replaced_fit_data = replaced_data;
    UPDATE examples SET added_data = 1 + 2 * (
        SELECT count(*) FROM slots
        WHERE slots.adapter = examples.adapter AND slots.replaced_after < examples.id
    );
    UPDATE examples SET labelled_data = max(added_data, 1 + 2 * (
        SELECT count(*) FROM slots
        WHERE slots.adapter = examples.adapter AND slots.replaced < examples.labelled
    )) WHERE label IS NOT NULL;
    UPDATE slots SET replaced_after = NULL, replaced = NULL, fit_data = fit_data + 5;
    UPDATE tasks SET rolled_back = NULL, left_at = CASE WHEN left_at = (
        SELECT data FROM active WHERE active.adapter = tasks.adapter
    ) THEN left_at + 5 END;
    UPDATE active SET data = data + 5;
    CREATE TABLE digests (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        sealed BLOB NOT NULL
    );
    UPDATE device SET overwrites = 0
    """,
)


def migrate(database: sqlite3.Connection, name: str, finish: Callable[[], None]) -> None:
    """Bring a store to this version, whole or not at all; processes may race for it.

    Args:
        database: Its connection.
        name: Its file, for errors.
        finish: Called in the transaction, behind all steps.

    Raises:
        DeviceError: It was written by a newer SDK.
    """
    if _version(database) == len(MIGRATIONS):
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        version = _version(database)  # again: another process may have been the first
        if version < 0:
            raise sqlite3.DatabaseError(f"a schema of version {version}")
        check_newer(version, name)
        for step in MIGRATIONS[version:]:
            apply(step, database)
        if version == 0:
            database.execute("UPDATE device SET overwrites = 1")
        finish()
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def check_newer(version: int, name: str) -> None:
    """Refuse a store of a newer SDK.

    Args:
        version: Its schema's.
        name: Its file, for errors.

    Raises:
        DeviceError: It is.
    """
    if version > len(MIGRATIONS):
        raise DeviceError(
            f"{name}: written by a newer fala (schema {version}, this one knows "
            f"{len(MIGRATIONS)}); update fala"
        )


def apply(step: Step, database: sqlite3.Connection) -> None:
    """Apply one step. In a transaction."""
    if not isinstance(step, str):
        step(database)
        return
    for statement in step.split(";"):
        if statement.strip():
            database.execute(statement)


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])
