"""What of a device's folder is whole, and which slots are usable."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceError, printable
from fala.examples import MATCHING
from fala.model.heads import Head
from fala.slots.bundles import BUNDLES, bundle_path, open_adapter, open_any, vendor_record
from fala.slots.open_slot import OpenSlot
from fala.store.encryption import Codec
from fala.store.records import SlotRecord
from fala.store.rescue import Rescue, rescue
from fala.store.slots import slots_of
from fala.store.store import Store

#: The store's file in a device's folder.
STORE = "store.sqlite3"
#: A store that a repair has written, and that has not taken its place yet.
REBUILT = f"rebuilt-{STORE}"
#: Lies in a folder from when its erasure begins until all else is deleted.
ERASING = f"erasing-{STORE}"


@dataclass(frozen=True, eq=False)
class UsableSlot:
    """A slot that can be active.

    Attributes:
        name: The slot, or that in which the release would be put.
        bundle: Its bundle, verified.
        head: The bundle's head.
        opened: The slot, where its personal model is whole; else that is to be fitted again.
    """

    name: str
    bundle: Bundle
    head: Head
    opened: OpenSlot | None = None

    def vendor_record(self, positive: str | None = None) -> SlotRecord:
        """See ``vendor_record``."""
        return vendor_record(self.name, self.bundle, self.head, positive)

    def as_base(self) -> OpenSlot:
        """The slot on which adapters are opened."""
        if self.opened is not None:
            return self.opened
        return OpenSlot.of(0, self.vendor_record(), self.bundle, self.head.vendor_model())


@dataclass(eq=False)
class Health:
    """The state of a device's folder.

    Attributes:
        folder: The folder.
        rescue: What can be read of the store.
        slots: What is wrong with each slot by name; empty where nothing is.
        bundles: What is wrong with each file of a bundle, by name; empty where nothing is.
        store: What is wrong with the store.
        open_to_others: Files and folders that other users of the machine may read.
        usable: Slots that can be active, the best first.
        adapters: The usable slot of each further task, by its adapter's name; None where there is
            none. The task's examples stay, until its adapter is loaded again.
        unfinished: Whether the folder's creation was never finished.
    """

    folder: Path
    rescue: Rescue
    slots: dict[str, str] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)
    store: list[str] = field(default_factory=list)
    open_to_others: list[Path] = field(default_factory=list)
    usable: list[UsableSlot] = field(default_factory=list)
    adapters: dict[str, UsableSlot | None] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def problems(self) -> list[str]:
        """All that is wrong, in words."""
        return [
            *(f"{STORE}: {what}" for what in self.store),
            *(f"slot {name}: {what}" for name, what in self.slots.items() if what),
            *(f"{BUNDLES}/{name}: {what}" for name, what in self.bundles.items() if what),
            *(f"{file.name}: other users may read it" for file in self.open_to_others),
        ]

    @property
    def damaged_bundles(self) -> list[str]:
        """The names of the files of bundles that are damaged."""
        return [name for name, what in self.bundles.items() if what]

    def active(self, adapter: str = "") -> tuple[str, str | None] | None:
        """A task's active slot and the previous one; None where the store does not tell."""
        try:
            return self.rescue.store.of(adapter).slots.active()
        except DeviceError:
            return None

    def stays(self, adapter: str, usable: UsableSlot | None) -> bool:
        """Whether a usable slot of a task is the active one."""
        active = self.active(adapter)
        return usable is not None and active is not None and usable.name == active[0]

    def tasks(self) -> dict[str, UsableSlot | None]:
        """The best usable slot of every task, by adapter; the device's own has none."""
        return {"": self.usable[0] if self.usable else None, **self.adapters}


def diagnose(folder: Path, source: sqlite3.Connection | None, codec: Codec) -> Health:
    """Find what is wrong in a folder, and which slots are usable; nothing is changed.

    Args:
        folder: The folder.
        source: A connection to its store; None where a repair was interrupted.
        codec: Reads the store's records.
    """
    health = Health(folder, rescue(folder / STORE, source, codec))
    store, problems = health.rescue.store, health.rescue.problems
    if source is None:
        problems[:] = ["a repair was interrupted"]
    if not problems and not store.is_complete and not store.slots.names():
        health.unfinished = True
        health.store = ["its creation was never finished; call Device.create again"]
        return health
    for file in sorted((folder / BUNDLES).glob("*.fala")):
        health.bundles[file.name] = _fault(file)
    _find_usable(health)
    health.store += problems
    if health.active() is None:
        health.store.append("the row of the active slot is missing")
    for adapter in ("", *health.rescue.adapters()):
        active = health.active(adapter)
        if active is not None:
            health.slots.setdefault(active[0], "its row is missing")
    _drop_strangers(health)
    health.open_to_others = [] if os.name == "nt" else [*_open_to_others(folder)]
    return health


def _fault(file: Path) -> str:
    try:
        digest = open_any(file)[0].digest
    except BundleError as error:
        return str(error).removeprefix(printable(f"{file}: "))
    return "" if digest == file.stem else "not the bundle that was installed"


def _find_usable(health: Health) -> None:
    """Open every slot: the active one first, then the previous, then bundles of no slot."""
    folder = health.folder
    health.usable = _usable_of(health, "", ())
    used = {slot.bundle.path.name for slot in health.usable}
    others = [name for name, what in health.bundles.items() if not what and name not in used]
    # The newest is likeliest to be that of the active slot.
    for name in sorted(others, key=lambda name: -(folder / BUNDLES / name).stat().st_mtime):
        health.usable += _fitted_again(slots_of("")[0], folder / BUNDLES / name)
    choose_adapters(health)


def choose_adapters(health: Health) -> None:
    """Find the usable slots of the further tasks, beside the best of the releases."""
    bases = [slot.as_base() for slot in health.usable]
    made_for = bases[0].bundle.backbone_digest if bases else ""
    for adapter in health.rescue.adapters():
        usable = _usable_of(health, adapter, bases)
        fitting = [one for one in usable if one.bundle.base == made_for]
        health.adapters[adapter] = fitting[0] if fitting else None


def _usable_of(health: Health, adapter: str, bases: Sequence[OpenSlot]) -> list[UsableSlot]:
    """Open a task's slots, and note what is wrong with them.

    Args:
        health: The folder's state so far.
        adapter: The task's; empty for the device's own.
        bases: The releases that an adapter may be for.

    Returns:
        Those that are whole, and behind them those whose model is to be fitted again.
    """
    folder, store = health.folder, health.rescue.store.of(adapter)
    active, previous = health.active(adapter) or (None, None)
    usable: list[UsableSlot] = []
    names = store.slots.names()
    for name in sorted(names, key=lambda name: (name != active, name != previous, name)):
        try:
            opened = _open(folder, store, name, bases)
            usable.append(UsableSlot(name, opened.bundle, opened.model.head, opened))
            health.slots[name] = ""
            continue
        except (BundleError, DeviceError) as error:
            why, _, _ = str(error).partition("; fala-device")
            why = why.removeprefix(printable(f"{folder / STORE}: "))
            health.slots[name] = why.removeprefix(f"slot {name} is damaged: ")
        with contextlib.suppress(DeviceError):  # not even its bundle can be read
            digest = store.slots.bundle(name)
            if health.bundles.get(f"{digest}.fala") == "":
                usable += _fitted_again(name, bundle_path(folder, digest))
    return sorted(usable, key=lambda slot: slot.opened is None)


def _open(folder: Path, store: Store, name: str, bases: Sequence[OpenSlot]) -> OpenSlot:
    """Open a slot; an adapter's on the release that it was made for."""
    base = None
    if store.adapter:
        made_for = open_adapter(bundle_path(folder, store.slots.bundle(name)))[0].base
        fitting = [one for one in bases if one.bundle.backbone_digest == made_for]
        if not fitting:
            raise DeviceError("the release that its adapter was made for is not there")
        base = fitting[0]
    return OpenSlot.open(store, name, 0, base)


def _fitted_again(slot: str, file: Path) -> list[UsableSlot]:
    """A slot whose model is to be fitted again; none where the bundle is no such task's."""
    bundle, head = open_any(file)
    of_adapter = slot not in slots_of("")
    return [UsableSlot(slot, bundle, head)] if (bundle.base is not None) == of_adapter else []


def _drop_strangers(health: Health) -> None:
    """Examples of another kind than the usable slot takes are no examples of its task."""
    strange = sum(
        health.rescue.drop_strangers(adapter, matching=usable.head.task == MATCHING)
        for adapter, usable in health.tasks().items()
        if usable is not None
    )
    if strange:
        health.store.append(f"{strange} examples of another task")


def _open_to_others(folder: Path) -> Iterator[Path]:
    """The user's files that others may read."""
    files = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    for file in files:
        if file.exists() and file.stat().st_mode & 0o077:
            yield file
