"""Examine a device's folder, and repair it: what is the user's is written into a new store.

Rescued are, as far as they can be read, texts, labels, ids, times and embeddings, the settings, and
which release is active: it is fitted again. Old logits and the previous release are gone.

The new store is written beside the damaged one. Once it is complete it gets a name by which
whatever opens the folder next, this repair or ``Device.open``, lets it take the damaged one's
place: a repair that is killed has changed nothing, or all. The damaged store is set aside.
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
from fala.slots.admit import Signed, admit_loaded
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
from fala.store.rescue import DamagedStore, Installed, opened
from fala.store.settings import Admission
from fala.store.slots import slots_of
from fala.store.store import Store
from fala.store.turns import exclusive

_log = logging.getLogger("fala.store")

#: The share of examples and labels that a release has to fit: others may be damaged.
_MOST_FIT = 0.95
_LOST_TRUST = "it cannot be read which key must have signed its releases"

#: The release of every task after a repair, by adapter: its bundle, and its head with the labels in
#: the device's order; None where none is whole.
_Plan = dict[str, tuple[Bundle, Head] | None]
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
        codec: Reads the store's records, and writes those of the new one.
        fit: Fits the personal models of all tasks.
        path: A release to install where none in the folder is whole.
        trust: The key that must have signed it, and that takes the place of one that is lost.
        unsigned: Whether the device required no signature, where that cannot be read.
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
                if plan[""] is None:
                    taken = None if store.releases()[""] else _only_release(folder, admission)
                    if taken is None and path is not None:
                        taken = _taken(folder, path, trust, store, admission)
                    plan = _planned(folder, store.releases(), taken)
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
    """Let the store that a killed repair has completed take the place of the damaged one.

    Raises:
        DeviceError: A file cannot be renamed, or another process is writing.
    """
    if (folder / f"{REBUILT}{STORE}").exists():
        with exclusive(folder / STORE, BUSY_TIMEOUT_MS / 1000):
            _finish(folder)


def _finish(folder: Path) -> str | None:
    """Finish a repair, with the turn; returns the name of the store that is set aside."""
    rebuilt = folder / f"{REBUILT}{STORE}"
    with device_errors(folder):
        for part in folder.glob(f"{REBUILDING}*"):
            part.unlink()
        if not rebuilt.exists():
            return None
        # By its time, so that whatever finishes a repair uses the same name.
        aside = f"{ASIDE}{rebuilt.stat().st_mtime_ns}-{STORE}"
        (folder / f"{STORE}-shm").unlink(missing_ok=True)
        for end in ("-wal", ""):  # the log would change the new store
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{STORE}{end}").replace(folder / f"{aside}{end}")
        rebuilt.replace(folder / STORE)
        sync_directory(folder)
    return aside


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[DamagedStore]:
    """A folder's store.

    Raises:
        DeviceError: It is no device's, cannot be read, or cannot be written.
    """
    with device_errors(folder):
        if (folder / ERASING).exists():
            raise DeviceError(f"{folder}: its erasure was interrupted; Device.open finishes it")
        file = _store_of(folder)
        try:
            with opened(file) as store:
                yield store
        except sqlite3.Error as error:
            if is_access(error):
                raise access_error(file, error) from error
            raise DeviceError(f"{file}: {without_data(error)}; {FAILING_DISK}") from None
        except MemoryError as error:
            raise DeviceError(f"{file}: there is not enough memory to read it") from error


def _store_of(folder: Path) -> Path:
    """The store's file: the new one, where a repair was killed after it had completed that.

    Raises:
        DeviceError: There is none.
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
        # A device that requires signatures accepts no encoder of the app's.
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
    """Choose every task's release: the active one, or the previous one if that cannot be read.

    Args:
        folder: The folder.
        releases: The releases of the tasks, as far as they are known.
        taken: The caller's release for the device's own task.
    """

    def first(known: Installed, base: str | None) -> tuple[Bundle, Head] | None:
        """The first whole one; of an adapter's, for the backbone of a release."""
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
    """Which releases the repaired device admits, as the store does not say it any more.

    Raises:
        DeviceError: Nor does the caller: the device would then accept any release.
    """
    if trust is None and not unsigned:
        raise DeviceError(
            f"{folder}: {_LOST_TRUST}, so any release could be installed after a "
            "repair; pass the vendor's key (trust=, or --trust FILE), or unsigned=True (or "
            "--unsigned) if the device was created without a key; nothing was changed"
        )
    admission = Admission(None if trust is None else key_bytes(trust))
    # The newest versions are lost with the key, but for those of the folder's releases.
    for file in (folder / BUNDLES).glob("*.fala"):
        with contextlib.suppress(BundleError):
            manifest = Bundle.open(file).manifest
            admission = admission.with_version(manifest.product, manifest.version)
    return admission


def _only_release(folder: Path, admission: Admission) -> tuple[Bundle, Head] | None:
    """The only release in a folder whose store names none any more; None where that may be foreign.

    Nobody knows who has signed it, so a device that requires a signature does not take it.
    """
    found = []
    for file in (folder / BUNDLES).glob("*.fala") if admission.key is None else ():
        with contextlib.suppress(BundleError):
            bundle = Bundle.open(file)
            manifest = bundle.manifest
            newest = admission.versions.get(manifest.product or "", manifest.version)
            if bundle.base is None and newest == manifest.version:
                found.append((bundle, head_of(bundle)))
    return found[0] if len(found) == 1 else None


def _taken(
    folder: Path, path: Path, trust: Trust | None, store: DamagedStore, admission: Admission
) -> tuple[Bundle, Head]:
    """Install the caller's release, because none in the folder is whole.

    Raises:
        OlderReleaseError: It is older than one that the device has had, or of another product.
        BundleMismatchError: It is for other examples, or other labels, than the user's.
        BundleError: It cannot be trusted.
    """
    origin = Signed(admission.key if trust is None else trust)
    release = admit_loaded(path, origin, Encoders())
    manifest, products = release.bundle.manifest, set(admission.versions) - {""}
    newest = admission.versions.get(manifest.product or "")
    if manifest.product is not None and products and manifest.product not in products:
        raise OlderReleaseError(
            f"{release.bundle.path}: a release of {manifest.product}, and this device has had "
            f"one of {', '.join(sorted(products))}"
        )
    if manifest.version is not None and newest is not None and manifest.version < newest:
        raise OlderReleaseError(
            f"{release.bundle.path}: version {manifest.version}, and this device has had version "
            f"{newest} already"
        )
    _check_fits(release, store)
    (folder / BUNDLES).mkdir(exist_ok=True)
    return COPIES.install(release.bundle, folder), release.head


def _check_fits(release: Release, store: DamagedStore) -> None:
    """Refuse a release that is for other examples, or other labels, than the user's.

    Raises:
        BundleMismatchError: It is.
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
            f"{release.bundle.path}: for {head.described}; this device's examples or labels are "
            "others"
        )


def _rebuild(
    folder: Path,
    codec: Codec,
    damaged: DamagedStore,
    plan: _Plan,
    admission: Admission,
    fit: _Fit,
) -> None:
    """Write a new store beside the damaged one; it is complete with its last name."""
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
            "no release of this device is whole: repair with one (--bundle FILE), and all that "
            "can be read comes with it"
        )
    elif store.problems:
        actions.append(f"write {STORE} anew from what can be read; the earlier file stays aside")
        actions.append("drop old logits and previous releases")
        for adapter, name in names.items():
            of = f" of the adapter {adapter}" if adapter else ""
            part, known = plan[adapter], releases.get(adapter, [])
            if part is None:
                actions.append(f"keep the examples{of}, which is to be loaded again")
                continue
            if [part[0].digest] != [digest for digest, _ in known[:1]]:
                actions.append(
                    f"make {name} active{of}: the release that was active cannot be read"
                )
            actions.append(f"fit the personal model{of} again, on {name}")
    if admission is None:
        actions.append(f"{_LOST_TRUST}: repair with it")
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
    """The device's files that other users may read."""
    if os.name == "nt":
        return []
    files = [folder, folder / BUNDLES, *(folder / BUNDLES).glob("*"), *folder.glob(f"*{STORE}*")]
    return [file for file in files if file.exists() and file.stat().st_mode & 0o077]
