"""One job at a time, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fala.errors import DataError, FalaError

_log = logging.getLogger("fala.playground.page")


class Worker:
    """Runs what takes long.

    Args:
        told: Called when a job begins, with its name, and when it has ended, with None and what
            went wrong, if anything.
    """

    def __init__(self, told: Callable[[str | None, str | None], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether the job is to end after its present step."""
        return self._stop.is_set()

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Begin a job.

        Raises:
            DataError: One is under way.
        """
        with self._lock:
            self.idle()
            self._stop.clear()
            self._thread = threading.Thread(target=self._do, args=(name, work), daemon=True)
            self._told(name, None)
            self._thread.start()

    def idle(self) -> None:
        """Nothing is under way.

        Raises:
            DataError: Something is.
        """
        if self._thread is not None:
            raise DataError("something is under way: wait for it, or stop it")

    def stop(self) -> None:
        """Ask the job to end."""
        self._stop.set()

    def pause(self) -> None:
        """Ask the job to end, and wait for it."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _do(self, name: str, work: Callable[[], None]) -> None:
        failed = None
        try:
            work()
        except FalaError as error:
            failed = str(error)
        except Exception:
            _log.exception("%s failed", name)
            failed = f"this failed ({name}); the terminal of the command says more"
        self._thread = None
        self._told(None, failed)
