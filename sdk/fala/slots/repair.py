"""Examine a device's folder, and repair it: everything of the user is written into a new store.

A repair rescues, as far as they can be read, texts, labels, ids, times, embeddings and settings,
and which release is active; that release is then fitted again. Old logits and the previous release
are lost.

The new store is written beside the damaged one. Once it is complete, it gets a name by which
whatever opens the folder next, this repair or ``Device.open``, puts it in the damaged store's
place. So a repair that is killed has changed nothing or everything. The damaged store is set aside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fala.backbones.external import Encoders
from fala.base.errors import (
    BundleError,
    BundleMismatchError,
    DeviceError,
    FalaError,
    OlderReleaseError,
    counted,
)
from fala.base.examples import MATCHING, Match
from fala.base.files import FAILING_DISK, device_errors, keep_private, sync_directory
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust, key_bytes
from fala.model.heads import Head, Vectors
from fala.report import Plain
from fala.slots.admit import admit_loaded
from fala.slots.erasing import ASIDE, ERASING
from fala.slots.folder import EMPTY, STORE, Folder, Task
from fala.slots.installing import BUNDLES, COPIES, DIGEST, bundle_path
from fala.slots.release import Release, head_of
from fala.slots.slot import slot_record
from fala.store.access import access_error, check_access, is_access
from fala.store.columns import change_count
from fala.store.database import (
    BUSY_TIMEOUT_MS,
    REBUILDING,
    REBUILT,
    Database,
    check_regular,
    without_data,
)
from fala.store.encryption import PLAIN, Codec
from fala.store.rescue import DamagedStore, Installed, damaged_store
from fala.store.settings import Admission
from fala.store.slots import slots_of
from fala.store.store import Store
from fala.store.turns import exclusive

_log = logging.getLogger("fala.store")

#: The share of examples and labels that a release has to fit; the others may be damaged.
_MOST_FIT = 0.95
_LOST_TRUST = "it cannot be read which key must have signed its releases"

#: The release of every task after a repair, by adapter: its bundle, and its head with the labels in
#: the device's order; None if no release of the task is whole.
_Plan = dict[str, tuple[Bundle, Head] | None]
_Fit = Callable[[Task], None]


@dataclass(frozen=True)
class RepairReport(Plain):
    """The state of a device's folder, and what a repair did about it.

    Attributes:
        path: The device's folder.
        whole: Whether there is no problem, or none after the repair.
        problems: The problems, as sentences.
        actions: What a repair did; without a repair, what ``--repair`` would do.
        examples: Number of examples that can be read.
        labelled: Number of those that have a label.
        lost: Number of examples that can be read in part, but cannot be kept. The contents of a
            damaged page are unknown, so there may have been more.
        active: The name of the release that is active after a repair; None if no release is whole.
        adapters: The name of each further task's release after a repair, by adapter; None if none
            is whole, in which case the examples stay until the adapter is loaded again.
        aside: The name of the earlier store, which is set aside in the folder; None if it did not
            change.
    """

    path: str
    whole: bool
    problems: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    examples: int = 0
    labelled: int = 0
    lost: int = 0
    active: str | None = None
    adapters: Mapping[str, str | None] = field(default_factory=dict)
    aside: str | None = None

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        state = "whole" if self.whole else f"not whole: {'; '.join(self.problems)}"
        active = f"The active release is {self.active}" if self.active else "No release is active"
        return (
            f"{self.path} is {state}. {counted(self.examples, 'example')} can be read, "
            f"{self.labelled} with a label. {active}."
        )


def examine(folder: Path, codec: Codec = PLAIN) -> RepairReport:
    """Report a folder's problems, and what a repair would do, without changing anything.

    Raises:
        DeviceError: If the folder is not a device's, or the store has another version or key.
    """
    with _opened(folder) as store:
        if _is_empty(store):
            return RepairReport(str(folder), whole=False, problems=(EMPTY,))
        plan, known = _examined(folder, store, codec)
        return _report(folder, store, plan, known)


def repair(
    folder: Path,
    codec: Codec,
    fit: _Fit,
    *,
    path: Path | None = None,
    trust: Trust | None = None,
    unsigned: bool = False,
) -> RepairReport:
    """Repair a folder; see ``Device.repair``.

    Args:
        folder: The device's folder.
        codec: The codec that reads the store's records, and writes those of the new one.
        fit: A function that fits the personal models of all tasks.
        path: A release to install if none in the folder is whole.
        trust: The key that must have signed that release, and that replaces a lost key.
        unsigned: Whether the device required no signature, if that cannot be read.
    """
    with device_errors(folder):
        _store_of(folder)
    with device_errors(folder), exclusive(folder / STORE, BUSY_TIMEOUT_MS / 1000):
        _finish(folder)
        with _opened(folder) as store:
            if _is_empty(store):
                return RepairReport(str(folder), whole=False, problems=(EMPTY,))
            plan, known = _examined(folder, store, codec)
            rebuild = bool(store.problems) or plan[""] is None
            if rebuild:
                admission = known or _given(folder, trust, unsigned=unsigned)
                if plan[""] is None and path is not None:
                    taken = _taken(folder, path, trust, store, admission)
                    plan |= _planned(folder, store.releases(), taken)
            report = _report(folder, store, plan, known)
            rebuild = rebuild and plan[""] is not None
            if rebuild:
                _rebuild(folder, codec, store, plan, admission, fit)
        if rebuild:
            report = replace(report, aside=_finish(folder))
        for each in _exposed(folder):
            with contextlib.suppress(FileNotFoundError):  # the last connection deletes the log
                keep_private(each)
    return replace(report, whole=plan[""] is not None)


def finish_repair(folder: Path) -> None:
    """Put the store that a killed repair has completed in the damaged one's place.

    Raises:
        DeviceError: If a file cannot be renamed, or another process is writing.
    """
    if (folder / f"{REBUILT}{STORE}").exists():
        with exclusive(folder / STORE, BUSY_TIMEOUT_MS / 1000):
            _finish(folder)


def _finish(folder: Path) -> str | None:
    """Finish a repair while holding the turn, and return the name of the store set aside."""
    rebuilt = folder / f"{REBUILT}{STORE}"
    with device_errors(folder):
        for part in folder.glob(f"{REBUILDING}*"):
            part.unlink()
        if not rebuilt.exists():
            return None
        # The name contains the file's time, so that whatever finishes a repair uses the same name.
        aside = f"{ASIDE}{rebuilt.stat().st_mtime_ns}-{STORE}"
        (folder / f"{STORE}-shm").unlink(missing_ok=True)
        for end in ("-wal", ""):  # the old log would change the new store
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{STORE}{end}").replace(folder / f"{aside}{end}")
        rebuilt.replace(folder / STORE)
        sync_directory(folder)
    return aside


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[DamagedStore]:
    """Open a folder's store.

    Raises:
        DeviceError: If the folder is not a device's, or cannot be read or written.
    """
    with device_errors(folder):
        if (folder / ERASING).exists():
            raise DeviceError(
                f"{folder}: the erasure of this device was interrupted; Device.open finishes it"
            )
        file = _store_of(folder)
        try:
            with damaged_store(file) as store:
                yield store
        except sqlite3.Error as error:
            if is_access(error):
                raise access_error(file, error) from error
            raise DeviceError(f"{file}: {without_data(error)}; {FAILING_DISK}") from None
        except MemoryError as error:
            raise DeviceError(f"{file}: there is not enough memory to read it") from error


def _store_of(folder: Path) -> Path:
    """Return the store's file: the new one, if a repair was killed after completing it.

    Raises:
        DeviceError: If there is no store.
    """
    rebuilt = folder / f"{REBUILT}{STORE}"
    file = rebuilt if rebuilt.exists() else folder / STORE
    check_regular(file)
    if not file.is_file():
        raise DeviceError(f"{folder}: not a device folder; make one with Device.create")
    return file


def _is_empty(store: DamagedStore) -> bool:
    query = "SELECT name FROM slots UNION ALL SELECT slot FROM active"
    return not store.select("slots", query) and not store.problems


def _examined(folder: Path, store: DamagedStore, codec: Codec) -> tuple[_Plan, Admission | None]:
    """Read a store as the device does, and note what is damaged.

    Returns:
        The release of every task, and which releases the device admits; None if that is lost.
    """
    store.unlock(codec)
    releases = store.releases()
    _open_slots(folder, store, releases)
    plan = _planned(folder, releases)
    tasks = {adapter: part[1].task for adapter, part in plan.items() if part is not None}
    store.read(tasks)
    store.text_key()
    store.check_history()
    for _ in store.embeddings():
        pass
    plan |= {row.adapter: None for row in store.examples if row.adapter not in plan}
    admission, own = store.admission(), plan[""]
    if own is not None and own[0].external and own[1].constant and not store.edited:
        # A device that requires signatures does not accept an encoder of the app.
        admission = admission or Admission()
    if admission is None:
        store.note("device", _LOST_TRUST)
    return plan, admission


def _open_slots(path: Path, store: DamagedStore, releases: Mapping[str, Installed]) -> None:
    """Open the slots of all tasks as the device does, and note what fails."""
    database = store.value("the file", lambda: Database(store.file, codec=store.codec))
    if database is None:
        return
    folder = Folder(path, Store(database), Encoders())
    own = Task(folder)
    bases: dict[int, Release] = {}
    for adapter in sorted(adapter for adapter, known in releases.items() if known or not adapter):
        task = Task(folder, adapter, own) if adapter else own
        state = store.value("active", task.store.slots.state)
        if state is None:
            continue
        for count in (state.generation, state.data):
            store.value("active", change_count, count)
        for number, name in enumerate((state.slot, state.previous)):
            if name is not None:
                base = bases.get(number) if adapter else None
                slot = store.value(f"slot {name}", task.open_slot, name, base)
                if slot is not None and not adapter:
                    bases[number] = slot.release
    folder.close()


def _planned(
    folder: Path, releases: Mapping[str, Installed], taken: tuple[Bundle, Head] | None = None
) -> _Plan:
    """Choose every task's release: the active one, or else the previous one.

    Args:
        folder: The device's folder.
        releases: The releases of the tasks, as far as they are known.
        taken: The caller's release for the device's own task.
    """

    def first(known: Installed, base: str | None) -> tuple[Bundle, Head] | None:
        """Return the first whole release; for an adapter, the first for this backbone."""
        for digest, labels in known:
            if not DIGEST.fullmatch(digest):
                continue
            try:
                bundle = Bundle.open(bundle_path(folder, digest))
                head = head_of(bundle)
            except BundleError as error:
                check_access(error)
                continue
            if bundle.digest == digest and bundle.base == base:
                ordered = sorted(labels) == sorted(head.names)
                return bundle, head.in_order(labels) if ordered else head
        return None

    own = first(releases[""], None) if taken is None else taken
    plan: _Plan = {"": own}
    for adapter in sorted(releases.keys() - {""}):
        plan[adapter] = own and first(releases[adapter], own[0].backbone_digest)
    return plan


def _given(folder: Path, trust: Trust | None, *, unsigned: bool) -> Admission:
    """Return which releases the repaired device admits, because the store no longer says so.

    Raises:
        DeviceError: If the caller does not say so either, because the device would accept any
            release.
    """
    if trust is None and not unsigned:
        raise DeviceError(
            f"{folder}: {_LOST_TRUST}, so any release could be installed after a repair; pass the "
            "vendor's key (trust=, or --trust FILE), or unsigned=True (or --unsigned) if the "
            "device was created without a key; nothing was changed"
        )
    admission = Admission(None if trust is None else key_bytes(trust))
    # The newest versions are lost with the key, except those of the folder's releases.
    for file in (folder / BUNDLES).glob("*.fala"):
        with contextlib.suppress(BundleError):
            manifest = Bundle.open(file).manifest
            admission = admission.with_version(manifest.product, manifest.version)
    return admission


def _taken(
    folder: Path, path: Path, trust: Trust | None, store: DamagedStore, admission: Admission
) -> tuple[Bundle, Head]:
    """Install the caller's release, because none in the folder is whole.

    Raises:
        OlderReleaseError: If the release is older than one that the device has had, or is a release
            of another product.
        BundleMismatchError: If the release is for other examples or labels than the user's.
        BundleError: If the release cannot be trusted.
    """
    key = admission.key if trust is None else key_bytes(trust)
    release = admit_loaded(path, key, Encoders())
    manifest, products = release.bundle.manifest, set(admission.versions) - {""}
    newest = admission.versions.get(manifest.product or "")
    if manifest.product is not None and products and manifest.product not in products:
        raise OlderReleaseError(
            f"{release.bundle.path}: this is a release of {manifest.product}, but the device has "
            f"had one of {', '.join(sorted(products))}; repair with a release of that product"
        )
    if manifest.version is not None and newest is not None and manifest.version < newest:
        raise OlderReleaseError(
            f"{release.bundle.path}: this is version {manifest.version}, but this device has "
            f"had version {newest} already; repair with that version or a newer one"
        )
    _check_fits(release, store)
    (folder / BUNDLES).mkdir(exist_ok=True)
    return COPIES.install(release.bundle, folder), release.head


def _check_fits(release: Release, store: DamagedStore) -> None:
    """Refuse a release that is for other examples or labels than the user's.

    Raises:
        BundleMismatchError: If the release does not fit.
    """
    head, examples = release.head, [row for row in store.examples if not row.adapter]
    labels = [row.stored_label for row in examples if row.label is not None]
    usable = head.link.usable(labels, head.labels)
    fits = [
        sum(label is not None for label in usable) >= _MOST_FIT * len(labels),
        sum(isinstance(row.example, Match) == (head.task == MATCHING) for row in examples)
        >= _MOST_FIT * len(examples),
        all(
            head.link.continues(head.link, head.labels, known)
            for _, known in store.releases()[""][:1]
        ),
    ]
    if not all(fits):
        raise BundleMismatchError(
            f"{release.bundle.path}: this release is for {head.described}; this device has other "
            "examples or labels"
        )


def _rebuild(
    folder: Path,
    codec: Codec,
    damaged: DamagedStore,
    plan: _Plan,
    admission: Admission,
    fit: _Fit,
) -> None:
    """Write a new store beside the damaged one; once complete, it gets its final name."""
    file = folder / f"{REBUILDING}{STORE}"
    store = Store.open(file, create=True, codec=codec)
    try:
        with store.transaction():
            store.write_mark(codec.renewed())
            store.texts.set_key(damaged.text_key())
            for adapter, part in plan.items():
                rows = [row for row in damaged.examples if row.adapter == adapter]
                store.of(adapter).examples.restore(rows)
                if part is not None:
                    slots, (name, _) = store.of(adapter).slots, slots_of(adapter)
                    bundle, head = part
                    slots.put(slot_record(name, bundle, head.vendor_model()))
                    slots.activate(name, None)
                    if not adapter:
                        manifest = bundle.manifest
                        admission = admission.with_version(manifest.product, manifest.version)
            unused = damaged.unused
            store.examples.remember(unused, [None] * len(unused))
            vectors: defaultdict[str, dict[str, Vectors]] = defaultdict(dict)
            for backbone, name, vector in damaged.embeddings():
                vectors[backbone][name] = vector
            for backbone, by_name in vectors.items():
                store.embeddings.add(backbone, by_name)
            for adapter, label in damaged.positive().items():
                store.of(adapter).slots.set_positive(label)
            store.settings.set_admission(admission)
        try:
            fit(Task(Folder(folder, store, Encoders())))
        except (FalaError, ArithmeticError, ValueError) as error:
            _log.warning("the personal models are not fitted yet: %s", error)
    finally:
        store.close()
    file.replace(folder / f"{REBUILT}{STORE}")
    sync_directory(folder)


def _report(
    folder: Path, store: DamagedStore, plan: _Plan, admission: Admission | None
) -> RepairReport:
    exposed, own, releases = _exposed(folder), plan[""], store.releases()
    names = {
        adapter: None if part is None else part[0].manifest.title for adapter, part in plan.items()
    }
    actions = []
    if own is None:
        actions.append(
            "no release of this device is whole: repair with one (--bundle FILE), and everything "
            "that can be read is kept"
        )
    elif store.problems:
        actions.append(f"write {STORE} anew from what can be read, and set the earlier file aside")
        actions.append("drop old logits and previous releases")
        for adapter, name in names.items():
            of = f" of the adapter {adapter}" if adapter else ""
            part, known = plan[adapter], releases.get(adapter, [])
            if part is None:
                actions.append(f"keep the examples{of}, which has to be loaded again")
                continue
            if [part[0].digest] != [digest for digest, _ in known[:1]]:
                actions.append(
                    f"make {name} active{of}: the release that was active cannot be read"
                )
            actions.append(f"fit the personal model{of} again, on {name}")
    if admission is None:
        actions.append(f"{_LOST_TRUST}: repair with --trust FILE or --unsigned")
    if exposed:
        actions.append("keep the files from other users")
    return RepairReport(
        path=str(folder),
        whole=not (store.problems or exposed) and own is not None,
        problems=(
            *store.problems, *(f"{file.name}: other users may read it" for file in exposed)
        ),
        actions=tuple(actions),
        examples=len(store.examples) + len(store.unused if store.problems else ()),
        labelled=sum(row.label is not None for row in store.examples),
        lost=store.lost,
        active=names.pop(""),
        adapters=names,
    )  # fmt: skip


def _exposed(folder: Path) -> Sequence[Path]:
    """Return the device's files that other users may read."""
    if os.name == "nt":
        return []
    files = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    return [file for file in files if file.exists() and file.stat().st_mode & 0o077]
