"""The trial of a device's folder: its counts on the disk, and what this process knows of it.

No prediction waits for another writer: while there is one, a try is not counted, and the end of a
try is written later. A process remembers which releases have passed their probes in it, so neither
a device that is opened again, nor another user's device that shares the release's file, runs them
again. Only the same files are remembered, and a forked process remembers nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from fala.base.errors import DeviceError
from fala.base.files import Identity
from fala.slots.trial import End, Event, after
from fala.store.interrupts import interruptible
from fala.store.settings import Trial
from fala.store.store import Store
from fala.store.turns import FileLock

_log = logging.getLogger("fala.store")

#: An empty file that the process that counts a try locks. The lock ends with its process.
_LOCK = "store.sqlite3.trial"

#: The files that a trial's slots depend on.
Files = frozenset[Identity]
# What has passed in each process; the process id tells a fork from its parent.
_passed: set[tuple[int, Files]] = set()
# A remembered entry takes a few hundred bytes.
_MOST_REMEMBERED = 10_000


class Trials:
    """The trial of a device's folder.

    Args:
        path: The folder.
        store: The folder's store.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path, self._store = path, store
        self._lock = Lock()
        self._counting = FileLock(path / _LOCK)
        #: The trial that passed in this process, as it was last written; the number of its
        #: predictions that are not written yet; and whether its try has ended but is still counted.
        self._trial: Trial | None = None
        self._fresh, self._late = 0, False

    def running(self) -> Trial | None:
        """Return the trial of the active slot, as it is on the disk; None if it is not on trial."""
        trial = self._store.settings.trial()
        return trial if trial is not None and trial.slot == self._store.slots.state().slot else None

    def begin(self, slot: str, generation: int) -> Trial:
        """Put a slot on trial. Call it in a transaction."""
        trial = Trial(slot, generation)
        self._store.settings.set_trial(trial)
        self._store.settings.set_fell_back(None)
        return trial

    def write(self, trial: Trial, event: Event, number: int = 0) -> Trial | End:
        """Write and return what an event makes of a trial. Call it in a transaction.

        Whoever makes the other slot active also writes the fall back.
        """
        settings, slots = self._store.settings, self._store.slots
        current = settings.trial()
        if current is None or current.began != trial.began:
            return "over"
        result = after(current, event, number)
        if isinstance(result, Trial):
            settings.set_trial(result)
        elif result == "over":
            settings.set_trial(None)
            slots.advance(slots.state().generation, to_fit=None)
            _log.info("%s: the trial of the release ended well", self._path)
        return result

    def has_passed(self, trial: Trial) -> bool:
        """Return whether a trial's slot has passed since this folder was opened."""
        return self._trial is not None and self._trial.began == trial.began

    def recall(self, trial: Trial, files: Files | None) -> bool:
        """Note that a trial's files have passed in this process, for whichever device they did.

        Args:
            trial: The trial.
            files: The files; see ``passed``.

        Returns:
            Whether they have passed. After a try that did not end, they have to pass again.
        """
        now = self.running()
        passed = (os.getpid(), files) in _passed
        if not passed or now is None or now.began != trial.began or now.tries:
            return False
        self._note_passed(now)
        return True

    def passed(self, trial: Trial, files: Files | None) -> None:
        """Note that a trial's slot has passed in this process.

        Args:
            trial: The trial.
            files: The files that the slot was loaded from; None if it depends on more than files,
                so it has to be checked whenever the folder is opened.
        """
        self._note_passed(trial)
        if files is not None:
            if len(_passed) >= _MOST_REMEMBERED:
                _passed.clear()
            _passed.add((os.getpid(), files))

    @interruptible
    def exclusive(self) -> Iterator[bool]:
        """Hold the right to count a try, and yield whether no other process holds it.

        Concurrent tries would count each other as failed. A try that is not counted is no loss,
        because the same failure ends the process that counts.
        """
        try:
            try:
                taken = self._counting.take()
            except OSError:  # the disk cannot be written
                taken = True
            yield taken
        finally:
            self._counting.free()

    @contextlib.contextmanager
    def counted(self, trial: Trial) -> Iterator[None]:
        """Count a try of this process, until it ends with an answer or an error."""
        counted = isinstance(self._note(trial, "load"), Trial)
        try:
            yield
        except BaseException:
            if counted:
                self._note(trial, "survive")
            raise
        self._late = counted and self._note(trial, "answer") is None

    def count_predictions(self, count: int) -> None:
        """Count predictions in memory, and write them once they are enough and nobody writes."""
        with self._lock:
            if self._trial is None:
                return
            self._fresh += count
            enough = self._late or after(self._trial, "predict", self._fresh) == "over"
        if enough:
            self.flush(wait=False)

    def flush(self, *, wait: bool = True) -> None:
        """Write the predictions counted so far, and end the trial if they are enough.

        Args:
            wait: Whether to wait for other writers; if not, the predictions may stay in memory.
        """
        with self._lock:
            trial, fresh, self._fresh = self._trial, self._fresh, 0
        if trial is None:
            return
        if self._late:
            self._late = self._note(trial, "answer", wait=wait) is None
        result = self._note(trial, "predict", fresh, wait=wait) if fresh else trial
        with self._lock:
            if self._trial is None or self._trial.began != trial.began:
                return
            if result is None:
                self._fresh += fresh
            else:
                self._trial = result if isinstance(result, Trial) else None

    def close(self) -> None:
        """Close the file of the lock."""
        self._counting.close()

    def _note_passed(self, trial: Trial) -> None:
        with self._lock:
            self._trial, self._fresh, self._late = trial, 0, False

    def _note(
        self, trial: Trial, event: Event, number: int = 0, *, wait: bool = False
    ) -> Trial | End | None:
        """Write what an event makes of a trial; None if others write, or the disk is full."""
        try:
            with self._store.turn(wait=wait), self._store.transaction():
                return self.write(trial, event, number)
        except DeviceError as error:  # an error here must not stop predictions
            if wait or event == "load":
                _log.warning("the trial of the active slot is not counted: %s", error)
            return None
