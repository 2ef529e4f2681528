"""The state of a device, read from its disk without changing it."""

from __future__ import annotations

from fala.report import Status
from fala.slots.folder import Snapshot, Task
from fala.slots.slot import Slot


def status(task: Task) -> Status:
    """Read the state of a task; see ``Device.status``.

    Raises:
        BundleError: If the active release is damaged.
        DeviceError: If the store is damaged, or the device is closed.
    """
    store, snapshot = task.store, task.snapshot()
    previous = task.previous(snapshot)
    manifest, head = snapshot.release.bundle.manifest, snapshot.head
    examples, labelled = store.examples.counts()
    by_ngrams = head.lexical is not None and store.texts.kept()
    return Status(
        release=snapshot.release.name,
        product=manifest.product,
        version=manifest.version,
        task=head.task,
        labels=head.labels,
        positive=snapshot.positive,
        examples=examples,
        labelled=labelled,
        waiting=0 if by_ngrams else store.examples.waiting(_sources(snapshot, previous)),
        decision=snapshot.active.decision,
        on_trial=task.own.snapshot().trial is not None,
        fell_back=store.settings.fell_back(),
        can_roll_back=snapshot.state.previous is not None,
        previous=None if previous is None else previous.release.name,
        rolled_back=was_rolled_back(snapshot, previous),
        adapters=tuple(store.slots.adapters()),
    )


def was_rolled_back(snapshot: Snapshot, previous: Slot | None) -> bool:
    """Return whether a task's previous slot was installed after its active one, and was active."""
    later = None if previous is None else previous.record.replacement
    since = snapshot.active.record.replacement
    return later is not None and (since is None or later.generation > since.generation)


def _sources(snapshot: Snapshot, previous: Slot | None) -> set[str]:
    """Return the backbones whose embeddings give an example a row; see ``Space.of_slot``."""
    sources = snapshot.release.sources
    if previous is not None and previous.record.backbone in sources:
        sources |= previous.release.sources
    return sources
