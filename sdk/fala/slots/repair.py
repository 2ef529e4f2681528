"""Mending a device's folder: what can be read is kept, and what is damaged is kept aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fala.errors import DeviceChangedError, DeviceError
from fala.files import failure, keep_private, sync_directory
from fala.slots.bundles import BUNDLES, install, open_release
from fala.slots.erasing import ASIDE
from fala.slots.health import (
    REBUILT,
    STORE,
    Health,
    UsableSlot,
    choose_adapters,
    connect,
    diagnose,
    examine,
)
from fala.store.encryption import PLAIN, Codec
from fala.store.slots import slots_of
from fala.store.store import Store

_PART = f"{REBUILT}.part"


@dataclass(frozen=True)
class RepairReport:
    """The state of a device's folder, and what a repair did about it.

    Attributes:
        path: The device's folder.
        whole: Whether nothing is wrong, or nothing is any more.
        problems: What is wrong, in words.
        actions: What was done; where nothing was to be changed, what ``--repair`` would do.
        slots: By name ``"whole"``, or what is wrong.
        bundles: By file name ``"whole"``, or what is wrong.
        examples: Examples that can be read.
        labelled: How many of them have a label.
        lost: Examples of which something can be read, and that cannot be kept. What a damaged page
            held is not known, so there may have been more.
        answers: The slot that is active, or would be; None where none can.
        fit: Whether its personal model is lost, and fitted again to what can be read.
        adapters: By its adapter's name the slot that is active, or would be, for a further task;
            None where none can: its examples stay, until its adapter is loaded again.
        fit_adapters: Those whose personal model is lost, and fitted again.
        aside: Where the damaged file was kept, in the same folder; None where it was whole.
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

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self)


def look(folder: Path, codec: Codec = PLAIN) -> RepairReport:
    """Say what of a folder is whole, and what a repair would do; nothing is changed.

    Raises:
        DeviceError: It is no device's, or a newer FaLA wrote it.
    """
    health = examine(folder, codec)
    return _report(health, _plan(health), done=False)


def repair(folder: Path, release: str | None = None, codec: Codec = PLAIN) -> RepairReport:
    """Mend a folder; see ``Device.repair``."""
    try:
        _finish(folder)
        health = examine(folder, codec)
        if release is not None and not health.usable and not health.unfinished:
            _install(health, release)
        plan = _plan(health)
        if plan.rebuild:
            health, report = _rebuild(folder, release, codec)
        else:
            report = _report(health, plan, done=True)
            if plan.slots:
                _change_slots(health, codec)
        for name in _damaged_bundles(health) if report.answers is not None else ():
            (folder / BUNDLES / name).unlink(missing_ok=True)
        for file in health.open_to_others:
            with contextlib.suppress(FileNotFoundError):  # the log goes with the last connection
                keep_private(file)
        return report
    except OSError as error:
        raise DeviceError(f"{folder}: {failure(error)}") from error
    except sqlite3.Error as error:
        raise DeviceError(f"{folder}: {error}") from error


@dataclass(frozen=True)
class _Plan:
    """What is to be done: write the store anew, or only its slots; and the slot to be active."""

    rebuild: bool
    slots: bool
    usable: UsableSlot | None


def _plan(health: Health) -> _Plan:
    if health.unfinished or not health.usable:
        return _Plan(False, False, None)
    best = health.usable[0]
    wrong = any(health.slots.values()) or best.opened is None
    for adapter, usable in health.tasks().items():
        active = health.active(adapter)
        if active is not None:
            wrong = wrong or usable is None or usable.name != active[0]
    return _Plan(bool(health.store), wrong, best)


def _report(health: Health, plan: _Plan, *, done: bool) -> RepairReport:
    best, adapters = plan.usable, sorted(health.adapters.items())
    counts = [
        health.rescue.store.of(adapter).examples.counts()
        for adapter in ("", *health.rescue.adapters())
    ]
    problems = tuple(health.problems)
    return RepairReport(
        path=str(health.folder),
        whole=not problems or (done and best is not None),
        problems=problems,
        actions=tuple(_actions(health, plan)),
        slots={name: what or "whole" for name, what in sorted(health.slots.items())},
        bundles={name: what or "whole" for name, what in health.bundles.items()},
        examples=sum(count for count, _ in counts),
        labelled=sum(labelled for _, labelled in counts),
        lost=health.rescue.lost,
        answers=None if best is None else best.name,
        fit=best is not None and best.opened is None,
        adapters={name: None if one is None else one.name for name, one in adapters},
        fit_adapters=tuple(
            name for name, one in adapters if one is not None and one.opened is None
        ),
    )


def _actions(health: Health, plan: _Plan) -> list[str]:
    """What a repair does, in words."""
    actions: list[str] = []
    best = plan.usable
    if best is None and not health.unfinished:
        actions.append(
            "no release in the folder is whole: repair with one (--bundle FILE), and all that "
            "can be read comes with it"
        )
    if plan.rebuild:
        actions.append(f"write {STORE} anew from what can be read; the damaged file stays aside")
    if best is not None and (plan.slots or plan.rebuild):
        active, name = health.active(), best.bundle.manifest.name
        if best.opened is None:
            actions.append(f"fit the personal model again, on {name}")
        elif active is None or active[0] != best.name:
            actions.append(f"fall back to slot {best.name}, {name}")
        actions += [_action(health, adapter) for adapter in sorted(health.adapters)]
        actions = [action for action in actions if action]
        if any(health.slots.values()):
            actions.append("empty the slots that are damaged")
    if _damaged_bundles(health):
        actions.append("delete the bundles that are damaged")
    if health.open_to_others:
        actions.append("keep the files from other users")
    return actions


def _action(health: Health, adapter: str) -> str:
    """What is done about a further task; empty where nothing is."""
    usable, active = health.adapters[adapter], health.active(adapter)
    if usable is None:
        kept, _ = health.rescue.store.of(adapter).examples.counts()
        return f"keep {kept} examples of the adapter {adapter}, which is to be loaded again"
    if usable.opened is None:
        return f"fit the personal model of the adapter {adapter} again"
    if active is None or active[0] != usable.name:
        return f"fall back to slot {usable.name}, {usable.bundle.manifest.name}"
    return ""


def _damaged_bundles(health: Health) -> list[str]:
    return [name for name, what in health.bundles.items() if what]


def _install(health: Health, release: str) -> None:
    """Install a release where none in the folder is whole; its vendor's model is fitted then."""
    bundle, head = open_release(release, hold=True)
    bundle.backbone()  # a model that does not load must not be installed
    installed = install(bundle, health.folder)
    health.bundles[installed.path.name] = ""
    health.usable = [UsableSlot(slots_of("")[0], installed, head)]
    choose_adapters(health)


def _change_slots(health: Health, codec: Codec) -> None:
    """Activate the best usable slots of a store that is whole."""
    store = Store.open(health.folder / STORE, codec=codec)
    try:
        with store.transaction():
            if store.slots.version() != health.rescue.store.slots.version():
                raise DeviceChangedError(f"{health.folder}: in use; close it and repair again")
            _activate(health, store)
    finally:
        store.close()


def _activate(health: Health, store: Store) -> None:
    """Activate the best usable slot of every task, and drop those that are damaged.

    In a transaction of the store, or of a copy of it.
    """
    for adapter, usable in health.tasks().items():
        slots = store.of(adapter).slots
        if usable is None:
            slots.deactivate()
        else:
            if usable.opened is None:
                slots.put(usable.vendor_record())
                slots.set_fit(usable.name, None)
            others = [name for name in slots_of(adapter) if name != usable.name]
            previous = next((name for name in others if health.slots.get(name) == ""), None)
            slots.activate(usable.name, previous)
            slots.advance(slots.version().generation)
        kept = set() if usable is None else {usable.name, previous}
        for name in slots.names() - kept:
            slots.drop(name)


def _rebuild(folder: Path, release: str | None, codec: Codec) -> tuple[Health, RepairReport]:
    """Write the store anew, and let it take the place of the damaged one."""
    with contextlib.closing(connect(folder)) as source:
        _lock(source)
        health = diagnose(folder, source, codec)
        if release is not None and not health.usable:
            _install(health, release)
        report = _report(health, _plan(health), done=True)
        with health.rescue.store.transaction():
            _activate(health, health.rescue.store)
        file = folder / _PART
        for part in folder.glob(f"{_PART}*"):
            part.unlink()
        file.touch(mode=0o600)
        keep_private(file)
        health.rescue.write(file)
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
        file.replace(folder / REBUILT)
        if os.name == "nt":  # where an open file keeps its name
            source.close()
        return health, replace(report, aside=_exchange(folder))


def _lock(connection: sqlite3.Connection) -> None:
    """Keep others from writing meanwhile; a file too damaged to lock cannot be written either."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise
    except sqlite3.DatabaseError:
        pass


def _exchange(folder: Path) -> str:
    """Let the store that was written take the damaged one's name; that one stays aside.

    Killed midway, the next repair finishes it: as long as no store is there, none was written to.
    """
    aside = f"{ASIDE}{time.time_ns()}-{STORE}"
    (folder / STORE).replace(folder / aside)
    _finish(folder, aside)
    return aside


def _finish(folder: Path, aside: str | None = None) -> None:
    """End a repair that was interrupted; one that did not get so far leaves nothing."""
    rebuilt, store = folder / REBUILT, folder / STORE
    if rebuilt.exists() and not store.exists():
        if aside is None:
            aside = max((file.name for file in folder.glob(f"{ASIDE}*{STORE}")), default=ASIDE)
        log = folder / f"{STORE}-wal"
        if log.exists():  # it belongs to the damaged file, and would be read into the new one
            log.replace(folder / f"{aside}-wal")
        (folder / f"{STORE}-shm").unlink(missing_ok=True)
        rebuilt.replace(store)
        sync_directory(folder)
    for part in folder.glob(f"{REBUILT}*"):
        part.unlink()
