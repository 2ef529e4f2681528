"""Examine a device's folder, and repair it: what is the user's is written into a new store.

Kept are, as far as they can be read, texts, labels, times, embeddings and old logits, the settings,
and which release is active and which one previous. The personal models are fitted again. The
damaged store is set aside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fala.backbones.external import Encoders
from fala.base.errors import (
    BundleError,
    BundleMismatchError,
    DeviceError,
    FalaError,
    counted,
    printable,
)
from fala.base.examples import MATCHING, Match
from fala.base.files import (
    FAILING_DISK,
    device_errors,
    keep_private,
    remove,
    sync_directory,
    write_atomically,
)
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, key_bytes
from fala.model.heads import Head
from fala.report import Plain
from fala.slots.admit import Signed, admit_loaded
from fala.slots.erasing import ASIDE, ERASING, REBUILT
from fala.slots.folder import EMPTY, STORE, Folder, Task
from fala.slots.installing import BUNDLES, COPIES
from fala.slots.release import Release, head_of
from fala.slots.slot import slot_record
from fala.store.access import access_error, check_access, is_access
from fala.store.columns import change_count
from fala.store.database import BUSY_TIMEOUT_MS, Database, check_regular, without_data
from fala.store.encryption import PLAIN, Codec
from fala.store.examples import StoredExample
from fala.store.rescue import (
    DamagedStore,
    Installed,
    opened,
    releases_of,
    rescue_examples,
    rescue_settings,
    teachers_of,
    trusted_keys,
)
from fala.store.schema import create_tables
from fala.store.slots import slots_of
from fala.store.store import Store

_log = logging.getLogger("fala.store")

#: The share of examples and labels that a release has to fit: others may be damaged.
_MOST_FIT = 0.95
_LOST_TRUST = "it cannot be read which key must have signed its releases"

#: The active release and the previous one of every task after a repair, by adapter: their bundles,
#: and heads with the labels in the device's order.
_Plan = dict[str, list[tuple[Bundle, Head]]]
_Fit = Callable[[Task], None]


@dataclass(frozen=True)
class RepairReport(Plain):
    """The state of a device's folder, and what a repair did about it.

    Attributes:
        path: The device's folder.
        whole: Whether there is no problem, or none after the repair.
        problems: The problems, in words.
        actions: What a repair did; without one, what ``--repair`` would do.
        examples: Examples that can be read.
        labelled: How many of them have a label.
        lost: Examples that can be read in part, but cannot be kept. The contents of a damaged page
            are unknown, so there may have been more.
        active: The name of the release that is active after a repair; None if none is whole.
        previous: The name of the one to roll back to; None if there is none.
        adapters: By adapter the name of a further task's release after a repair; None if none is
            whole: its examples stay, until its adapter is loaded again.
        aside: Name of the earlier store, set aside in the folder; None where it did not change.
    """

    path: str
    whole: bool
    problems: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    examples: int = 0
    labelled: int = 0
    lost: int = 0
    active: str | None = None
    previous: str | None = None
    adapters: Mapping[str, str | None] = field(default_factory=dict)
    aside: str | None = None

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        state = "whole" if self.whole else f"not whole: {'; '.join(self.problems)}"
        return (
            f"{self.path} is {state}. {counted(self.examples, 'example')} can be read, "
            f"{self.labelled} with a label. Active is {self.active or 'no release'}."
        )


def examine(folder: Path, codec: Codec = PLAIN) -> RepairReport:
    """Report a folder's problems, and what a repair would do; nothing is changed.

    Raises:
        DeviceError: It is no device's, or has another version or key.
    """
    with _opened(folder, codec) as (connection, target):
        return _examined(folder, connection, codec, target)[0]


@dataclass(frozen=True)
class Given:
    """What the caller of a repair adds to a folder; see ``Device.repair``.

    Attributes:
        release: A release to install where none in the folder is whole.
        trust: The key that must have signed it, and that takes the place of one that is lost.
        unsigned: Whether the device required no signature, where that cannot be read.
    """

    release: Path | None = None
    trust: Trust | None = None
    unsigned: bool = False


def repair(folder: Path, given: Given, codec: Codec, fit: _Fit) -> RepairReport:
    """Repair a folder; see ``Device.repair``.

    Args:
        folder: The device's folder.
        given: What the caller adds.
        codec: Reads the store's records, and writes those of the new one.
        fit: Fits the personal models of all tasks.
    """
    with _opened(folder, codec, exclusive=True) as (connection, target):
        report, damaged, is_new = _examined(folder, connection, codec, target, given)
        if report.active is not None:
            report = replace(report, whole=True)
            if is_new:
                try:
                    fit(Task(Folder(folder, target, Encoders())))
                except (FalaError, ArithmeticError, ValueError) as error:
                    _log.warning("the personal models are not fitted yet: %s", error)
                write_atomically(folder / REBUILT, target.write)
                if os.name == "nt":  # where an open file keeps its name
                    connection.close()
                aside = f"{ASIDE}{time.time_ns()}-{STORE}"
                (folder / STORE).replace(folder / aside)
                _finish(folder)
                report = replace(report, aside=aside)
            for file in damaged:
                remove(file)
        for file in _exposed(folder):
            with contextlib.suppress(FileNotFoundError):  # the last connection deletes the log
                keep_private(file)
        return report


@contextlib.contextmanager
def _opened(
    folder: Path, codec: Codec, *, exclusive: bool = False
) -> Iterator[tuple[sqlite3.Connection, Store]]:
    """A connection to a folder's store, and an empty store in memory.

    Args:
        folder: The folder.
        codec: The app's.
        exclusive: Finish a repair that was interrupted, and lock the store against other writers.

    Raises:
        DeviceError: It is no device's, cannot be read, or cannot be written.
    """
    with device_errors(folder), contextlib.ExitStack() as closing:
        if (folder / ERASING).exists():
            raise DeviceError(f"{folder}: its erasure was interrupted; Device.open finishes it")
        if exclusive:
            _finish(folder)
        store = _store_of(folder)
        check_regular(store)
        if not store.is_file():
            raise DeviceError(f"{folder}: not a device folder; make one with Device.create")
        try:
            connection = sqlite3.connect(store, isolation_level=None)
            closing.callback(connection.close)
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            closing.callback(memory.close)
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            if exclusive:
                _lock(connection)
            create_tables(memory, STORE)
            yield connection, Store(Database(folder / STORE, codec=codec, connection=memory))
        except sqlite3.Error as error:
            if is_access(error):
                raise access_error(store, error) from error
            raise DeviceError(f"{store}: {without_data(error)}; {FAILING_DISK}") from None
        except MemoryError as error:
            raise DeviceError(f"{store}: there is not enough memory to read it") from error


def _store_of(folder: Path) -> Path:
    """The store's file; the new one where a repair was interrupted."""
    store, rebuilt = folder / STORE, folder / REBUILT
    return rebuilt if rebuilt.exists() and not store.exists() else store


def _examined(
    folder: Path,
    connection: sqlite3.Connection,
    codec: Codec,
    target: Store,
    given: Given | None = None,
) -> tuple[RepairReport, Iterable[Path], bool]:
    """Find the problems of a folder, and write what a repair keeps.

    Args:
        folder: The folder.
        connection: A connection to its store.
        codec: The app's.
        target: The empty store that takes the place of a damaged one.
        given: What the caller of a repair adds; None only examines. The folder changes only where
            a release of the caller's is installed.

    Returns:
        The report; the files of bundles that are damaged; and whether the store is.

    Raises:
        DeviceError: It is a repair, and the key that must have signed every release is unknown.
    """
    with opened(_store_of(folder), connection) as store, target.transaction():
        query = "SELECT name FROM slots UNION ALL SELECT slot FROM active"
        if not store.select("slots", query) and not store.problems:
            return RepairReport(str(folder), whole=False, problems=(EMPTY,)), (), False
        if store.path.name == REBUILT:
            store.note(STORE, "a repair was interrupted")
        store.unlock(codec)
        rescue_settings(store, target)
        had = releases_of(store)
        _open_slots(folder, store, had)
        whole, damaged = _bundles(folder)
        plan = _planned(had, whole)
        lost_trust = not _keep_trust(store, target, plan, given)
        taken = None
        if given is not None and given.release is not None and not plan[""]:
            origin = Signed(target.settings.trust() if given.trust is None else given.trust)
            taken = admit_loaded(given.release, origin, Encoders())
            whole[taken.bundle.digest] = taken.bundle, taken.head
            plan = _planned(had, whole)
        tasks = {adapter: chosen[0][1].task for adapter, chosen in plan.items() if chosen}
        lost = rescue_examples(store, target, tasks if taken is None else {**tasks, "": None})
        if taken is not None:
            _check_fits(taken, had[""], target.examples.all())
            (folder / BUNDLES).mkdir(exist_ok=True)
            COPIES.install(taken.bundle, folder)
        plan |= {adapter: [] for adapter in target.examples.adapters() if adapter not in plan}
        _activate(target, plan, teachers_of(store))
    problems, exposed = store.problems, _exposed(folder)
    actions = [*_actions(had, plan)] if problems or not plan[""] else []
    actions += [f"{_LOST_TRUST}: repair with it"] if lost_trust else []
    actions += ["delete the bundles that are damaged"] if damaged and plan[""] else []
    actions += ["keep the files from other users"] if exposed else []
    counts = [target.of(adapter).examples.counts() for adapter in plan]
    names = {
        adapter: (*(bundle.manifest.title for bundle, _ in chosen), None, None)
        for adapter, chosen in plan.items()
    }
    report = RepairReport(
        path=str(folder),
        whole=not (problems or damaged or exposed),
        problems=(
            *problems,
            *(f"{BUNDLES}/{file.name}: {fault}" for file, fault in damaged.items()),
            *(f"{file.name}: other users may read it" for file in exposed),
        ),
        actions=tuple(actions),
        examples=sum(count for count, _ in counts),
        labelled=sum(labelled for _, labelled in counts),
        lost=lost,
        active=names[""][0],
        previous=names.pop("")[1],
        adapters={adapter: active for adapter, (active, *_) in names.items()},
    )
    return report, [file for file in damaged if file.stem not in whole], bool(problems)


def _keep_trust(store: DamagedStore, target: Store, plan: _Plan, given: Given | None) -> bool:
    """Write the key that must have signed every release. In a transaction of the target.

    Returns:
        Whether it could be read, or the caller has given it.

    Raises:
        DeviceError: Neither, in a repair: the device would then accept any release.
    """
    keys = trusted_keys(store)
    own = any(bundle.external and head.constant for bundle, head in plan[""])
    if not keys and own and not store.edited:
        keys = {None}  # a device that requires signatures accepts no encoder of the app's
    if len(keys) != 1:
        store.note("device", _LOST_TRUST)
        if given is None:
            return False
        if given.trust is None and not given.unsigned:
            raise DeviceError(
                f"{store.path.parent}: {_LOST_TRUST}, so any release could be installed after a "
                "repair; pass the vendor's key (trust=, or --trust FILE), or unsigned=True (or "
                "--unsigned) if the device was created without a key; nothing was changed"
            )
        keys = {None if given.trust is None else key_bytes(given.trust)}
    target.settings.set_trust(*keys)
    return True


def _open_slots(path: Path, store: DamagedStore, had: Mapping[str, Installed]) -> None:
    """Open the slots of all tasks as the device does, and note what fails."""
    database = Database(store.path, codec=store.codec, connection=store.connection)
    own = Task(Folder(path, Store(database), Encoders()))
    bases: dict[int, Release] = {}
    for adapter in sorted(adapter for adapter, releases in had.items() if releases or not adapter):
        task = Task(own.folder, adapter, own) if adapter else own
        state = store.value("active", task.store.slots.state)
        if state is None:
            continue
        for count in (state.version.generation, state.version.data):
            store.value("active", change_count, count)
        for number, name in enumerate((state.slot, state.previous)):
            if name is not None:
                base = bases.get(number) if adapter else None
                slot = store.value(f"slot {name}", task.open_slot, name, base)
                if slot is not None and not adapter:
                    bases[number] = slot.release


def _bundles(folder: Path) -> tuple[dict[str, tuple[Bundle, Head]], dict[Path, str]]:
    """The whole bundles by digest, the newest first, and the problems of the others by file.

    Raises:
        DeviceError: They cannot be listed; ``Path.glob`` would return none.
    """
    whole: dict[str, tuple[Bundle, Head]] = {}
    damaged: dict[Path, str] = {}
    files: list[Path] = []
    with device_errors(folder / BUNDLES), contextlib.suppress(FileNotFoundError):
        files = [file for file in (folder / BUNDLES).iterdir() if file.suffix == ".fala"]
    for file in sorted(files, key=lambda file: -file.stat().st_mtime):
        try:
            bundle = Bundle.open(file)
            head = head_of(bundle)
        except BundleError as error:
            check_access(error)
            damaged[file] = str(error).removeprefix(printable(f"{file}: "))
            continue
        if bundle.digest == file.stem:
            whole[bundle.digest] = bundle, head
        else:
            damaged[file] = "not the bundle that was installed"
    return whole, damaged


def _planned(had: Mapping[str, Installed], whole: Mapping[str, tuple[Bundle, Head]]) -> _Plan:
    """Choose every task's active release, and the previous one.

    They stay what they were if their bundles are whole. The newest other takes the place of a
    release that was active and cannot be read.

    Args:
        had: The releases of the tasks, as far as they are known.
        whole: The whole bundles by digest, the newest first.
    """

    def usable(releases: Installed, base: str | None = None) -> list[tuple[Bundle, Head]]:
        """Those whose bundles are whole; of an adapter's, those for a release's backbone."""
        return [
            (bundle, head.in_order(labels) if sorted(labels) == sorted(head.names) else head)
            for digest, labels in releases
            for bundle, head in ([whole[digest]] if digest in whole else [])
            if bundle.base == base
        ]

    own = usable(had[""])
    if not own or own[0][0].digest != had[""][0][0]:
        labels, known = had[""][0][1] if had[""] else (), [digest for digest, _ in had[""]]
        own += usable([(digest, labels) for digest in whole if digest not in known])
    plan = {"": own[:2]}
    for adapter in sorted(had.keys() - {""}):
        orders = had[adapter], had[adapter][::-1]
        pairs = zip(own[:2], orders, strict=False)
        found = [usable(known, base.backbone_digest)[:1] for (base, _), known in pairs]
        plan[adapter] = [each for fitting in found for each in fitting] if any(found[:1]) else []
    return plan


def _check_fits(release: Release, had: Installed, examples: Sequence[StoredExample]) -> None:
    """Refuse a release that is for other examples, or other labels, than the user's.

    Args:
        release: The release.
        had: The device's own releases, as far as they are known.
        examples: The device's own examples.

    Raises:
        BundleMismatchError: It is.
    """
    head = release.head
    labels = [row.stored_label for row in examples if row.label is not None]
    usable = head.link.usable(labels, head.labels)
    fits = [
        sum(label is not None for label in usable) >= _MOST_FIT * len(labels),
        sum(isinstance(example.example, Match) == (head.task == MATCHING) for example in examples)
        >= _MOST_FIT * len(examples),
        all(head.link.continues(head.link, head.labels, known) for _, known in had[:1] if known),
    ]
    if not all(fits):
        raise BundleMismatchError(
            f"{release.bundle.path}: for {head.described}; this device's examples or labels are "
            "others"
        )


def _actions(releases: Mapping[str, Installed], plan: _Plan) -> Iterator[str]:
    """What a repair does with the store, in words."""
    if not plan[""]:
        yield (
            "no release in the folder is whole: repair with one (--bundle FILE), and all that can "
            "be read comes with it"
        )
        return
    yield f"write {STORE} anew from what can be read; the earlier file stays aside"
    for adapter, chosen in plan.items():
        of = f" of the adapter {adapter}" if adapter else ""
        had = [digest for digest, _ in releases.get(adapter, [])]
        digests = [bundle.digest for bundle, _ in chosen]
        if not chosen:
            yield f"keep the examples{of}, which is to be loaded again"
            continue
        name = chosen[0][0].manifest.title
        if digests[:1] != had[:1]:
            yield f"make {name} active{of}: the release that was active cannot be read"
        if {*had[1:]} - {*digests}:
            yield f"drop the previous release{of}, which cannot be read"
        yield f"fit the personal model{of} again, on {name}"


def _activate(target: Store, plan: _Plan, teachers: Mapping[str, tuple[str, str]]) -> None:
    """Write the slots of all tasks, with the vendors' models. In a transaction."""
    for adapter, chosen in plan.items():
        slots, names = target.of(adapter).slots, slots_of(adapter)
        for name, (bundle, head) in zip(names, chosen, strict=False):
            record = slot_record(name, bundle, head.vendor_model())
            slots.put(replace(record, teachers=teachers.get(bundle.digest)))
            if not adapter:
                target.settings.note_version(bundle.manifest.product, bundle.manifest.version)
        if chosen:
            slots.activate(names[0], names[1] if len(chosen) > 1 else None)


def _exposed(folder: Path) -> list[Path]:
    """The device's files that other users may read."""
    if os.name == "nt":
        return []
    files = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    return [file for file in files if file.exists() and file.stat().st_mode & 0o077]


def _lock(connection: sqlite3.Connection) -> None:
    """Lock out other writers; a file too damaged to lock cannot be written either."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.DatabaseError as error:
        if is_access(error):
            raise


def _finish(folder: Path) -> None:
    """Finish an interrupted repair, or delete its files if it did not get that far.

    The earlier store is aside, so that there is none to write to until the new one has its name.
    """
    rebuilt, store = folder / REBUILT, folder / STORE
    if rebuilt.exists() and not store.exists():
        aside = max((file.name for file in folder.glob(f"{ASIDE}*{STORE}")), default=ASIDE)
        log = folder / f"{STORE}-wal"
        if log.exists():  # it belongs to the earlier file, and would change the new one
            log.replace(folder / f"{aside}-wal")
        (folder / f"{STORE}-shm").unlink(missing_ok=True)
        rebuilt.replace(store)
        sync_directory(folder)
    for part in folder.glob(f"*{REBUILT}*"):
        part.unlink()
