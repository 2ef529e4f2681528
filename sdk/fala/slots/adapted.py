"""A further task of a device: an adapter in its release's backbone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from fala.errors import BundleError, DeviceError
from fala.examples import Example
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task

_log = logging.getLogger("fala.store")


class Adapted(Task):
    """A further task: an adapter in the release's backbone, with examples and a head of its own.

    Its model may be asked for before it is there: then every use of it says so.

    Args:
        base: The device's own task, whose release it adapts.
        name: The adapter's name.
    """

    def __init__(self, base: Task, name: str) -> None:
        super().__init__(base.path, base.store.of(name), base.work, base.swap)
        self._base, self.left_behind = base, base.left_behind

    def ready(self, examples: Sequence[Example] = ()) -> OpenSlot:
        """See ``Task``. It is on trial with the release."""
        while True:
            self.store.slots.version()
            base = self._base.ready()
            try:
                return self.now
            except BundleError as error:
                if base.trial is None or not self._base.gave_way(base, error):
                    raise

    def slot(self, name: str) -> OpenSlot:
        """See ``Task``."""
        now = self.now
        base = self._base.now if name == now.record.name else self._base.earlier()
        if base is None:
            raise DeviceError(f"{self.path}: there is no earlier release for slot {name}")
        return OpenSlot.open(self.path, self.store, name, now.generation, base)

    def earlier(self) -> OpenSlot | None:
        """See ``Task``."""
        base = self._base.earlier()
        if base is None:
            return None
        return self._opened(self.store.slots.active()[1], self.now.generation, base)

    def prune(self) -> None:
        """See ``Task``."""
        self._base.prune()

    def go_back(self, base: OpenSlot) -> bool:
        """Let what answered before the last replacement answer again. In a transaction.

        Args:
            base: The release that answers with it.

        Returns:
            Whether anything was said or forgotten since that replacement.

        Raises:
            DeviceError: The adapter was loaded after it.
            BundleError: The earlier adapter is damaged.
        """
        store = self.store
        generation, (slot, previous) = store.slots.version().generation, store.slots.active()
        if previous is None:
            raise DeviceError(
                f"{self.path}: the adapter {store.adapter} was loaded after the last replacement, "
                "and has nothing to go back to; delete it first (Device.delete_adapter)"
            )
        # Verified before it answers.
        OpenSlot.open(self.path, store, previous, generation + 1, base)
        store.slots.activate(previous, slot)
        store.slots.advance(generation)
        store.slots.note_rollback(generation + 1)
        changed = store.slots.data_changed()
        store.slots.note_data()
        return changed

    def fall_back(self, base: OpenSlot) -> bool:
        """Let the earlier adapter answer, or none, where it cannot. In a transaction.

        The task's examples stay, and wait for its adapter to be loaded again.

        Args:
            base: The release that answers with it.

        Returns:
            Whether anything was said or forgotten since the last replacement.
        """
        store = self.store
        generation, (_, previous) = store.slots.version().generation, store.slots.active()
        if self._opened(previous, generation + 1, base) is None or previous is None:
            _log.warning("%s: no adapter %s answers any more", self.path, store.adapter)
            store.slots.deactivate()
            for slot in store.slots.names():
                store.slots.drop(slot)
            return False
        store.slots.activate(previous, None)
        store.slots.advance(generation)
        return store.slots.data_changed()

    def _open(self) -> OpenSlot:
        while True:
            base, generation = self._base.now, self.store.slots.version().generation
            try:
                active = self.store.slots.active()[0]
                slot = OpenSlot.open(self.path, self.store, active, generation, base)
            except (BundleError, DeviceError):
                # The release was replaced in between, and this with it.
                if (
                    self.store.slots.version().generation != generation
                    or self._base.now is not base
                ):
                    continue
                raise
            if self.store.slots.version().generation == generation:
                self.store.examples.task = slot.model.head.task
                return replace(slot, trial=base.trial)

    def gave_way(self, now: OpenSlot, error: BundleError) -> bool:
        """See ``Task``."""
        base = self._base.now
        return (
            now.trial is not None and now.trial == base.trial and self._base.gave_way(base, error)
        )

    def answered(self, now: OpenSlot, count: int) -> None:
        """See ``Task``."""
        self._base.answered(now, count)
