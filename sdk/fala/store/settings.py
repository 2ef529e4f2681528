"""The device's row of settings, and the newest versions of products."""

from __future__ import annotations

from dataclasses import dataclass

from fala.store.columns import text, whole
from fala.store.database import Database
from fala.store.encryption import Codec

_KEY = 32
#: The context of the record of the trusted key.
_TRUST = ("device", 1, "trust")


@dataclass(frozen=True)
class Trial:
    """The trial of a slot.

    Attributes:
        slot: The slot. The trial pauses while the other slot is active.
        began: The generation that it was installed at, which identifies the trial.
        tries: Tries in a row that did not end.
        predictions: Predictions so far, except those that open devices still hold in memory.
    """

    slot: str
    began: int
    tries: int = 0
    predictions: int = 0


def decode_trust(codec: Codec, cell: object) -> bytes | None:
    """The key that must have signed every release, by its record; None requires no signature.

    Raises:
        ValueError: The record is damaged, or missing.
    """
    key = codec.decode(cell, *_TRUST)
    if len(key) not in (0, _KEY):
        raise ValueError("a key of another length")
    return key or None


class Settings:
    """The settings of the device as a whole.

    Args:
        database: The store's.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def key_mark(self) -> object:
        """Identifies the key of an encrypted store without revealing it; else None."""
        return self._get("key_mark")

    def set_key_mark(self, mark: bytes | None) -> None:
        """Write the key's mark. In a transaction."""
        self._set(key_mark=mark)

    def trial(self) -> Trial | None:
        """The trial of a release, in either slot; None without one, or if it is damaged."""
        columns = "trial_slot, trial_began, trial_tries, trial_predictions"
        with self._db.connection() as db:
            row = db.execute(f"SELECT {columns} FROM device").fetchone()
        try:
            slot, *counts = row or (None,)
            return Trial(text(slot), *(whole(count) for count in counts))
        except ValueError:
            return None

    def set_trial(self, trial: Trial | None) -> None:
        """Write the trial; None ends it. In a transaction."""
        if trial is None:
            self._set(trial_slot=None, trial_began=None, trial_tries=None, trial_predictions=None)
            return
        self._set(
            trial_slot=trial.slot, trial_began=trial.began, trial_tries=trial.tries,
            trial_predictions=trial.predictions,
        )  # fmt: skip

    def trust(self) -> bytes | None:
        """The key that must have signed every release, 32 bytes; None requires no signature.

        Raises:
            DeviceError: It is damaged, or its row is missing.
        """
        with self._db.rows("its settings are damaged") as db:
            row = db.execute("SELECT trust FROM device NOT INDEXED").fetchone()
            if row is None:
                raise ValueError("the row of the device is missing")
            return decode_trust(self._db.codec, row[0])

    def set_trust(self, key: bytes | None) -> None:
        """Write the key that must have signed every release. In a transaction.

        Args:
            key: 32 bytes; None, which requires no signature, is a record, too: a record that is
                missing is damage.
        """
        self._set(trust=self._db.codec.encode(key or b"", *_TRUST))

    def fell_back(self) -> str | None:
        """Why the device fell back from its last release; None if it did not, or if damaged."""
        reason = self._get("fell_back")
        return reason if isinstance(reason, str) else None

    def set_fell_back(self, reason: str | None) -> None:
        """Write why the device fell back. In a transaction."""
        self._set(fell_back=reason)

    def newest_version(self, product: str | None) -> int | None:
        """The newest version of a product that was ever installed; None where none was.

        Args:
            product: The product; None for releases that name none.
        """
        with self._db.connection() as db:
            query = "SELECT newest FROM versions WHERE product = ?"
            row = db.execute(query, (product or "",)).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else None

    def note_version(self, product: str | None, version: int | None) -> None:
        """Note that a version of a product is installed. In a transaction."""
        if version is None:
            return
        newest = max(version, self.newest_version(product) or version)
        with self._db.connection() as db:
            db.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", (product or "", newest))

    def _get(self, column: str) -> object:
        with self._db.connection() as db:
            row = db.execute(f"SELECT {column} FROM device").fetchone()
        return None if row is None else row[0]

    def _set(self, **values: object) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        with self._db.connection() as db:
            db.execute(f"UPDATE device SET {changes}", tuple(values.values()))
