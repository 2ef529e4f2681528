"""Diagnose a device's folder: what is damaged, and which slots are usable."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceError, counted, printable
from fala.examples import MATCHING
from fala.files import device_errors
from fala.model.heads import Head
from fala.slots.bundles import BUNDLES, bundle_path, open_adapter, open_any, vendor_record
from fala.slots.open_slot import OpenSlot, lazy_backbone
from fala.store.encryption import Codec
from fala.store.records import SlotRecord
from fala.store.rescue import Rescue, rescue
from fala.store.slots import slots_of
from fala.store.store import Store

#: The store's file in a device's folder.
STORE = "store.sqlite3"
#: The store that a repair writes, before it replaces the damaged one.
REBUILT = f"rebuilt-{STORE}"
#: Marks a folder whose erasure has begun; deleted last.
ERASING = f"erasing-{STORE}"


@dataclass(frozen=True, eq=False)
class UsableSlot:
    """A slot that can be active.

    Attributes:
        name: The slot, or the one that the release would be installed in.
        bundle: Its bundle, verified.
        head: The bundle's head.
        opened: The slot, opened; None if its personal model has to be fitted again.
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
        backbone = lazy_backbone(self.bundle, self.bundle.backbone)
        model = self.head.vendor_model()
        return OpenSlot.of(0, self.vendor_record(), self.bundle, model, backbone)


@dataclass(eq=False)
class Health:
    """The state of a device's folder.

    Attributes:
        folder: The folder.
        rescue: The readable part of the store.
        slots: The problem of each slot, by name; empty without one.
        bundles: The problem of each bundle, by file name; empty without one.
        store: The problems of the store.
        exposed: Files and folders that other users of the machine may read.
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
    exposed: list[Path] = field(default_factory=list)
    usable: list[UsableSlot] = field(default_factory=list)
    adapters: dict[str, UsableSlot | None] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def problems(self) -> list[str]:
        """All problems, in words."""
        return [
            *(f"{STORE}: {problem}" for problem in self.store),
            *(f"slot {name}: {problem}" for name, problem in self.slots.items() if problem),
            *(f"{BUNDLES}/{name}: {problem}" for name, problem in self.bundles.items() if problem),
            *(f"{file.name}: other users may read it" for file in self.exposed),
        ]

    @property
    def damaged_bundles(self) -> list[str]:
        """The names of the files of bundles that are damaged."""
        return [name for name, problem in self.bundles.items() if problem]

    def active(self, adapter: str = "") -> tuple[str, str | None] | None:
        """A task's active slot and the previous one; None if the store's row is lost."""
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
    """Find the problems of a folder, and its usable slots; nothing is changed.

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
    for file in _bundles(folder):
        health.bundles[file.name] = _fault(file)
    _find_usable(health)
    health.store += problems
    if health.active() is None:
        health.store.append("the row of the active slot is missing")
    for adapter in ("", *health.rescue.adapters()):
        active = health.active(adapter)
        if active is not None:
            health.slots.setdefault(active[0], "its row is missing")
    _drop_misfits(health)
    health.exposed = [] if os.name == "nt" else [*_exposed_files(folder)]
    return health


def _bundles(folder: Path) -> Sequence[Path]:
    """The files of a device's bundles.

    Raises:
        DeviceError: They cannot be listed; ``Path.glob`` would return none.
    """
    bundles = folder / BUNDLES
    if not bundles.is_dir():
        return []
    with device_errors(bundles):
        return sorted(file for file in bundles.iterdir() if file.suffix == ".fala")


def _fault(file: Path) -> str:
    try:
        digest = open_any(file)[0].digest
    except BundleError as error:
        check_access(error, file)
        return str(error).removeprefix(printable(f"{file}: "))
    return "" if digest == file.stem else "not the bundle that was installed"


def check_access(error: BaseException | None, file: Path) -> None:
    """Raise an error of access to a bundle: the bundle is not damaged.

    Args:
        error: The error of opening it.
        file: The bundle, or the folder of all.

    Raises:
        DeviceError: It is one of access.
    """
    while error is not None:
        missing = isinstance(error, FileNotFoundError | IsADirectoryError)
        if isinstance(error, OSError) and not missing:
            with device_errors(file):
                raise error
        error = error.__cause__


def _find_usable(health: Health) -> None:
    """Open every slot: the active one first, then the previous, then bundles of no slot."""
    folder = health.folder
    health.usable = _usable_of(health, "", ())
    used = {slot.bundle.path.name for slot in health.usable}
    unused = [name for name, problem in health.bundles.items() if not problem and name not in used]
    # The newest is most likely the active slot's.
    for name in sorted(unused, key=lambda name: -(folder / BUNDLES / name).stat().st_mtime):
        health.usable += _to_fit(slots_of("")[0], folder / BUNDLES / name)
    choose_adapters(health)


def choose_adapters(health: Health) -> None:
    """Find the usable slots of the further tasks, beside the best of the releases."""
    bases = [slot.as_base() for slot in health.usable]
    base_digest = bases[0].bundle.backbone_digest if bases else ""
    for adapter in health.rescue.adapters():
        usable = _usable_of(health, adapter, bases)
        fitting = [slot for slot in usable if slot.bundle.base == base_digest]
        health.adapters[adapter] = fitting[0] if fitting else None


def _usable_of(health: Health, adapter: str, bases: Sequence[OpenSlot]) -> list[UsableSlot]:
    """Open a task's slots, and note their problems.

    Args:
        health: The folder's state so far.
        adapter: The task's; empty for the device's own.
        bases: The releases that an adapter may be for.

    Returns:
        The undamaged slots, then those whose model has to be fitted again.
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
            check_access(error, folder / BUNDLES)
            problem, _, _ = str(error).partition("; fala-device")
            problem = problem.removeprefix(printable(f"{folder / STORE}: "))
            health.slots[name] = problem.removeprefix(f"slot {name} is damaged: ")
        with contextlib.suppress(DeviceError):  # not even its bundle can be read
            digest = store.slots.bundle(name)
            if health.bundles.get(f"{digest}.fala") == "":
                usable += _to_fit(name, bundle_path(folder, digest))
    return sorted(usable, key=lambda slot: slot.opened is None)


def _open(folder: Path, store: Store, name: str, bases: Sequence[OpenSlot]) -> OpenSlot:
    """Open a slot; an adapter's on the release that it was made for."""
    base = None
    if store.adapter:
        base_digest = open_adapter(bundle_path(folder, store.slots.bundle(name)))[0].base
        fitting = [slot for slot in bases if slot.bundle.backbone_digest == base_digest]
        if not fitting:
            raise DeviceError("the release that its adapter was made for is missing")
        base = fitting[0]
    return OpenSlot.open(store, name, 0, base)


def _to_fit(slot: str, file: Path) -> list[UsableSlot]:
    """A slot whose model has to be fitted again; none if the bundle is for another task."""
    bundle, head = open_any(file)
    of_adapter = slot not in slots_of("")
    return [UsableSlot(slot, bundle, head)] if (bundle.base is not None) == of_adapter else []


def _drop_misfits(health: Health) -> None:
    """Drop examples of another kind than their task's usable slot accepts."""
    dropped = sum(
        health.rescue.drop_misfits(adapter, matching=usable.head.task == MATCHING)
        for adapter, usable in health.tasks().items()
        if usable is not None
    )
    if dropped:
        health.store.append(f"{counted(dropped, 'example')} of another task")


def _exposed_files(folder: Path) -> Iterator[Path]:
    """The device's files that other users may read."""
    files = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    for file in files:
        if file.exists() and file.stat().st_mode & 0o077:
            yield file
