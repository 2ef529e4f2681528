"""Adapters of a device's further tasks: loaded, and replaced together with the release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fala.bundle.manifest import PRODUCT
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.errors import DataError, MissingAdapterError, UnknownAdapterError, safe_line
from fala.model.active import ActiveModel
from fala.model.heads import Head
from fala.model.labels import OneLabel
from fala.personal.prepare import Part, part_for
from fala.report import AdapterInfo
from fala.slots.bundles import open_adapter
from fala.slots.folder import Folder
from fala.slots.installing import load_adapter
from fala.slots.open_slot import adapted_backbone
from fala.slots.task import Task, further_tasks
from fala.slots.validation import FEW_EDGE_CASES, PROBES, check_own_texts

#: The adapters' files; by task name, where that differs from the bundle's name.
Adapters = Sequence[Path] | Mapping[str, Path]


def adapter_parts(
    folder: Folder, own_part: Part, paths: Adapters, trust: Trust | None
) -> list[Part]:
    """Open an adapter for every further task of a device.

    A task keeps its adapter if that is made for the release's backbone.

    Args:
        folder: The device's folder.
        own_part: The part of the device's own task, with the release to install.
        paths: The adapters' files.
        trust: See ``Device.replace``.

    Returns:
        The tasks' parts, in the order of their names.

    Raises:
        MissingAdapterError: A task has no adapter.
        UnknownAdapterError: No task has an adapter's name.
        DataError: Two adapters are for one task.
        BundleMismatchError: An adapter was made for another backbone, or lacks a label.
        BundleError: An adapter cannot be trusted.
    """
    release, tasks = own_part.bundle, further_tasks(folder)
    adapters = _by_name(paths, trust)
    for name, (bundle, _) in adapters.items():
        if name not in {task.adapter for task in tasks}:
            raise UnknownAdapterError(
                f"{bundle.path}: this device has no adapter {name} to replace; load it after the "
                "replacement with Device.load_adapter"
            )
    parts: list[Part] = []
    missing: list[str] = []
    for task in tasks:
        active = task.active
        if task.adapter not in adapters:
            if active.bundle.base != release.backbone_digest:
                missing.append(task.adapter)
                continue
            adapters[task.adapter] = open_adapter(active.bundle.path, hold=True)
        bundle, head = adapters[task.adapter]
        backbone = adapted_backbone(bundle, release, own_part.backbone)
        parts.append(part_for(task, active, bundle, head, backbone))
    if missing:
        raise MissingAdapterError(
            f"{release.path}: no adapter for {', '.join(missing)}; pass the vendor's for "
            "this release (adapters=[...]), or delete it first with Device.delete_adapter"
        )
    return parts


def load(
    folder: Folder,
    path: Path,
    name: str | None,
    positive: OneLabel | None,
    trust: Trust | None,
) -> Task:
    """Load an adapter beside the active release; see ``Device.load_adapter``.

    Args:
        folder: The device's folder.
        path: The adapter's file.
        name: The task's name; None takes the bundle's own.
        positive: See ``Device.load_adapter``.
        trust: See ``Device.replace``.
    """
    bundle, head = open_adapter(path, hold=True, trust=trust)
    name = bundle.manifest.name if name is None else name
    if not PRODUCT.fullmatch(name):
        raise DataError(
            f"{bundle.path}: its name {safe_line(name, 80)} is not made of a-z, 0-9, - and _; "
            "pass another with name="
        )
    label = None if positive is None else head.positive(positive)
    active = Task(folder).active
    backbone = adapted_backbone(bundle, active.bundle, active.active_model.backbone)
    texts = folder.store.texts.newest(PROBES)
    model = ActiveModel(head.vendor_model(), backbone)
    check_own_texts(model, bundle, [*FEW_EDGE_CASES, *texts])
    return load_adapter(folder, bundle, head, name, label)


class LoadedAdapters(Mapping[str, AdapterInfo]):
    """The further tasks of a device by their adapters' names; a state is read when it is asked for.

    Args:
        folder: The device's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> AdapterInfo:
        if name not in self._names():
            raise KeyError(name)
        task = Task(self._folder, name)
        active, (count, labelled) = task.active, task.store.examples.counts()
        head = active.model.head
        return AdapterInfo(
            name, head.task, head.labels, task.positive(head),
            head.link.thresholds(head.labels, active.active_model.threshold), count, labelled,
            active.model.is_vendor,
        )  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        return self._folder.store.slots.adapters()


def _by_name(paths: Adapters, trust: Trust | None) -> dict[str, tuple[Bundle, Head]]:
    pairs = [*paths.items()] if isinstance(paths, Mapping) else [(None, path) for path in paths]
    adapters: dict[str, tuple[Bundle, Head]] = {}
    for name, path in pairs:
        bundle, head = open_adapter(path, hold=True, trust=trust)
        name = bundle.manifest.name if name is None else name
        if name in adapters:
            raise DataError(f"{path}: a second adapter for {name}")
        adapters[name] = bundle, head
    return adapters
