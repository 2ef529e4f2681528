"""A visit's values besides its devices, in one file that locks the folder for one server."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from fala.base.errors import DataError

#: The file, in the visit's folder.
NAME = "visit.sqlite"


class Notes:
    """Values by name, each written whole or not at all.

    The file is locked while it is open, so a second server on the same folder is rejected. A killed
    server releases the lock.

    Args:
        folder: Folder of the visit; it must exist.

    Raises:
        DataError: Another server has the folder, or the file is not one of this command.
    """

    def __init__(self, folder: Path) -> None:
        # The caller holds the visit's lock, in any thread.
        self._database = sqlite3.connect(
            folder / NAME, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("BEGIN EXCLUSIVE")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
            )
            self._database.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._database.close()
            if "locked" in str(error):
                raise DataError(
                    f"{folder}: another server is using this folder; end it, or use another folder"
                ) from error
            raise DataError(f"{folder / NAME}: cannot be read ({error})") from error

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Read a value."""
        row = self._database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, **values: Any) -> None:  # noqa: ANN401
        """Write values to the disk, in one transaction."""
        rows = [(name, json.dumps(value, allow_nan=False)) for name, value in values.items()]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", rows)
        self._database.execute("COMMIT")

    def clear(self, **values: Any) -> None:  # noqa: ANN401
        """Delete all values except the seed, and write new ones."""
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM notes WHERE name <> 'seed'")
        self._database.execute("COMMIT")
        self.set(**values)

    def close(self) -> None:
        """Close the file, and unlock the folder."""
        self._database.close()
