"""The state that all tasks of a device share: the open store, locks, and open slots."""

from __future__ import annotations

from pathlib import Path
from threading import Lock, RLock

from fala.backbones.external import Encoders
from fala.slots.open_slot import OpenSlot
from fala.slots.trial import Trials
from fala.store.store import Store

#: The store's file in a device's folder.
STORE = "store.sqlite3"


class Folder:
    """A device's folder, open.

    Args:
        path: The folder.
        store: Its store, open.
        encoders: The app's own encoders.

    Attributes:
        path: See above.
        store: See above.
        encoders: See above.
        work: Held to read, fit and write; never while texts are encoded for long.
        probing: Held while a slot on trial is probed.
        trials: The trial of the active release.
        active: The active slots that are open, by their tasks' adapters; see ``Task.active``.
        behind: The tasks, by their adapters, that fell back to a model without newer labels.
    """

    def __init__(self, path: Path, store: Store, encoders: Encoders) -> None:
        self.path = path
        self.store = store
        self.encoders = encoders
        self.work, self.probing = RLock(), Lock()
        self.trials = Trials(path, store)
        self.active: dict[str, OpenSlot] = {}
        self.behind: set[str] = set()
        self._stores: dict[str, Store] = {"": store}

    def store_of(self, adapter: str) -> Store:
        """The task's part of the store."""
        if adapter not in self._stores:
            self._stores[adapter] = self.store.of(adapter)
        return self._stores[adapter]

    def close(self) -> None:
        """Close the store."""
        self.trials.flush()
        self.store.close()
