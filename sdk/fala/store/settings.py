"""A store's settings: a name and a text each."""

from __future__ import annotations

from fala.store.columns import text
from fala.store.database import Database
from fala.store.sealing import Plain


class Settings:
    """A store's settings.

    Args:
        database: Its file.

    Attributes:
        adapter: The task that the store is seen for, by its adapter; empty for the device's own.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self.adapter = ""

    @property
    def _seal(self) -> Plain:
        """What seals the store's records, for every task alike."""
        return self._db.seal

    def set(self, name: str, value: str) -> None:
        """Keep a setting. In a transaction."""
        with self._db.writer() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def get(self, name: str) -> str | None:
        """A setting, or None."""
        with self._db.rows("its settings are damaged") as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
            return None if row is None else text(row[0])

    def set_own(self, name: str, value: str) -> None:
        """Keep a setting of the task. In a transaction."""
        self.set(own_name(self.adapter, name), value)

    def get_own(self, name: str) -> str | None:
        """A setting of the task, or None."""
        return self.get(own_name(self.adapter, name))


def own_name(adapter: str, name: str) -> str:
    """What a task's own slot or setting is called: the device's own task's have no prefix."""
    return f"{adapter}/{name}" if adapter else name


def adapter_of(name: str) -> str:
    """Whose a slot is, by its name."""
    return name.rpartition("/")[0]
