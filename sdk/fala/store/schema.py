"""The store's schema, which has a single version: no code reads another one."""

from __future__ import annotations

import sqlite3

from fala.base.errors import DeviceError

#: The version, in SQLite's ``user_version``. Raise it with every change to the tables.
VERSION = 4

#: The largest version that is not considered damage.
_LARGEST_VERSION = 100

#: All tables; those that refer to other tables come first.
TABLES = (
    "logits", "earlier_labels", "embeddings", "examples", "texts", "active", "tasks", "slots",
    "device", "digests",
)  # fmt: skip

# The indexes keep labels, sealed texts, examples and the trusted key in a second place of the file.
# Embeddings have row ids, because without them a row above a quarter of a page needs a page of its
# own.
_SCHEMA = """
    CREATE TABLE device (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        overwrites INTEGER NOT NULL DEFAULT 1,
        key_mark BLOB,
        keep_text TEXT NOT NULL DEFAULT 'always',
        text_key BLOB,
        trust BLOB,
        fell_back TEXT,
        trial_slot TEXT,
        trial_began INTEGER,
        trial_tries INTEGER,
        trial_predictions INTEGER
    );
    CREATE TABLE texts (
        id INTEGER PRIMARY KEY,
        text TEXT NOT NULL UNIQUE,
        sealed BLOB
    );
    CREATE TABLE examples (
        id INTEGER PRIMARY KEY,
        document INTEGER NOT NULL REFERENCES texts (id),
        history TEXT NOT NULL,
        label TEXT,
        added REAL NOT NULL,
        labelled REAL,
        adapter TEXT NOT NULL,
        added_data INTEGER NOT NULL,
        labelled_data INTEGER,
        UNIQUE (document, history, adapter)
    );
    CREATE TABLE earlier_labels (
        example INTEGER NOT NULL REFERENCES examples (id),
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        label TEXT NOT NULL,
        PRIMARY KEY (example, since)
    ) WITHOUT ROWID;
    CREATE TABLE embeddings (
        text INTEGER NOT NULL REFERENCES texts (id),
        backbone TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (text, backbone)
    );
    CREATE TABLE logits (
        example INTEGER NOT NULL REFERENCES examples (id),
        model TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (example, model)
    ) WITHOUT ROWID;
    CREATE TABLE slots (
        name TEXT PRIMARY KEY,
        adapter TEXT NOT NULL,
        bundle TEXT NOT NULL,
        backbone TEXT NOT NULL,
        model TEXT NOT NULL,
        teacher TEXT,
        labels TEXT NOT NULL,
        loss REAL,
        fit_data INTEGER,
        fit_examples INTEGER,
        fit_further INTEGER,
        fit_decision TEXT,
        fit_mixing REAL,
        fit_scales BLOB,
        replaced_at INTEGER,
        replaced_data INTEGER,
        replaced_fit_data INTEGER,
        weight BLOB NOT NULL,
        bias BLOB NOT NULL,
        buckets BLOB,
        lexical BLOB
    ) WITHOUT ROWID;
    CREATE TABLE active (
        adapter TEXT PRIMARY KEY,
        slot TEXT NOT NULL REFERENCES slots (name),
        previous TEXT REFERENCES slots (name),
        generation INTEGER NOT NULL,
        data INTEGER NOT NULL,
        to_fit INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE tasks (
        adapter TEXT PRIMARY KEY,
        positive TEXT,
        bundle TEXT,
        labels TEXT
    ) WITHOUT ROWID;
    CREATE TABLE digests (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        sealed BLOB NOT NULL
    );
    CREATE INDEX changes ON examples (adapter, labelled_data, added_data);
    CREATE INDEX labels ON examples (adapter, label, added, labelled);
    CREATE INDEX sealed ON texts (sealed) WHERE sealed IS NOT NULL;
    CREATE INDEX trusted ON device (trust);
    INSERT INTO device (one) VALUES (1)
"""


def create_tables(database: sqlite3.Connection, name: str) -> None:
    """Make all tables of an empty store, or none; several processes may try it at once.

    Args:
        database: The store's connection.
        name: The store's file, which errors name.

    Raises:
        DeviceError: If the store has another version.
    """
    with database:  # rolls back after an error
        database.execute("BEGIN IMMEDIATE")
        if not is_current(version_of(database), name):
            # Remove spaces, so that the schema fits in the first page, which a repair writes again.
            for statement in _SCHEMA.split(";"):
                database.execute(" ".join(statement.split()))
            database.execute(f"PRAGMA user_version = {VERSION}")


def version_of(database: sqlite3.Connection) -> int:
    """Return the version of a store; 0 if it is empty.

    Raises:
        sqlite3.DatabaseError: If the store is damaged.
    """
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= _LARGEST_VERSION:
        raise sqlite3.DatabaseError(f"the schema has an impossible version, {version}")
    return version


def is_current(version: int, name: str) -> bool:
    """Return whether a version is the current one; False for an empty store's.

    Args:
        version: The version.
        name: The store's file, which errors name.

    Raises:
        DeviceError: If the version is another one.
    """
    if version not in (0, VERSION):
        raise DeviceError(
            f"{name}: schema version {version}, and this FaLA reads version {VERSION}; update "
            "FaLA, or export the examples with the FaLA that wrote it (Device.export_data) and "
            "create the device again"
        )
    return version == VERSION
