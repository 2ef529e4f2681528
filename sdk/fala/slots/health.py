"""What of a device's folder is whole, and what could answer."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fala.bundle.reading import Bundle
from fala.errors import BundleError, DeviceError
from fala.examples import MATCHING, Match
from fala.model.heads import Head
from fala.slots.bundles import (
    BUNDLES,
    SLOTS,
    bundle_path,
    open_adapter,
    open_any,
    slot_record,
    slots_of,
)
from fala.slots.open_slot import OpenSlot
from fala.slots.salvage import Salvaged, salvage
from fala.store.database import BUSY_TIMEOUT_MS, Database
from fala.store.records import SlotRecord
from fala.store.schema import MIGRATIONS
from fala.store.sealing import PLAIN, Plain
from fala.store.settings import adapter_of

#: The store's file in a device's folder.
STORE = "store.sqlite3"
#: A store that a repair has written, and that has not taken its place yet.
REBUILT = f"rebuilt-{STORE}"


@dataclass(frozen=True, eq=False)
class Candidate:
    """What could answer.

    Attributes:
        slot: The slot that it is in, or would be put in.
        bundle: Its bundle, verified.
        head: The bundle's head.
        opened: The slot, where its personal model is whole; else that is to be fitted again.
    """

    slot: str
    bundle: Bundle
    head: Head
    opened: OpenSlot | None = None

    def anew(self) -> SlotRecord:
        """Its slot's row, with the vendor's model."""
        return slot_record(self.slot, self.bundle, self.head.vendor_model())

    def as_base(self) -> OpenSlot:
        """It as what adapters are opened on."""
        if self.opened is not None:
            return self.opened
        return OpenSlot.of(0, self.anew(), self.bundle, self.head.vendor_model())


@dataclass(eq=False)
class Health:
    """What was found in a device's folder.

    Attributes:
        folder: It.
        salvaged: What can be read of the store.
        slots: What is wrong with each slot by name; empty where nothing is.
        bundles: What is wrong with each file of a bundle, by name; empty where nothing is.
        store: What is wrong with the store.
        open_to_others: Files and folders that other users of the machine may read.
        candidates: What could answer, the best first.
        adapters: What could answer for each further task, by its adapter's name; None where
            nothing could. Its examples stay, until its adapter is loaded again.
        unfinished: Whether the folder's creation was never finished.
    """

    folder: Path
    salvaged: Salvaged
    slots: dict[str, str] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)
    store: list[str] = field(default_factory=list)
    open_to_others: list[Path] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    adapters: dict[str, Candidate | None] = field(default_factory=dict)
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


def connect(folder: Path) -> sqlite3.Connection:
    """A connection to a store that may be damaged."""
    connection = sqlite3.connect(folder / STORE, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection


def examine(folder: Path, seal: Plain = PLAIN) -> Health:
    """Look at a device's folder; nothing is changed but an earlier schema, as by opening it.

    Args:
        folder: It.
        seal: What its records are sealed by.

    Raises:
        DeviceError: It is none, cannot be read, a newer FaLA wrote it, or it has another key.
    """
    if not any((folder / name).exists() for name in (STORE, REBUILT)):
        raise DeviceError(f"{folder}: not a device folder; make one with Device.create")
    try:
        if not (folder / STORE).is_file():
            health = Health(folder, Salvaged(problems=["a repair was interrupted"]))
        else:
            _bring_up(folder)
            with closing(connect(folder)) as connection:
                health = Health(folder, salvage(folder / STORE, connection, seal))
        return diagnose(health)
    except OSError as error:
        raise DeviceError(f"{folder}: {error.strerror or error}") from error


def _bring_up(folder: Path) -> None:
    """Migrate a store of an earlier version that is whole."""
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError, DeviceError):
        with closing(connect(folder)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            earlier = 0 < version < len(MIGRATIONS)
            whole = earlier and connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        if whole:
            Database(folder / STORE).close()


def diagnose(health: Health) -> Health:
    """Find out what could answer, and what is wrong with the rest."""
    folder, found = health.folder, health.salvaged
    if not any((found.problems, found.slots, found.broken, found.examples, found.active)):
        health.unfinished = True
        health.store = ["its creation was never finished; call Device.create again"]
        return health
    _check_bundles(health)
    _check_slots(health)
    health.store += found.problems
    if found.active is None:
        health.store.append("it does not tell which slot answers")
    for active, _ in found.answering.values():
        health.slots.setdefault(active, "its row is missing")
    _drop_strangers(health)
    health.open_to_others = [] if os.name == "nt" else [*_lax(folder)]
    return health


def _check_bundles(health: Health) -> None:
    for file in sorted((health.folder / BUNDLES).glob("*.fala")):
        health.bundles[file.name] = _fault(file)


def _fault(file: Path) -> str:
    try:
        digest = open_any(file)[0].digest
    except BundleError as error:
        return str(error).removeprefix(f"{file}: ")
    return "" if digest == file.stem else "not the bundle that was installed"


def _check_slots(health: Health) -> None:
    """Open every slot: the active one first, then what it came from, then what lies about."""
    folder = health.folder
    whole, again = _candidates(health, "", ())
    used = {candidate.bundle.path.name for candidate in (*whole, *again)}
    lying = [name for name, what in health.bundles.items() if not what and name not in used]
    # The newest is likeliest to be what answered last.
    newest = sorted(lying, key=lambda name: -(folder / BUNDLES / name).stat().st_mtime)
    further = [_fitted_again(SLOTS[0], folder / BUNDLES / name) for name in newest]
    health.candidates = [*whole, *again, *(one for one in further if one is not None)]
    choose_adapters(health)


def choose_adapters(health: Health) -> None:
    """Find out what could answer for the further tasks, beside the best of the releases."""
    bases = [candidate.as_base() for candidate in health.candidates]
    for adapter in health.salvaged.adapters():
        whole, again = _candidates(health, adapter, bases)
        made_for = bases[0].bundle.backbone_digest if bases else ""
        fitting = [one for one in (*whole, *again) if one.bundle.base == made_for]
        health.adapters[adapter] = fitting[0] if fitting else None


def _candidates(
    health: Health, adapter: str, bases: Sequence[OpenSlot]
) -> tuple[list[Candidate], list[Candidate]]:
    """Open a task's slots, and note what is wrong with them.

    Args:
        health: What was found.
        adapter: The task's; empty for the device's own.
        bases: The releases that an adapter may be for.

    Returns:
        Those that are whole, and those whose model is to be fitted again, the best first.
    """
    folder, found = health.folder, health.salvaged
    active = found.answering.get(adapter) or (None, None)
    own = [name for name in found.slots if adapter_of(name) == adapter]
    whole: list[Candidate] = []
    again: list[Candidate | None] = []
    for name in sorted(own, key=lambda name: (name != active[0], name != active[1], name)):
        record = found.slots[name]
        health.slots[name] = ""
        try:
            opened = _read(health, record, bases)
            whole.append(Candidate(name, opened.bundle, opened.model.head, opened))
        except (BundleError, DeviceError) as error:
            said = str(error).partition("; fala-device")[0].removeprefix(f"{folder / STORE}: ")
            health.slots[name] = said.removeprefix(f"slot {name} is damaged: ")
            if health.bundles.get(f"{record.bundle}.fala") == "":
                again.append(_fitted_again(name, bundle_path(folder, record.bundle)))
    for name, (digest, why) in found.broken.items():
        if adapter_of(name) == adapter:
            health.slots[name] = why
            if health.bundles.get(f"{digest}.fala") == "":
                again.append(_fitted_again(name, bundle_path(folder, digest)))
    known = [candidate for candidate in again if candidate is not None]
    return whole, sorted(known, key=lambda candidate: candidate.slot != active[0])


def _read(health: Health, record: SlotRecord, bases: Sequence[OpenSlot]) -> OpenSlot:
    """Open a slot; an adapter's on the release that it was made for."""
    folder, generation = health.folder, health.salvaged.counts[0]
    base: OpenSlot | None = None
    if adapter_of(record.name):
        made_for = open_adapter(bundle_path(folder, record.bundle))[0].base
        fitting = [one for one in bases if one.bundle.backbone_digest == made_for]
        if not fitting:
            raise DeviceError("the release that its adapter was made for is not there")
        base = fitting[0]
    return OpenSlot.read(folder, folder / STORE, record, generation, base)


def _fitted_again(slot: str, file: Path) -> Candidate | None:
    """A candidate whose model is to be fitted again; None where the bundle is no such task's."""
    bundle, head = open_any(file)
    adapter = adapter_of(slot)
    if (bundle.base is None) == bool(adapter):
        return None
    names = slots_of(adapter)
    return Candidate(slot if slot in names else names[0], bundle, head)


def _drop_strangers(health: Health) -> None:
    """Examples of another kind than what could answer are no examples of its task."""
    found = health.salvaged
    answers = {"": health.candidates[0] if health.candidates else None, **health.adapters}
    matching = {name: one.head.task == MATCHING for name, one in answers.items() if one is not None}
    strange = [
        identity
        for identity, row in found.examples.items()
        if matching.get(row.adapter, isinstance(row.known, Match)) != isinstance(row.known, Match)
    ]
    for identity in strange:
        del found.examples[identity]
        found.lost += 1
    if strange:
        health.store.append(f"{len(strange)} examples of another task")


def _lax(folder: Path) -> Iterator[Path]:
    """What is the user's, and may be read by others."""
    own = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    for file in own:
        if file.exists() and file.stat().st_mode & 0o077:
            yield file
