"""The rows of many users: in a folder each, or in one database."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.many_users import copy

STORE = "store.sqlite3"

#: The tables of the database that have a user, and their keys without it.
KEYS = {
    "texts": "text", "examples": "adapter, document, history", "device": "one", "digests": "one",
    "slots": "name", "active": "adapter", "tasks": "adapter",
}  # fmt: skip
#: The others belong to a user by the id of a text, or of an example.
PARTS = {"embeddings": ("text", "texts"), "logits": ("example", "examples"),
         "earlier_labels": ("example", "examples")}  # fmt: skip
#: Columns with such an id.
IDS = {("texts", "id"), ("examples", "id"), ("examples", "document")} | {
    (table, column) for table, (column, _) in PARTS.items()
}


def connect(path: Path) -> sqlite3.Connection:
    """A connection with the settings of a device's."""
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON",
                    "secure_delete = ON", "temp_store = MEMORY"):  # fmt: skip
        db.execute(f"PRAGMA {setting}")
    return db


def with_users(statement: str) -> str:
    """A statement of the device's schema for the tables of all users."""
    if statement.startswith("CREATE INDEX"):
        return statement.replace("(adapter", "(user, adapter")
    table = statement.split()[2]
    if table not in KEYS:
        return statement
    if table == "examples":
        statement = statement.replace("UNIQUE (", "UNIQUE (user, ")
    else:
        key = "UNIQUE" if table == "texts" else "PRIMARY KEY"
        statement = re.sub(r" (CHECK|REFERENCES slots) \(.*?\)", "", statement).replace(
            f" {key}", ""
        )
        body, _, end = statement.rpartition(")")
        statement = f"{body}, {key} (user, {KEYS[table]})){end}"
    return statement.replace("(", "(user INTEGER NOT NULL, ", 1)


@dataclass
class User:
    """A user's rows, and the device's statements on them.

    Attributes:
        db: A connection.
        number: The user's in the database; None in a folder.
    """

    db: sqlite3.Connection
    number: int | None

    def where(self, table: str) -> str:
        """The condition of the user's rows of a table."""
        if self.number is None:
            return "1"
        if table in KEYS:
            return f"user = {self.number}"
        column, of = PARTS[table]
        return f"{column} IN (SELECT id FROM {of} WHERE user = {self.number})"

    def open(self) -> None:
        """Read what a device reads to predict."""
        for table in ("device", "active", "slots", "tasks"):
            self.select(table)

    def select(self, table: str, columns: str = "*") -> list[Any]:
        """The user's rows of a table."""
        return self.db.execute(
            f"SELECT {columns} FROM {table} WHERE {self.where(table)}"
        ).fetchall()

    def learn(self, texts: Sequence[str]) -> None:
        """Write texts with labels; read all rows for a fit; write embeddings and the model."""
        with self._transaction():
            self.db.execute(f"UPDATE active SET data = data + 1 WHERE {self.where('active')}")
            (text,) = self.db.execute("SELECT max(id) FROM texts").fetchone()
            (example,) = self.db.execute("SELECT max(id) FROM examples").fetchone()
            for number, name in enumerate(texts, 1):
                self._insert("texts", id=text + number, text=name)
                self._insert(
                    "examples", id=example + number, document=text + number, history="",
                    label="1", added=time.time(), labelled=time.time(), adapter="", added_data=9,
                    labelled_data=9,
                )  # fmt: skip
        for table in ("texts", "examples"):
            self.select(table)
        *_, (backbone, vector) = self.select("embeddings", "backbone, vector")
        ((slot, *weights),) = self.select("slots", "name, weight, lexical")[:1]
        with self._transaction():
            for number in range(1, len(texts) + 1):
                new = os.urandom(len(vector))
                self._insert("embeddings", text=text + number, backbone=backbone, vector=new)
            new_weights = (None if old is None else os.urandom(len(old)) for old in weights)
            where = self.where("slots")
            self.db.execute(
                f"UPDATE slots SET weight = ?, lexical = ? WHERE name = ? AND {where}",
                (*new_weights, slot),
            )
            self.db.execute(
                f"UPDATE active SET generation = generation + 1 WHERE {self.where('active')}"
            )

    def delete(self) -> None:
        """Delete all rows of the user."""
        with self._transaction():
            for table in (*PARTS, "examples", "texts", *KEYS):
                self.db.execute(f"DELETE FROM {table} WHERE {self.where(table)}")

    def copy_to(self, path: Path) -> None:
        """Write the user's rows to a file of their own."""
        self.db.execute("ATTACH ? AS copy", (str(path),))
        for (statement,) in self.db.execute("SELECT sql FROM main.sqlite_schema").fetchall():
            if statement and statement.startswith("CREATE TABLE"):
                self.db.execute(statement.replace("CREATE TABLE ", "CREATE TABLE copy."))
        for table in (*KEYS, *PARTS):
            self.db.execute(
                f"INSERT INTO copy.{table} SELECT * FROM main.{table} WHERE {self.where(table)}"
            )
        self.db.execute("DETACH copy")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        yield
        self.db.execute("COMMIT")

    def _insert(self, table: str, **cells: object) -> None:
        if self.number is not None and table in KEYS:
            cells["user"] = self.number
        marks = ",".join("?" * len(cells))
        self.db.execute(
            f"INSERT INTO {table} ({','.join(cells)}) VALUES ({marks})", (*cells.values(),)
        )


class Folders:
    """A folder each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, user: int) -> Path:
        """A user's folder."""
        return self.root / f"{user:06}"

    def fill(self, templates: Sequence[Path], users: int) -> None:
        """Copy the templates, with links to their release."""
        self.root.mkdir()
        for user in range(users):
            copy((templates[user % len(templates)], self.folder(user)))

    @contextmanager
    def user(self, number: int) -> Iterator[User]:
        """A user, opened and closed."""
        with contextlib.closing(connect(self.folder(number) / STORE)) as db:
            yield User(db, None)

    def back_up(self, user: int, to: Path) -> None:
        """Copy one user's store."""
        with self.user(user) as rows, contextlib.closing(sqlite3.connect(to)) as target:
            rows.db.backup(target)

    def back_up_all(self, to: Path) -> None:
        """Copy all."""
        shutil.copytree(self.root, to, ignore=shutil.ignore_patterns("*.fala"))


class Database:
    """One database."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.db = connect(root / STORE)

    def fill(self, templates: Sequence[Path], users: int) -> None:
        """Copy the rows of the templates, with ids of their own."""
        stores = [f"store{number}" for number in range(len(templates))]
        for store, template in zip(stores, templates, strict=True):
            self.db.execute(f"ATTACH ? AS {store}", (str(template / STORE),))
        for (statement,) in self.db.execute("SELECT sql FROM store0.sqlite_schema").fetchall():
            if statement is not None:
                self.db.execute(with_users(statement))
        # Else the deletion of a text would read the examples of all users.
        self.db.execute("CREATE INDEX documents ON examples (document)")
        step = max(
            self.db.execute(f"SELECT max(id) FROM {store}.texts").fetchone()[0] for store in stores
        )
        for start in range(0, users, 100):
            self.db.execute("BEGIN")
            for user in range(start, min(start + 100, users)):
                self._copy(stores[user % len(stores)], user, step * user)
            self.db.execute("COMMIT")
        for store in stores:
            self.db.execute(f"DETACH {store}")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _copy(self, store: str, user: int, base: int) -> None:
        for table in ("texts", "examples", *PARTS, *KEYS.keys() - {"texts", "examples"}):
            names = [row[1] for row in self.db.execute(f"PRAGMA {store}.table_info({table})")]
            values = [f"{name} + {base}" if (table, name) in IDS else name for name in names]
            if table in KEYS:
                names, values = ["user", *names], [str(user), *values]
            self.db.execute(
                f"INSERT INTO main.{table} ({','.join(names)})"
                f" SELECT {','.join(values)} FROM {store}.{table}"
            )

    @contextmanager
    def user(self, number: int) -> Iterator[User]:
        """A user."""
        yield User(self.db, number)

    def back_up(self, user: int, to: Path) -> None:
        """Copy one user's rows."""
        User(self.db, user).copy_to(to)

    def back_up_all(self, to: Path) -> None:
        """Copy all."""
        to.mkdir()
        with contextlib.closing(sqlite3.connect(to / STORE)) as target:
            self.db.backup(target)

    def rewrite(self) -> None:
        """Write the file anew, without the traces of deleted rows."""
        self.db.execute("VACUUM")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
