"""The further tasks' part in a replacement: an adapter each for the new backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from fala.backbones import Backbone
from fala.backbones.backbone import AdaptedBackbone
from fala.bundle.manifest import PRODUCT
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.errors import DataError, MissingAdapterError, UnknownAdapterError, safe_line
from fala.model.active import ActiveModel
from fala.model.heads import Head, label_name
from fala.personal.encode import PROBES, probe
from fala.personal.prepare import Release, fitting
from fala.slots.bundles import open_adapter
from fala.slots.edge_cases import ODD
from fala.slots.installed import Installed
from fala.slots.open_slot import OpenSlot, adapted
from fala.slots.task import Task

#: Adapters' files; by the names of their tasks, where those are not the bundles'.
Adapters = Sequence[str] | Mapping[str, str]


def open_new_adapters(
    installed: Installed, release: Release, paths: Adapters, trust: Trust | None
) -> list[tuple[Task, OpenSlot, Release]]:
    """Open an adapter for every further task of a device.

    A task whose adapter is made for the release's backbone already goes on with it.

    Args:
        installed: The device.
        release: What is to be installed.
        paths: The adapters' files.
        trust: See ``Device.replace``.

    Returns:
        The tasks, what answers for each, and its new adapter, in the order of their names.

    Raises:
        MissingAdapterError: One has none.
        UnknownAdapterError: There is no task of an adapter's name.
        DataError: Two are for one task.
        BundleMismatchError: One was made for another backbone, or lacks a label.
        BundleError: One cannot be trusted.
    """
    given = _by_name(paths, trust)
    names = installed.store.slots.adapters()
    for name, (bundle, _) in given.items():
        if name not in names:
            raise UnknownAdapterError(
                f"{bundle.path}: there is no adapter {name} on this device to take the place of; "
                "load it after the replacement with Device.load_adapter"
            )
    found: list[tuple[Task, OpenSlot, Release]] = []
    for name in names:
        task = installed.adapted(name)
        now = task.now
        if name not in given and now.bundle.base == release.bundle.backbone_digest:
            given[name] = open_adapter(now.bundle.path, hold=True)
        if name not in given:
            continue
        bundle, head = given[name]
        bundle.check_base(release.bundle)
        found.append((task, now, fitting(task, now, bundle, head)))
    if missing := [name for name in names if name not in given]:
        raise MissingAdapterError(
            f"{release.bundle.path}: no adapter for {', '.join(missing)}; give the vendor's for "
            "this release (adapters=[...]), or delete it first with Device.delete_adapter"
        )
    return found


def load(
    installed: Installed,
    path: str,
    name: str | None,
    positive: str | int | None,
    trust: Trust | None,
) -> Task:
    """Load an adapter beside what answers; see ``Device.load_adapter``.

    Args:
        installed: The device.
        path: The adapter's file.
        name: What it is called; None takes the bundle's own name.
        positive: The label, of two, whose F1 thresholds are for.
        trust: See ``Device.replace``.
    """
    bundle, head = open_adapter(path, hold=True, trust=trust)
    called = bundle.manifest.name if name is None else name
    if not PRODUCT.fullmatch(called):
        raise DataError(
            f"{bundle.path}: its name {safe_line(called, 80)} is none of a-z, 0-9, - and _; give "
            "it one with name="
        )
    if positive is not None and label_name(positive) not in head.labels:
        raise DataError(
            f"positive is one of {', '.join(head.labels)}, not {label_name(positive)!r:.60}"
        )
    now = installed.now
    backbone = adapted(bundle, now.bundle, now.answering.backbone)
    probe(ActiveModel(head.vendor_model(), backbone), bundle, [*ODD, *_texts(installed)])
    label = None if positive is None else label_name(positive)
    return installed.load(bundle, head, called, label)


def _texts(installed: Installed) -> list[str]:
    return installed.store.texts.newest(PROBES)


def loader_of(load: Callable[[], Backbone], bundle: Bundle) -> Callable[[], Backbone]:
    """Gives a backbone with an adapter in it, read once.

    Args:
        load: Gives the backbone.
        bundle: The adapter's.
    """
    lock, made = Lock(), list[Backbone]()

    def loaded() -> Backbone:
        with lock:
            if not made:
                made.append(AdaptedBackbone(load(), bundle.state()))
            return made[0]

    return loaded


def _by_name(paths: Adapters, trust: Trust | None) -> dict[str, tuple[Bundle, Head]]:
    named = [*paths.items()] if isinstance(paths, Mapping) else [(None, path) for path in paths]
    found: dict[str, tuple[Bundle, Head]] = {}
    for given, path in named:
        bundle, head = open_adapter(path, hold=True, trust=trust)
        name = bundle.manifest.name if given is None else given
        if name in found:
            raise DataError(f"{path}: a second adapter for {name}")
        found[name] = bundle, head
    return found
