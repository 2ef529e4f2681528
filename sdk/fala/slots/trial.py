"""The trial of a new slot, as in Android's A/B updates.

A release that was just installed is on trial. A process counts a try on the disk before it loads
the release, and resets it once the release has predicted or raised an error. A process that ends
in between leaves its try; after ``TRIES`` of them in a row the device falls back to the previous
slot. The trial ends well when the app confirms it, or after ``PREDICTIONS`` of them. No prediction
waits for another writer: meanwhile a try is not counted, and what ends it is written later.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock

from fala.base.errors import DeviceError
from fala.store.interrupts import interruptible
from fala.store.settings import Trial
from fala.store.store import Store
from fala.store.turns import FileLock

_log = logging.getLogger("fala.store")

#: Tries in a row that ended with their process before the device falls back. One or two may be a
#: flat battery or an impatient user; three are the release.
TRIES = 3
#: Predictions before a trial ends well: if none of 100 failed, fewer than 3 in 100 do (the rule of
#: three, at 95 %). They take a day or two of use, which leaves time to fall back.
PREDICTIONS = 100
#: Empty; locked by the process that counts a try. The lock ends with its process.
_LOCK = "store.sqlite3.trial"


class Trials:
    """The trial of a device's folder, and its state in this process.

    Args:
        path: The folder.
        store: Its store.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path, self._store = path, store
        self._lock = Lock()
        self._counting = FileLock(path / _LOCK)
        #: The trial whose slot passed its probes in this process last.
        self._began: int | None = None
        #: Its predictions that are not written yet, how many of them end it, and whether its try
        #: has ended, and is still counted.
        self._fresh, self._needed, self._counted = 0, math.inf, False

    def running(self) -> Trial | None:
        """The trial of the active slot, as it is on the disk; None where that is not on trial."""
        trial = self._store.settings.trial()
        return trial if trial is not None and trial.slot == self._store.slots.state().slot else None

    def begin(self, slot: str, generation: int) -> None:
        """Put a slot on trial that passed in this process. In a transaction."""
        self._store.settings.set_trial(Trial(slot, generation))
        self._store.settings.set_fell_back(None)
        self.passed(generation, 0)

    def resume(self, slot: str, generation: int) -> None:
        """Note that a slot is active again; a trial of it starts anew. In a transaction."""
        self._store.settings.set_fell_back(None)
        trial = self._store.settings.trial()
        if trial is not None and trial.slot == slot:
            self._store.settings.set_trial(Trial(slot, generation))

    def end(self, reason: str | None = None) -> None:
        """End the trial: well, or with the reason of a fall back. In a transaction."""
        self._store.settings.set_trial(None)
        if reason is not None:
            self._store.settings.set_fell_back(reason)

    def has_passed(self, began: int) -> bool:
        """Whether a trial's slot has passed in this process."""
        return began == self._began

    def passed(self, began: int, predictions: int) -> None:
        """Note that a trial's slot has passed in this process."""
        with self._lock:
            self._began, self._fresh, self._needed = began, 0, PREDICTIONS - predictions
            self._counted = False

    @interruptible
    def exclusive(self) -> Iterator[bool]:
        """Hold the right to count a try; yields whether no other process holds it.

        Concurrent tries would count each other as failed. A try that is not counted is no loss:
        the same failure ends the process that counts.
        """
        try:
            try:
                taken = self._counting.take()
            except OSError:  # a disk that cannot be written
                taken = True
            yield taken
        finally:
            self._counting.free()

    @contextlib.contextmanager
    def counted(self, trial: Trial) -> Iterator[None]:
        """Count a try of this process, until it ends with a prediction or an error."""
        counted = self._count(trial.began, trial.tries + 1)
        try:
            yield
        except BaseException:
            if counted:
                self._count(trial.began, trial.tries)
            raise
        if counted and not self._count(trial.began, 0):
            self._counted = True

    def count_predictions(self, count: int) -> None:
        """Count predictions, in memory; written when they are enough, once no one else writes."""
        with self._lock:
            if self._needed < math.inf:
                self._fresh += count
            enough = self._counted or self._fresh >= self._needed
        if enough:
            self.flush(wait=False)

    def flush(self, *, wait: bool = True) -> None:
        """Write the predictions counted so far; the trial ends if they are enough.

        Args:
            wait: Wait for other writers; else they stay counted in memory.
        """
        with self._lock:
            began, fresh = self._began, self._fresh
        if not fresh and not self._counted:
            return
        needed = math.inf  # if the trial is over
        try:
            with self._store.turn(wait=wait), self._store.transaction():
                trial = self._store.settings.trial()
                if trial is not None and trial.began == began:
                    needed = PREDICTIONS - trial.predictions - fresh
                    if needed > 0:
                        self._store.settings.set_trial(
                            replace(
                                trial, predictions=trial.predictions + fresh,
                                tries=0 if self._counted else trial.tries,
                            )
                        )  # fmt: skip
                    else:
                        self.end()
                        slots = self._store.slots
                        slots.advance(slots.version().generation, to_fit=None)
        except DeviceError as error:  # the trial lasts longer
            if wait:
                _log.warning("predictions of the slot on trial are not counted: %s", error)
            return
        if needed <= 0:
            _log.info("%s: the trial of the release ended well", self._path)
        with self._lock:
            if self._began == began:
                self._fresh -= fresh
                self._counted = False
                self._needed = needed if needed > 0 else math.inf

    def close(self) -> None:
        """Close the lock's file."""
        self._counting.close()

    def _count(self, began: int, tries: int) -> bool:
        """Write the count of tries that have not ended, unless others write; whether it did."""
        try:
            with self._store.turn(wait=False), self._store.transaction():
                trial = self._store.settings.trial()
                if trial is not None and trial.began == began:
                    self._store.settings.set_trial(replace(trial, tries=tries))
        except DeviceError as error:  # a full disk must not stop predictions
            _log.warning("a try of the slot on trial is not counted: %s", error)
            return False
        return True


def blames_release(error: BaseException | None) -> bool:
    """Whether an error is the release's fault, and not a shortage or a lack of the system's."""
    while error is not None:
        short = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        if short or isinstance(error, sqlite3.Error | MemoryError | ImportError):
            return False
        error = error.__cause__
    return True
