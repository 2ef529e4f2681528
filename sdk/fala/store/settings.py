"""The row of the device's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fala.store.columns import text, whole
from fala.store.database import Database
from fala.store.encryption import Codec

_KEY = 32
#: The context of the record of admission.
_TRUST = ("device", 1, "trust")


@dataclass(frozen=True)
class Trial:
    """The trial of a slot.

    Attributes:
        slot: The name of the slot. The trial pauses while the other slot is active.
        began: The generation at which the slot was installed, which identifies the trial.
        tries: Number of consecutive tries that did not end.
        predictions: Number of predictions so far, except those that open devices still hold in
            memory.
    """

    slot: str
    began: int
    tries: int = 0
    predictions: int = 0


@dataclass(frozen=True)
class Admission:
    """The releases that a device admits.

    Attributes:
        key: The key that must have signed a release, 32 bytes; None requires no signature.
        versions: The newest version of every product that was ever installed; releases that name no
            product share the empty name.
    """

    key: bytes | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    def with_version(self, product: str | None, version: int | None) -> Admission:
        """Return the admission once a version of a product is installed; None changes nothing."""
        if version is None:
            return self
        newest = max(version, self.versions.get(product or "", version))
        return Admission(self.key, {**self.versions, product or "": newest})


def decode_admission(codec: Codec, cell: object) -> Admission:
    """Decode the record of which releases a device admits.

    Raises:
        ValueError: If the record is damaged or missing.
    """
    data = codec.decode(cell, *_TRUST)
    key, versions = data[1 : 1 + data[0]], json.loads(data[1 + data[0] :])
    if len(key) not in (0, _KEY) or not isinstance(versions, dict):
        raise ValueError("the record has another form")
    return Admission(key or None, {text(name): whole(newest) for name, newest in versions.items()})


class Settings:
    """The settings of the device as a whole.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def key_mark(self) -> object:
        """Return the mark of an encrypted store's key, which does not reveal it; else None."""
        return self._get("key_mark")

    def set_key_mark(self, mark: bytes | None) -> None:
        """Write the key's mark. Call it in a transaction."""
        self._set(key_mark=mark)

    def trial(self) -> Trial | None:
        """Return the trial of a release, in either slot; None without one or if it is damaged."""
        columns = "trial_slot, trial_began, trial_tries, trial_predictions"
        with self._db.connection() as db:
            row = db.execute(f"SELECT {columns} FROM device").fetchone()
        try:
            slot, *counts = row or (None,)
            return Trial(text(slot), *(whole(count) for count in counts))
        except ValueError:
            return None

    def set_trial(self, trial: Trial | None) -> None:
        """Write the trial; None ends it. Call it in a transaction."""
        if trial is None:
            self._set(trial_slot=None, trial_began=None, trial_tries=None, trial_predictions=None)
            return
        self._set(
            trial_slot=trial.slot, trial_began=trial.began, trial_tries=trial.tries,
            trial_predictions=trial.predictions,
        )  # fmt: skip

    def admission(self) -> Admission:
        """Return which releases the device admits.

        Raises:
            DeviceError: If the record is damaged or its row is missing.
        """
        with self._db.rows("its settings are damaged") as db:
            row = db.execute("SELECT trust FROM device NOT INDEXED").fetchone()
            if row is None:
                raise ValueError("the row with the device's settings is missing")
            return decode_admission(self._db.codec, row[0])

    def set_admission(self, admission: Admission) -> None:
        """Write which releases the device admits. Call it in a transaction.

        The record is also written if no signature is required and no version is known, because a
        missing record means damage. An index keeps it in another page of the file, because a repair
        needs one of the two.
        """
        key = admission.key or b""
        data = bytes([len(key)]) + key + json.dumps(dict(admission.versions)).encode()
        self._set(trust=self._db.codec.encode(data, *_TRUST))

    def fell_back(self) -> str | None:
        """Return why the device fell back from its last release; None if it did not."""
        reason = self._get("fell_back")
        return reason if isinstance(reason, str) else None

    def set_fell_back(self, reason: str | None) -> None:
        """Write why the device fell back. Call it in a transaction."""
        self._set(fell_back=reason)

    def _get(self, column: str) -> object:
        with self._db.connection() as db:
            row = db.execute(f"SELECT {column} FROM device").fetchone()
        return None if row is None else row[0]

    def _set(self, **values: object) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        with self._db.connection() as db:
            db.execute(f"UPDATE device SET {changes}", tuple(values.values()))
