"""The walk: one visitor's devices from the first label to the last forward pass.

Every act takes the walk's lock; what takes long runs in one thread of its own and gives the lock
back between its steps. The page sees ``view``, which is made anew after every step and read without
a wait. What was done is in the devices and in the notes before the view tells of it: a server that
is killed goes on from there.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fala.errors import DataError
from fala.personal.budget import Budget
from fala.playground.page.columns import Column, column_of
from fala.playground.page.devices import COLUMNS, Devices, remove_devices
from fala.playground.page.notes import Notes
from fala.playground.page.posts import READERS, SHOWN, Posts, posts_of, sample
from fala.playground.page.view import view_of
from fala.playground.page.worker import Worker
from fala.release.user_rows import Rows

#: Forward passes that a press of the button buys, and that are made between two looks.
PASSES, BATCH = 60, 5
#: So many labels a synthetic reader gives one by one; then so many at a time.
SLOWLY, AT_ONCE = 10, 19
LONGEST_TEXT = 2000  # characters of a visitor's own text
READER = 1  # the synthetic reader that is proposed: the first, whatever becomes of it


class Walk:
    """What the page shows and does; see the module.

    Args:
        folder: Where devices and notes lie; it exists.
        seed: The sample's; a folder that was begun with one keeps it.
        resume: The command that goes on with this folder; None where it does not stay.

    Attributes:
        view: What the page shows; ``version`` counts its changes.

    Raises:
        DataError: Another server has the folder.
    """

    def __init__(self, folder: Path, seed: int = 0, resume: str | None = None) -> None:
        self._folder = folder
        self._lock, self._publishing = threading.RLock(), threading.Lock()
        self._notes = Notes(folder)
        self._seed = int(self._notes.get("seed", seed))
        self._notes.set(seed=self._seed)
        self._rows: Rows | None = None
        self._opened: tuple[Devices, Posts] | None = None
        self._columns: dict[str, Column] = {}
        self._worker = Worker(self._told)
        self.view: dict[str, Any] = {
            "version": 0, "seed": self._seed, "stage": "preparing",
            "busy": None, "failed": None, "resume": resume,
        }  # fmt: skip

    def start(self) -> None:
        """Begin, or go on; the page can be shown at once."""
        self._worker.begin("prepare", self._prepare)

    def close(self) -> None:
        """End what is under way after its present step, and close all files."""
        self._worker.pause()
        with self._lock:
            if self._opened is not None:
                self._opened[0].close()
            self._notes.close()

    def label(self, post: int, label: int) -> None:
        """The visitor says what a post is.

        Args:
            post: The position of one of the device's posts.
            label: 1 where it is unwelcome, else 0.
        """
        with self._lock:
            devices, posts = self._labelling()
            if self._notes.get("who", "visitor") != "visitor":
                raise DataError("a synthetic reader labels these posts; start again to do it")
            if not 0 <= post < len(posts.documents) or label not in (0, 1):
                raise DataError("label one of the posts with 0 or 1")
            self._notes.set(who="visitor")
            self._learn(devices, posts, [post], [label])

    def watch(self, reader: int) -> None:
        """Let a synthetic reader label all posts, before the visitor's eyes."""
        with self._lock:
            devices, _ = self._labelling()
            if not 1 <= reader <= READERS:
                raise DataError(f"the readers are 1 to {READERS}")
            if self._notes.get("who", "reader") != "reader":
                raise DataError("you have labelled posts yourself; start again to watch a reader")
            if reader != self._reader():
                if devices.labelled():
                    raise DataError("another reader has labelled posts; start again to change")
                self._begin_anew(reader)
            self._notes.set(who="reader")
            self._worker.begin("watch", self._watch)

    def ship(self) -> None:
        """The vendor ships a new backbone."""
        with self._lock:
            devices, _ = self._labelling()
            if not devices.labelled():
                raise DataError("label a post first: nothing is personal yet")
            self._notes.set(shipped=True)
            self._worker.begin("ship", self._ship)

    def refine(self) -> None:
        """Run the user's texts through the new backbone, a batch at a time."""
        with self._lock:
            devices, _ = self._ready()
            if not devices.replaced or devices.rolled_back:
                raise DataError("there is no new backbone to refine")
            self._worker.idle()
            self._notes.set(target=int(self._notes.get("passes", 0)) + PASSES)
            self._worker.begin("refine", self._refine)

    def stop(self) -> None:
        """End what is under way after its present step."""
        self._worker.stop()

    def roll_back(self) -> None:
        """Go back to the old model, or come back to the new one."""
        self._worker.pause()
        with self._lock:
            devices, _ = self._ready()
            self._worker.idle()
            if not devices.replaced:
                raise DataError("there is nothing to go back to")
            start = time.perf_counter()
            devices.mine.rollback()
            self._notes.set(rollback_seconds=time.perf_counter() - start)
            self._show("mine")

    def check(self, post: int, label: int | None) -> None:
        """The visitor says what an unseen post is; no model learns it."""
        with self._lock:
            _, posts = self._ready()
            if not 0 <= post < len(posts.unseen) or label not in (0, 1, None):
                raise DataError("say 0, 1 or nothing of one of the unseen posts")
            checks = {**self._notes.get("checks", {}), str(post): label}
            known = {at: said for at, said in checks.items() if said is not None}
            self._notes.set(checks=known)
            self._show()

    def ask(self, text: str) -> dict[str, Any]:
        """All models' answers to a text of the visitor's own, which none of them keeps."""
        if not text.strip() or len(text) > LONGEST_TEXT:
            raise DataError(f"a text has 1 to {LONGEST_TEXT} characters")
        with self._lock:
            devices, _ = self._ready()
            answers = []
            for name in (name for name in COLUMNS if name in devices.devices):
                start = time.perf_counter()
                column = column_of(devices.devices[name], [text])
                answers.append(
                    {
                        "key": name,
                        "backbone": column.backbone,
                        "unwelcome": float(column.unwelcome[0]),
                        "decided": bool(column.decided[0]),
                        "milliseconds": 1000 * (time.perf_counter() - start),
                    }
                )
            return {"text": text, "answers": answers}

    def again(self) -> None:
        """Delete the devices, with all that was learned, and begin anew."""
        self._worker.pause()
        with self._lock:
            self._ready()
            self._worker.idle()
            self._begin_anew(self._reader())
            self._show()

    def _ready(self) -> tuple[Devices, Posts]:
        if self._opened is None:
            raise DataError("the device is not ready yet")
        return self._opened

    def _labelling(self) -> tuple[Devices, Posts]:
        opened = self._ready()
        self._worker.idle()
        if self._notes.get("shipped", False):
            raise DataError("the vendor has shipped; start again to label more")
        return opened

    def _reader(self) -> int:
        return int(self._notes.get("reader", READER))

    def _prepare(self) -> None:
        self._rows = sample(self._seed)
        with self._lock:
            if (reader := self._notes.get("erasing")) is not None:
                self._begin_anew(reader)
            else:
                self._open_devices(self._rows, self._reader())
            if self._notes.get("shipped", False):
                self._ship()
                devices, _ = self._ready()
                if not devices.rolled_back:  # a kill may have kept a batch from the notes
                    self._notes.set(passes=devices.passes())
            self._show()

    def _open_devices(self, rows: Rows, reader: int) -> None:
        posts = posts_of(rows, reader)
        devices = Devices(self._folder, posts.documents)
        self._opened = devices, posts
        self._columns.clear()
        if self._notes.get("first") is None:  # nothing is learned yet
            first = column_of(devices.mine, posts.unseen[:SHOWN]).unwelcome
            self._notes.set(first=first.tolist(), reader=reader)

    def _begin_anew(self, reader: int) -> None:
        self._notes.set(erasing=reader)  # a server that is killed from here on finishes it
        if self._opened is not None:
            self._opened[0].erase()
            self._opened = None
        remove_devices(self._folder)
        self._notes.begin_anew(reader=reader)
        if self._rows is not None:
            self._open_devices(self._rows, reader)

    def _learn(self, devices: Devices, posts: Posts, places: list[int], labels: list[int]) -> None:
        start = time.perf_counter()
        devices.mine.learn([posts.documents[place] for place in places], labels)
        spent = time.perf_counter() - start
        self._notes.set(learn_seconds=self._notes.get("learn_seconds", 0.0) + spent)
        self._show("mine")

    def _watch(self) -> None:
        while not self._worker.stopping:
            with self._lock:
                devices, posts = self._ready()
                known = devices.labelled()
                left = [at for at, text in enumerate(posts.documents) if text not in known]
                if not left:
                    break
                places = left[: 1 if len(known) < SLOWLY else AT_ONCE]
                self._learn(devices, posts, places, [posts.labels[place] for place in places])

    def _ship(self) -> None:
        with self._lock:
            devices, _ = self._ready()
            report, installed = devices.ship()
            if report is not None:
                self._notes.set(
                    replace_seconds=report.seconds["total"],
                    install_seconds=installed,
                    sentence=report.sentence,
                )
            self._show(*COLUMNS)

    def _refine(self) -> None:
        while not self._worker.stopping:
            with self._lock:
                devices, _ = self._ready()
                left = int(self._notes.get("target", 0)) - int(self._notes.get("passes", 0))
                if left <= 0:
                    break
                report = devices.mine.refine(Budget(min(BATCH, left)))
                spent = self._notes.get("refine_seconds", 0.0) + report.seconds["total"]
                self._notes.set(
                    passes=report.representatives,
                    refine_seconds=spent,
                    stopped="" if report.forward_passes else report.stopped,
                )
                self._show("mine")
                if not report.forward_passes:
                    break

    def _show(self, *changed: str) -> None:
        """Ask the devices that changed, and tell the page. In the lock."""
        devices, posts = self._ready()
        for name in changed:
            self._columns.pop(name, None)
        for name, device in devices.devices.items():
            if name not in self._columns:
                self._columns[name] = column_of(device, posts.unseen)
        self._publish(view_of(self._notes, devices, posts, self._columns))

    def _told(self, job: str | None, failed: str | None) -> None:
        self._publish({"busy": job, "failed": failed})

    def _publish(self, parts: dict[str, Any]) -> None:
        with self._publishing:
            self.view = {**self.view, **parts, "version": self.view["version"] + 1}
