"""A store's settings: a name and a text each."""

from __future__ import annotations

from fala.store.database import Database
from fala.store.rows import text
from fala.store.sealing import Plain


class Settings:
    """A store's settings.

    Args:
        database: Its file.
        seal: What seals the store's records.
    """

    def __init__(self, database: Database, seal: Plain) -> None:
        self._db = database
        self._seal = seal

    def set(self, name: str, value: str) -> None:
        """Keep a setting. In a transaction."""
        with self._db.writer() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def get(self, name: str) -> str | None:
        """A setting, or None."""
        with self._db.rows("its settings are damaged") as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
            return None if row is None else text(row[0])
