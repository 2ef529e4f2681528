"""One visit: real devices, from the first label to the last forward pass.

Every action holds the visit's lock. A long job runs in a thread of its own and releases the lock
between its steps. The page reads ``view``, which is replaced after every step, without waiting. The
devices and the notes are written before the view shows a step, so that after a kill the server
continues from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fala import Budget
from fala.base.errors import DataError, FalaError
from fala_sim.playground.page.devices import COLUMNS, DemoDevices, remove_devices
from fala_sim.playground.page.notes import Notes
from fala_sim.playground.page.posts import PASSES, TASTES, Posts, posts_of
from fala_sim.playground.page.view import ViewColumn, column_of, view_of

_log = logging.getLogger("fala_sim.playground.page")

BATCH = 5  # number of forward passes per step
#: The number of labels that an invented reader gives one by one, and the number per step after
#: that.
SLOWLY, AT_ONCE = 10, 17
LONGEST_TEXT = 2000  # longest text of a user, in characters
READER = 1  # number of the default invented reader


class Visit:
    """The page's content and actions; see the module.

    Args:
        folder: Folder of devices and notes; it must exist.
        seed: Seed of the posts' order; an existing folder keeps its seed.
        resume: Command that continues with this folder; None if the folder is temporary.

    Attributes:
        view: The page's content; ``version`` counts its changes.

    Raises:
        DataError: Another server has the folder.
    """

    def __init__(self, folder: Path, seed: int = 0, resume: str | None = None) -> None:
        self._folder = folder
        self._lock, self._publishing = threading.RLock(), threading.Lock()
        self._notes = Notes(folder)
        self._seed = int(self._notes.get("seed", seed))
        self._notes.set(seed=self._seed, reader=self._reader())
        self._opened: tuple[DemoDevices, Posts] | None = None
        self._columns: dict[str, ViewColumn] = {}
        self._worker = Worker(self._show_job)
        self.view: dict[str, Any] = {
            "version": 0, "stage": "preparing", "busy": None, "failed": None, "resume": resume,
        }  # fmt: skip

    def start(self) -> None:
        """Start or continue the visit in a thread."""
        self._worker.begin("prepare", self._prepare)

    def close(self) -> None:
        """End the running job after its current step, and close all files."""
        self._worker.stop_and_wait()
        with self._lock:
            if self._opened is not None:
                self._opened[0].close()
            self._notes.close()

    def label(self, post: int, label: int) -> None:
        """Store the user's label of a post.

        Args:
            post: Position of one of the device's posts.
            label: 1 if it is unwelcome, else 0.
        """
        with self._lock:
            devices, posts = self._labelling()
            if self._notes.get("who", "visitor") != "visitor":
                raise DataError("an invented reader labels these posts; start again to label them")
            if not 0 <= post < len(posts.documents) or label not in (0, 1):
                raise DataError("the post must be one of this page's, and the label 0 or 1")
            self._notes.set(who="visitor")
            self._learn(devices, posts, [post], [label])

    def watch(self, reader: int) -> None:
        """Let an invented reader label all posts while the user watches."""
        with self._lock:
            devices, _ = self._labelling()
            if not 1 <= reader <= len(TASTES):
                raise DataError(f"the reader must be a number from 1 to {len(TASTES)}")
            if self._notes.get("who", "reader") != "reader":
                raise DataError("you have labelled posts yourself; start again to watch a reader")
            if reader != self._reader():
                if devices.labelled():
                    raise DataError("another reader has labelled posts; start again to change")
                self._start_again(reader)
            self._notes.set(who="reader")
            self._worker.begin("watch", self._watch)

    def ship(self) -> None:
        """Ship a new release, as the vendor."""
        with self._lock:
            devices, _ = self._labelling()
            if not devices.labelled():
                raise DataError("label a post first: there is no personal model yet")
            self._notes.set(shipped=True)
            self._worker.begin("ship", self._ship)

    def refine(self) -> None:
        """Encode the user's texts with the new backbone, a batch at a time."""
        with self._lock:
            devices, _ = self._ready()
            if not devices.replaced or devices.rolled_back:
                raise DataError("there is no new model to refine")
            self._worker.check_idle()
            self._notes.set(target=int(self._notes.get("passes", 0)) + PASSES)
            self._worker.begin("refine", self._refine)

    def stop(self) -> None:
        """End the running job after its current step."""
        self._worker.stop()

    def roll_back(self) -> None:
        """Roll back to the old personal model, or from there to the new release."""
        self._worker.stop_and_wait()
        with self._lock:
            devices, _ = self._ready()
            self._worker.check_idle()
            if not devices.replaced:
                raise DataError("there is no previous model to roll back to")
            start = time.perf_counter()
            devices.mine.rollback()
            self._notes.set(rollback_seconds=time.perf_counter() - start)
            self._show("mine")

    def check(self, post: int, label: int | None) -> None:
        """Store the user's label of an unseen post for the figures; no model learns it."""
        with self._lock:
            _, posts = self._ready()
            if not 0 <= post < len(posts.unseen) or label not in (0, 1, None):
                raise DataError(
                    "the post must be one of the unseen posts, and the label 0, 1 or nothing"
                )
            checks = {**self._notes.get("checks", {}), str(post): label}
            labelled = {key: value for key, value in checks.items() if value is not None}
            self._notes.set(checks=labelled)
            self._show()

    def ask(self, text: str) -> dict[str, Any]:
        """Return all models' predictions for a text of the user, which is not stored."""
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise DataError(f"a text must have 1 to {LONGEST_TEXT} characters")
        with self._lock:
            devices, _ = self._ready()
            predictions = []
            for name in (column["key"] for column in self.view["columns"]):
                start = time.perf_counter()
                column = column_of(devices.devices[name], [text])
                predictions.append(
                    {
                        "key": name,
                        "backbone": column.backbone,
                        "lean": float(column.lean[0]),
                        "milliseconds": 1000 * (time.perf_counter() - start),
                    }
                )
            return {"text": text, "answers": predictions}

    def again(self) -> None:
        """Delete the devices with all labels, and start again."""
        self._worker.stop_and_wait()
        with self._lock:
            self._ready()
            self._worker.check_idle()
            self._start_again(READER)
            self._publish({"failed": None})
            self._show()

    def _ready(self) -> tuple[DemoDevices, Posts]:
        if self._opened is None:
            raise DataError("the device is not ready yet")
        return self._opened

    def _labelling(self) -> tuple[DemoDevices, Posts]:
        ready = self._ready()
        self._worker.check_idle()
        if self._notes.get("shipped", False):
            raise DataError("the new release is installed; start again to label more")
        return ready

    def _reader(self) -> int:
        return int(self._notes.get("reader", READER))

    def _prepare(self) -> None:
        with self._lock:
            if (reader := self._notes.get("erasing")) is not None:
                self._start_again(reader)
            else:
                self._open_devices()
            if self._notes.get("shipped", False):
                self._ship()
                devices, _ = self._ready()
                if not devices.rolled_back:  # after a kill the notes may lack a batch
                    self._notes.set(passes=devices.passes())
            self._show()

    def _open_devices(self) -> None:
        posts = posts_of(self._seed, self._reader())
        self._opened = DemoDevices(self._folder, posts.documents), posts
        self._columns.clear()

    def _start_again(self, reader: int) -> None:
        self._notes.set(erasing=reader)  # the next start completes this after a kill
        if self._opened is not None:
            self._opened[0].erase()
            self._opened = None
        remove_devices(self._folder)
        self._notes.clear(reader=reader)
        self._open_devices()

    def _learn(
        self, devices: DemoDevices, posts: Posts, positions: list[int], labels: list[int]
    ) -> None:
        start = time.perf_counter()
        devices.mine.learn([posts.documents[position] for position in positions], labels)
        seconds = self._notes.get("learn_seconds", 0.0) + time.perf_counter() - start
        self._notes.set(learn_seconds=seconds)
        self._show("mine")

    def _watch(self) -> None:
        while not self._worker.stopping:
            with self._lock:
                devices, posts = self._ready()
                labelled = devices.labelled()
                pending = posts.pending(labelled)[: 1 if len(labelled) < SLOWLY else AT_ONCE]
                if not pending:
                    break
                self._learn(devices, posts, pending, [posts.labels[post] for post in pending])

    def _ship(self) -> None:
        with self._lock:
            devices, _ = self._ready()
            report = devices.ship()
            if report is not None:
                self._notes.set(replace_seconds=report.seconds["total"], report=str(report))
            self._show(*COLUMNS)

    def _refine(self) -> None:
        while not self._worker.stopping:
            with self._lock:
                devices, _ = self._ready()
                remaining = int(self._notes.get("target", 0)) - int(self._notes.get("passes", 0))
                if remaining <= 0:
                    break
                report = devices.mine.refine(Budget(min(BATCH, remaining)))
                seconds = self._notes.get("refine_seconds", 0.0) + report.seconds["total"]
                self._notes.set(
                    passes=report.counts.representatives,
                    refine_seconds=seconds,
                    report=str(report),
                )
                self._show("mine")
                if not report.forward_passes:
                    break

    def _show(self, *changed: str) -> None:
        """Update the view with predictions of the changed devices; the caller holds the lock."""
        devices, posts = self._ready()
        for name in changed:
            self._columns.pop(name, None)
        for name, device in devices.devices.items():
            if name not in self._columns:
                self._columns[name] = column_of(device, posts.unseen)
        self._publish(view_of(self._notes, devices, posts, self._columns))

    def _show_job(self, job: str | None, failed: str | None) -> None:
        self._publish({"busy": job, "failed": failed})

    def _publish(self, parts: dict[str, Any]) -> None:
        with self._publishing:
            self.view = {**self.view, **parts, "version": self.view["version"] + 1}


class Worker:
    """Runs one long job at a time, in a thread of its own.

    Args:
        show: Function that is called at the start of a job, with its name, and at its end, with
            None and the error's message, if any.
    """

    def __init__(self, show: Callable[[str | None, str | None], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether the job should end after its current step."""
        return self._stop.is_set()

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Start a job.

        Raises:
            DataError: Another job is running.
        """
        with self._lock:
            self.check_idle()
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, args=(name, work), daemon=True)
            self._show(name, None)
            self._thread.start()

    def check_idle(self) -> None:
        """Check that no job is running.

        Raises:
            DataError: A job is running.
        """
        if self._thread is not None:
            raise DataError("a job is running: wait for it, or stop it")

    def stop(self) -> None:
        """Request the job's end."""
        self._stop.set()

    def stop_and_wait(self) -> None:
        """Request the job's end, and wait for it."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        failed = None
        try:
            work()
        except FalaError as error:
            failed = str(error)
        except Exception:
            _log.exception("%s failed", name)
            failed = f"this failed ({name}); see the terminal of the command"
        self._thread = None
        self._show(None, failed)
