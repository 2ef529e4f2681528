"""Repair a device's folder: readable data is kept, and the damaged store is set aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fala.errors import DeviceError, counted
from fala.files import FAILING_DISK, device_errors, keep_private, sync_directory, write_atomically
from fala.report import Plain
from fala.slots.bundles import BUNDLES, install, open_release
from fala.slots.erasing import ASIDE
from fala.slots.health import (
    ERASING,
    REBUILT,
    STORE,
    Health,
    UsableSlot,
    choose_adapters,
    diagnose,
)
from fala.store.access import access_error, is_access
from fala.store.database import BUSY_TIMEOUT_MS, check_regular
from fala.store.encryption import PLAIN, Codec
from fala.store.slots import slots_of


@dataclass(frozen=True)
class RepairReport(Plain):
    """The state of a device's folder, and what a repair did about it.

    Attributes:
        path: The device's folder.
        whole: Whether there is no problem, or none after the repair.
        problems: The problems, in words.
        actions: What a repair did; without one, what ``--repair`` would do.
        slots: By name ``"whole"``, or the problem.
        bundles: By file name ``"whole"``, or the problem.
        examples: Examples that can be read.
        labelled: How many of them have a label.
        lost: Examples that can be read in part, but cannot be kept. The contents of a damaged page
            are unknown, so there may have been more.
        answers: The slot that is active after a repair; None if none is usable.
        fit: Whether its personal model is lost, and fitted again to the readable examples.
        adapters: By adapter the slot of a further task that is active after a repair; None if none
            is usable: its examples stay, until its adapter is loaded again.
        fit_adapters: The adapters whose personal model is lost, and fitted again.
        aside: Name of the earlier store, set aside in the folder; None where it did not change.
    """

    path: str
    whole: bool
    problems: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    examples: int = 0
    labelled: int = 0
    lost: int = 0
    answers: str | None = None
    fit: bool = False
    aside: str | None = None
    adapters: Mapping[str, str | None] = field(default_factory=dict)
    fit_adapters: tuple[str, ...] = ()


def examine(folder: Path, codec: Codec = PLAIN) -> RepairReport:
    """Report a folder's problems, and what a repair would do; nothing is changed.

    Raises:
        DeviceError: It is no device's, a newer FaLA wrote it, or it has another key.
    """
    with device_errors(folder), _opened(folder) as source:
        return _report(diagnose(folder, source, codec), repaired=False)


def repair(folder: Path, release: Path | None = None, codec: Codec = PLAIN) -> RepairReport:
    """Repair a folder; see ``Device.repair``."""
    with device_errors(folder), _opened(folder, exclusive=True) as source:
        health = diagnose(folder, source, codec)
        if release is not None and not health.usable and not health.unfinished:
            _install(health, release)
        report = _report(health, repaired=True)
        if health.usable and _needs_change(health):
            _activate(health)
            write_atomically(folder / REBUILT, health.rescue.write)
            if source is not None and os.name == "nt":  # where an open file keeps its name
                source.close()
            report = replace(report, aside=_exchange(folder))
        for name in health.damaged_bundles if health.usable else ():
            (folder / BUNDLES / name).unlink(missing_ok=True)
        for file in health.exposed:
            with contextlib.suppress(FileNotFoundError):  # the last connection deletes the log
                keep_private(file)
        return report


@contextlib.contextmanager
def _opened(folder: Path, *, exclusive: bool = False) -> Iterator[sqlite3.Connection | None]:
    """A connection to a folder's store; None where a repair was interrupted.

    Args:
        folder: The folder.
        exclusive: Finish such a repair, and lock the store against other writers.

    Raises:
        DeviceError: It is no device's, cannot be read, or cannot be written.
        OSError: Its files cannot be examined.
    """
    store = folder / STORE
    try:
        if (folder / ERASING).exists():
            raise DeviceError(f"{folder}: its erasure was interrupted; Device.open finishes it")
        if exclusive:
            _finish(folder)
        if not any(file.exists() for file in (store, folder / REBUILT)):
            raise DeviceError(f"{folder}: not a device folder; make one with Device.create")
        check_regular(store)
        if not store.is_file():
            yield None
            return
        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as source:
            source.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            if exclusive:
                _lock(source)
            yield source
    except sqlite3.Error as error:
        if is_access(error):
            raise access_error(store, error) from error
        raise DeviceError(f"{store}: {error}; {FAILING_DISK}") from error
    except MemoryError as error:
        raise DeviceError(f"{store}: there is not enough memory to read it") from error


def _needs_change(health: Health) -> bool:
    """Whether a repair changes the store or a slot."""
    return (
        bool(health.store)
        or any(health.slots.values())
        or any(
            health.active(adapter) is not None and not health.stays(adapter, usable)
            for adapter, usable in health.tasks().items()
        )
    )


def _report(health: Health, *, repaired: bool) -> RepairReport:
    best, adapters = health.tasks()[""], sorted(health.adapters.items())
    counts = [
        health.rescue.store.of(adapter).examples.counts()
        for adapter in ("", *health.rescue.adapters())
    ]
    problems = tuple(health.problems)
    return RepairReport(
        path=str(health.folder),
        whole=not problems or (repaired and best is not None),
        problems=problems,
        actions=tuple(_actions(health)),
        slots={name: problem or "whole" for name, problem in sorted(health.slots.items())},
        bundles={name: problem or "whole" for name, problem in health.bundles.items()},
        examples=sum(count for count, _ in counts),
        labelled=sum(labelled for _, labelled in counts),
        lost=health.rescue.lost,
        answers=None if best is None else best.name,
        fit=best is not None and best.opened is None,
        adapters={name: None if usable is None else usable.name for name, usable in adapters},
        fit_adapters=tuple(
            name for name, usable in adapters if usable is not None and usable.opened is None
        ),
    )


def _actions(health: Health) -> Iterator[str]:
    """The steps of a repair, in words."""
    if not health.usable and not health.unfinished:
        yield (
            "no release in the folder is whole: repair with one (--bundle FILE), and all that "
            "can be read comes with it"
        )
    elif health.usable and _needs_change(health):
        yield f"write {STORE} anew from what can be read; the earlier file stays aside"
        for adapter, usable in health.tasks().items():
            suffix = f" of the adapter {adapter}" if adapter else ""
            if usable is None:
                count, _ = health.rescue.store.of(adapter).examples.counts()
                yield f"keep {counted(count, 'example')}{suffix}, which is to be loaded again"
            elif usable.opened is None:
                yield f"fit the personal model{suffix} again, on {usable.bundle.manifest.name}"
            elif not health.stays(adapter, usable):
                yield f"fall back to slot {usable.name}, {usable.bundle.manifest.name}"
        if any(health.slots.values()):
            yield "empty the slots that are damaged"
    if health.damaged_bundles:
        yield "delete the bundles that are damaged"
    if health.exposed:
        yield "keep the files from other users"


def _install(health: Health, release: Path) -> None:
    """Install a release where none in the folder is whole; its model is fitted later."""
    bundle, head = open_release(release, hold=True)
    bundle.backbone()  # a model that does not load must not be installed
    installed = install(bundle, health.folder)
    health.bundles[installed.path.name] = ""
    health.usable = [UsableSlot(slots_of("")[0], installed, head)]
    choose_adapters(health)


def _activate(health: Health) -> None:
    """Activate the best usable slot of every task, and drop those that are damaged."""
    store = health.rescue.store
    with store.transaction():
        for adapter, usable in health.tasks().items():
            slots = store.of(adapter).slots
            if usable is None:
                slots.deactivate()
                continue
            if usable.opened is None:
                slots.put(usable.vendor_record(slots.positive()))
                slots.set_fit(usable.name, None)
            idle = [name for name in slots_of(adapter) if name != usable.name]
            previous = next((name for name in idle if health.slots.get(name) == ""), None)
            slots.activate(usable.name, previous)
            slots.advance(slots.version().generation)


def _lock(connection: sqlite3.Connection) -> None:
    """Lock out other writers; a file too damaged to lock cannot be written either."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.DatabaseError as error:
        if is_access(error):
            raise


def _exchange(folder: Path) -> str:
    """Give the rebuilt store the earlier one's name, and set the earlier one aside.

    After a kill the next repair finishes it: until then there is no store to write to.
    """
    aside = f"{ASIDE}{time.time_ns()}-{STORE}"
    (folder / STORE).replace(folder / aside)
    _finish(folder, aside)
    return aside


def _finish(folder: Path, aside: str | None = None) -> None:
    """Finish an interrupted repair, or delete its files if it did not get that far."""
    rebuilt, store = folder / REBUILT, folder / STORE
    if rebuilt.exists() and not store.exists():
        if aside is None:
            aside = max((file.name for file in folder.glob(f"{ASIDE}*{STORE}")), default=ASIDE)
        log = folder / f"{STORE}-wal"
        if log.exists():  # it belongs to the earlier file, and would change the new one
            log.replace(folder / f"{aside}-wal")
        (folder / f"{STORE}-shm").unlink(missing_ok=True)
        rebuilt.replace(store)
        sync_directory(folder)
    for part in folder.glob(f"*{REBUILT}*"):
        part.unlink()
