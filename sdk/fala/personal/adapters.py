"""Load the adapters of a device's further tasks, and replace them together with the release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fala.base.errors import DataError, MissingAdapterError, UnknownAdapterError, safe_line
from fala.bundle.manifest import PRODUCT
from fala.bundle.reading import Bundle
from fala.model.labels import OneLabel
from fala.personal.prepare import successor
from fala.slots.admit import Origin, admit_adapter
from fala.slots.folder import Snapshot, Task
from fala.slots.release import Release
from fala.slots.switching import load_adapter, opened
from fala.slots.validation import FEW_EDGE_CASES, PROBES, check_own_texts

#: The adapters' files; a mapping gives the task's name where it differs from the bundle's name.
Adapters = Sequence[Path] | Mapping[str, Path]


def adapters_for(
    before: Snapshot, release: Release, paths: Adapters, origin: Origin
) -> list[tuple[Snapshot, Release]]:
    """Open an adapter for every further task of a device.

    A task keeps its adapter if that was made for the release's backbone.

    Args:
        before: The snapshot of the device's own task.
        release: The release to install for the device's own task.
        paths: The adapters' files.
        origin: The origin that the adapters must have.

    Returns:
        The tasks with their adapters, sorted by name.

    Raises:
        MissingAdapterError: If a task has no adapter.
        UnknownAdapterError: If no task has an adapter's name.
        DataError: If two adapters are for the same task.
        BundleMismatchError: If an adapter was made for another backbone, or lacks a label.
        BundleError: If an adapter cannot be trusted.
    """
    tasks = before.task.adapted()
    adapters = _by_name(paths, origin, release)
    for name, adapter in adapters.items():
        if name not in {task.name for task in tasks}:
            raise UnknownAdapterError(
                f"{adapter.bundle.path}: this device has no adapter of its name to replace; load "
                "it after the replacement with Device.load_adapter"
            )
    snapshots = [opened(task) for task in tasks]
    for snapshot in snapshots:
        name, bundle = snapshot.task.name, snapshot.release.bundle
        if name not in adapters and bundle.base == release.bundle.backbone_digest:
            held = Bundle.open(bundle.path, hold=True)
            adapters[name] = Release.of_adapter(held, release)
    if missing := [task.name for task in tasks if task.name not in adapters]:
        raise MissingAdapterError(
            f"{release.bundle.path}: no adapter for {', '.join(missing)}; pass the vendor's for "
            "this release (adapters=[...]), or delete it first with Device.delete_adapter"
        )
    return [(snapshot, successor(snapshot, adapters[snapshot.task.name])) for snapshot in snapshots]


def install_adapter(
    own: Task,
    path: Path,
    name: str | None,
    positive: OneLabel | None,
    origin: Origin,
) -> str:
    """Load an adapter beside the active release; see ``Device.load_adapter``.

    Args:
        own: The device's own task.
        path: The adapter's file.
        name: The task's name; None takes the bundle's own name.
        positive: The label by which the task ranks; None keeps an earlier choice.
        origin: The origin that the adapter must have.

    Returns:
        The task's name.
    """
    base = opened(own)
    adapter = admit_adapter(path, origin, base.release)
    name = adapter.bundle.manifest.name if name is None else name
    if not PRODUCT.fullmatch(name):
        raise DataError(
            f"{adapter.bundle.path}: its name {safe_line(name, 80)} is not made of a-z, 0-9, - and "
            "_; pass another name (name=)"
        )
    label = None if positive is None else adapter.head.positive(positive)
    texts = own.store.texts.newest(PROBES)
    model, encode = adapter.head.vendor_model(), adapter.backbone.encode
    check_own_texts(model, encode, adapter.bundle, [*FEW_EDGE_CASES, *texts])
    load_adapter(Task(own.folder, name, own), base, adapter, label)
    return name


def _by_name(paths: Adapters, origin: Origin, release: Release) -> dict[str, Release]:
    pairs = [*paths.items()] if isinstance(paths, Mapping) else [(None, path) for path in paths]
    adapters: dict[str, Release] = {}
    for name, path in pairs:
        adapter = admit_adapter(path, origin, release)
        name = adapter.bundle.manifest.name if name is None else name
        if name in adapters:
            raise DataError(f"{path}: this is a second adapter for {name}; pass one per task")
        adapters[name] = adapter
    return adapters
