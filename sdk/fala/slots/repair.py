"""Mending a device's folder: what can be read is kept, and what is damaged is kept aside."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fala.errors import DeviceChangedError, DeviceError
from fala.examples import unique_texts
from fala.files import keep_private, sync_directory
from fala.slots.bundles import BUNDLES, SLOTS, install, open_release, slots_of
from fala.slots.erasing import ASIDE
from fala.slots.health import (
    REBUILT,
    STORE,
    Candidate,
    Health,
    choose_adapters,
    connect,
    diagnose,
    examine,
)
from fala.slots.salvage import Salvaged, salvage
from fala.store.active import put_prompt
from fala.store.columns import EXAMPLE_COLUMNS, columns_of, kept_as
from fala.store.database import Database
from fala.store.records import StoredExample
from fala.store.schema import SEALED
from fala.store.sealing import (
    PLAIN,
    Plain,
    column_of_label,
    column_of_made,
    columns_of_slot,
    columns_of_text,
)
from fala.store.settings import adapter_of
from fala.store.store import Store

_PART = f"{REBUILT}.part"


@dataclass(frozen=True)
class RepairReport:
    """What ``Device.repair`` or ``fala-device doctor`` found, and what was done about it.

    Attributes:
        path: The device's folder.
        whole: Whether nothing is wrong, or nothing is any more.
        problems: What was found wrong, in words.
        actions: What was done; where nothing was to be changed, what ``--repair`` would do.
        slots: By name ``"whole"``, or what is wrong.
        bundles: By file name ``"whole"``, or what is wrong.
        examples: Examples that can be read.
        labelled: How many of them have a label.
        lost: Examples of which something was seen that cannot be read. What a damaged page held
            nobody knows, so there may have been more.
        answers: The slot that answers, or would; None where none can.
        fit: Whether its personal model is lost, and fitted again to what can be read.
        adapters: By its adapter's name what answers, or would, for a further task; None where
            nothing can: its examples stay, until its adapter is loaded again.
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


def look(folder: Path, seal: Plain = PLAIN) -> RepairReport:
    """Say what of a folder is whole, and what a repair would do; nothing is changed.

    Raises:
        DeviceError: It is no device's, or a newer FaLA wrote it.
    """
    health = examine(folder, seal)
    return _report(health, _plan(health), done=False)


def repair(folder: Path, release: str | None = None, seal: Plain = PLAIN) -> RepairReport:
    """Mend a folder; see ``Device.repair``."""
    try:
        _finish(folder)
        health = examine(folder, seal)
        if release is not None and not health.candidates and not health.unfinished:
            _bring(health, release)
        plan = _plan(health)
        aside = None
        if plan.rebuild:
            health, aside = _rebuild(folder, release, seal)
            plan = _plan(health)
        elif plan.slot:
            _change_slots(health, plan, seal)
        for name in _broken(health) if plan.answers is not None else ():
            (folder / BUNDLES / name).unlink(missing_ok=True)
        for file in health.open_to_others:
            with contextlib.suppress(FileNotFoundError):  # the log goes with the last connection
                keep_private(file)
        return _report(health, plan, done=True, aside=aside)
    except OSError as error:
        raise DeviceError(f"{folder}: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise DeviceError(f"{folder}: {error}") from error


@dataclass(frozen=True)
class _Plan:
    """What is to be done: write the store anew, or only its slots; then who answers."""

    rebuild: bool
    slot: bool
    answers: Candidate | None


def _plan(health: Health) -> _Plan:
    if health.unfinished or not health.candidates:
        return _Plan(False, False, None)
    answers, active = health.candidates[0], health.salvaged.active
    wrong = any(health.slots.values()) or (active is not None and active[0] != answers.slot)
    for name, (slot, _) in health.salvaged.answering.items():
        chosen = health.adapters.get(name) if name else answers
        wrong = wrong or chosen is None or chosen.slot != slot
    return _Plan(bool(health.store), wrong or answers.opened is None, answers)


def _report(health: Health, plan: _Plan, *, done: bool, aside: str | None = None) -> RepairReport:
    found, answers = health.salvaged, plan.answers
    actions: list[str] = []
    if answers is None and not health.unfinished:
        actions.append(
            "no release in the folder is whole: repair with one (--bundle FILE), and all that "
            "can be read comes with it"
        )
    if plan.rebuild:
        actions.append(f"write {STORE} anew from what can be read; the damaged file stays aside")
    if answers is not None and (plan.slot or plan.rebuild):
        name = answers.bundle.manifest.name
        if answers.opened is None:
            actions.append(f"fit the personal model again, on {name}")
        elif found.active is None or found.active[0] != answers.slot:
            actions.append(f"fall back to slot {answers.slot}, {name}")
        actions += [_action(health, name) for name in sorted(health.adapters)]
        actions = [action for action in actions if action]
        if any(health.slots.values()):
            actions.append("empty the slots that are damaged")
    if _broken(health):
        actions.append("delete the bundles that are damaged")
    if health.open_to_others:
        actions.append("keep the files from other users")
    problems, adapters = tuple(health.problems), sorted(health.adapters.items())
    return RepairReport(
        path=str(health.folder),
        whole=not problems or (done and answers is not None),
        problems=problems,
        actions=tuple(actions),
        slots={name: what or "whole" for name, what in sorted(health.slots.items())},
        bundles={name: what or "whole" for name, what in health.bundles.items()},
        examples=len(found.examples),
        labelled=sum(row.label is not None for row in found.examples.values()),
        lost=found.lost,
        answers=None if answers is None else answers.slot,
        fit=answers is not None and answers.opened is None,
        aside=aside,
        adapters={name: None if one is None else one.slot for name, one in adapters},
        fit_adapters=tuple(
            name for name, one in adapters if one is not None and one.opened is None
        ),
    )


def _action(health: Health, adapter: str) -> str:
    """What is done about a further task; empty where nothing is."""
    chosen, active = health.adapters[adapter], health.salvaged.answering.get(adapter)
    if chosen is None:
        kept = sum(row.adapter == adapter for row in health.salvaged.examples.values())
        return f"keep {kept} examples of the adapter {adapter}, which is to be loaded again"
    if chosen.opened is None:
        return f"fit the personal model of the adapter {adapter} again"
    if active is None or active[0] != chosen.slot:
        return f"fall back to slot {chosen.slot}, {chosen.bundle.manifest.name}"
    return ""


def _broken(health: Health) -> list[str]:
    return [name for name, what in health.bundles.items() if what]


def _bring(health: Health, release: str) -> None:
    """Install a release where none in the folder is whole; its vendor's model is fitted then."""
    bundle, head = open_release(release, hold=True)
    bundle.backbone()  # a model that does not load must not be installed
    installed = install(bundle, health.folder)
    health.bundles[installed.path.name] = ""
    health.candidates = [Candidate(SLOTS[0], installed, head)]
    choose_adapters(health)


def _change_slots(health: Health, plan: _Plan, seal: Plain) -> None:
    """Let the best candidate answer, in a store that is whole."""
    found, answers = health.salvaged, plan.answers
    if answers is None or found.active is None:
        return
    store = Store(health.folder / STORE, seal=seal)
    try:
        with store.transaction():
            if store.version().generation != found.counts[0]:
                raise DeviceChangedError(f"{health.folder}: in use; close it and repair again")
            _answer_with(health, store, answers)
            for adapter, chosen in health.adapters.items():
                _answer_with(health, store.of(adapter), chosen)
    finally:
        store.close()


def _answer_with(health: Health, store: Store, chosen: Candidate | None) -> None:
    """Let what was chosen for a task answer, in a store that is whole. In a transaction."""
    found = health.salvaged
    if chosen is None:
        store.deactivate()
    else:
        if chosen.opened is None:
            store.put_slot(chosen.anew())
        others = [name for name in slots_of(store.adapter) if name != chosen.slot]
        previous = next((name for name in others if health.slots.get(name) == ""), None)
        store.activate(chosen.slot, previous)
        store.advance(store.version().generation)
    kept = set() if chosen is None else set(store.active())
    for name in {*found.slots, *found.broken} - kept:
        if adapter_of(name) == store.adapter:
            store.drop_slot(name)


def _rebuild(folder: Path, release: str | None, seal: Plain) -> tuple[Health, str]:
    """Write the store anew, and let it take the place of the damaged one."""
    connection = connect(folder)
    try:
        _lock(connection)
        health = diagnose(Health(folder, salvage(folder / STORE, connection, seal)))
        if release is not None and not health.candidates:
            _bring(health, release)
        _write(folder / _PART, health, seal)
        (folder / _PART).replace(folder / REBUILT)
        if os.name == "nt":  # where an open file keeps its name
            connection.close()
        aside = _exchange(folder)
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
    return health, aside


def _lock(connection: sqlite3.Connection) -> None:
    """Let nobody write meanwhile; to a file that is too damaged for that nobody can."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise
    except sqlite3.DatabaseError:
        pass


def _write(file: Path, health: Health, seal: Plain) -> None:
    """Write what was read to a new store."""
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    database = Database(file, create=True)
    try:
        with database.transaction(), database.writer() as db:
            _write_examples(db, health.salvaged, seal)
            _write_slots(db, health, seal)
    finally:
        database.close()
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _write_examples(db: sqlite3.Connection, found: Salvaged, seal: Plain) -> None:
    rows: list[StoredExample] = list(found.examples.values())
    texts = {one: at for at, one in enumerate(unique_texts(row.known for row in rows), start=1)}
    db.executemany(
        "INSERT INTO texts (id, text, sealed) VALUES (?, ?, ?)",
        (columns_of_text(seal, at, one) for one, at in texts.items()),
    )
    db.executemany(
        f"INSERT INTO examples ({EXAMPLE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((row.id, *kept_as(row.known, texts), *_said(seal, row), row.adapter) for row in rows),
    )
    db.executemany(
        "INSERT INTO embeddings VALUES (?, ?, ?)",
        (
            (
                texts[one],
                backbone,
                column_of_made(seal, "embeddings", texts[one], backbone, part),
            )
            for backbone, known in found.embeddings.items()
            for one, part in known.items()
            if one in texts
        ),
    )
    db.executemany(
        "INSERT INTO logits VALUES (?, ?, ?)",
        (
            (example, model, column_of_made(seal, "logits", example, model, part))
            for model, known in found.logits.items()
            for example, part in known.items()
            if example in found.examples
        ),
    )


def _said(seal: Plain, row: StoredExample) -> tuple[object, ...]:
    return column_of_label(seal, row.id, row.label), row.added, row.labelled


def _write_slots(db: sqlite3.Connection, health: Health, seal: Plain) -> None:
    found = health.salvaged
    chosen = {"": health.candidates[0], **health.adapters}
    for adapter, answers in chosen.items():
        if answers is None:
            continue
        records = {
            name: record
            for name, record in found.slots.items()
            if health.slots.get(name) == "" and adapter_of(name) == adapter
        }
        if answers.opened is None:
            records = {answers.slot: answers.anew()}
        for record in records.values():
            row = columns_of_slot(seal, columns_of(record))
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO slots ({', '.join(row)}) VALUES ({marks})", [*row.values()])
            if isinstance(record.prompt, bytes):
                put_prompt(db, seal, record.backbone, record.prompt)
        others = [name for name in records if name != answers.slot]
        generation, data = found.changes.get(adapter, (0, 0))
        db.execute(
            "INSERT INTO active (adapter, slot, previous, generation, data) VALUES (?, ?, ?, ?, ?)",
            (adapter, answers.slot, others[0] if others else None, generation + 1, data + 1),
        )
    settings = found.settings | ({SEALED: seal.mark()} if seal.sealed else {})
    db.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", settings.items())


def _exchange(folder: Path) -> str:
    """Let the store that was written take the damaged one's name; that one stays aside.

    Killed on its way, it is finished by the next repair: as long as no store is there, nobody can
    have written to one.
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
