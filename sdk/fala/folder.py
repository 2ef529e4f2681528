"""A device's folder: made, opened, mended, encrypted, erased."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from fala.arguments import path_of
from fala.bundle.signature import Trust
from fala.errors import DataError, DeviceError
from fala.files import keep_private
from fala.model.heads import label_name
from fala.report import LearnReport
from fala.slots.bundles import BUNDLES, install, open_release, slot_record
from fala.slots.erasing import erase
from fala.slots.health import REBUILT
from fala.slots.health import STORE as _STORE
from fala.slots.installed import Installed
from fala.slots.repair import RepairReport, look, repair
from fala.slots.validation import proven
from fala.slots.versions import note_version
from fala.store.database import doctor
from fala.store.encryption import Key, codec_of
from fala.store.slots import SLOTS
from fala.store.store import Store
from fala.store.texts import KeepText, TextNames, keep_text_of

_log = logging.getLogger("fala")

Opened = TypeVar("Opened", bound="DeviceFolder")


class DeviceFolder(ABC):
    """What of a ``Device`` is about its folder as a whole; see there.

    Args:
        path: The folder.
        store: Its store, open.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._installed = Installed(path, store)

    @classmethod
    def create(
        cls: type[Opened],
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str],
        *,
        positive: str | int | None = None,
        trust: Trust | None = None,
        key: Key | None = None,
        keep_text: KeepText = "always",
    ) -> Opened:
        """Make a device folder with a release installed.

        A creation that was killed on its way is finished by calling it again.

        Args:
            path: A folder that does not exist, is empty, or was never finished.
            bundle: The release's file; it is copied.
            positive: Of two labels, the one whose F1 ``decide`` is to be best at; None takes the
                release's second.
            trust: The vendor's key, which must have signed the release; see ``replace``.
            key: Gives 32 bytes, by which texts, labels, embeddings, logits and weights are
                encrypted on the disk (see ``fala.store.encryption``); the app keeps them, in the
                system's key store. None does not encrypt. Needs the extra ``encryption``.
            keep_text: ``"never"`` writes no text to the disk, but a keyed digest, embeddings and
                logits (see ``fala.store.texts``). A text is encoded when it is learned, and
                never again: a replacement carries over what a bridge maps, or nothing, ``refine``
                has nothing to do, and a rollback does not know what was learned since; and what a
                release's words say of the user's texts is not known to a fit. ``"ngrams"`` keeps
                their hashed n-grams, too, by which words are carried over, and against which who
                has the device can try words. It stays so for the device's life.

        Raises:
            BundleError: The release cannot be trusted.
            BundleMismatchError: It is a backbone without a head.
            DataError: ``positive`` is not one of the release's labels, or ``keep_text`` none of
                its words.
            DeviceError: The folder is in use, or cannot be written.
        """
        path = Path(path_of(path, "path"))
        codec, names = codec_of(key), TextNames.new(keep_text_of(keep_text))
        opened, head = open_release(path_of(bundle, "bundle"), hold=True, trust=trust)
        if positive is not None and label_name(positive) not in head.labels:
            raise DataError(
                f"positive is one of {', '.join(head.labels)}, not {label_name(positive)!r:.60}"
            )
        proven(opened)  # a model that does not load, or answer, must not be installed
        with contextlib.ExitStack() as undo:
            try:
                made = not path.exists()
                path.mkdir(parents=True, exist_ok=True)
                keep_private(path)
                others = [file.name for file in path.iterdir() if not _own(file)]
                if others:
                    raise DeviceError(f"{path}: the folder is not empty; choose another")
                store = Store.open(path / _STORE, create=True, codec=codec)
                undo.callback(store.close)
                # One transaction: a creation killed anywhere in it was never begun, and of two at
                # once the second finds the first one's device.
                with store.transaction():
                    if store.is_complete:
                        raise DeviceError(f"{path}: the folder is not empty; use Device.open")
                    undo.callback(_empty, path, store, remove=made)
                    store.write_mark()
                    store.texts.set_names(names)
                    shutil.rmtree(path / BUNDLES, ignore_errors=True)
                    (path / BUNDLES).mkdir()
                    keep_private(path / BUNDLES)
                    install(opened, path)
                    store.slots.put(slot_record(SLOTS[0], opened, head.vendor_model()))
                    store.slots.activate(SLOTS[0], None)
                    note_version(store, opened.manifest)
                    if positive is not None:
                        store.slots.set_positive(str(positive))
            except OSError as error:
                raise DeviceError(f"{path}: {error.strerror or error}") from error
            device = cls(path, store)
            undo.pop_all()
        _log.info("%s: created with %s", path, opened.manifest.name)
        return device

    @classmethod
    def open(cls: type[Opened], path: str | os.PathLike[str], *, key: Key | None = None) -> Opened:
        """Open a device folder.

        Args:
            path: The folder.
            key: See ``create``.

        Raises:
            DeviceError: There is none, it is damaged, or it was written under another key, or
                none; nothing is changed then.
            BundleError: The installed release is not what was installed.
        """
        path, codec = Path(path_of(path, "path")), codec_of(key)
        try:
            there = (path / _STORE).is_file()
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            raise DeviceError(f"{path}: cannot be opened: {error}") from error
        if not there and (path / REBUILT).exists():
            raise DeviceError(f"{path}: a repair was interrupted; {doctor(path)}")
        if not there:
            raise DeviceError(f"{path}: not a device folder; make one with Device.create")
        store = Store.open(path / _STORE, codec=codec)
        try:
            if not store.is_complete:
                raise DeviceError(
                    f"{path}: its creation was never finished; call Device.create again"
                )
            return cls(path, store)
        except BaseException:
            store.close()
            raise

    @classmethod
    def examine(cls, path: str | os.PathLike[str], *, key: Key | None = None) -> RepairReport:
        """Look what of a device folder is whole; nothing is changed.

        Args:
            path: The folder.
            key: See ``create``.

        Raises:
            DeviceError: There is none, a newer FaLA wrote it, or it has another key.
        """
        return look(Path(path_of(path, "path")), codec_of(key))

    @classmethod
    def repair(
        cls,
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str] | None = None,
        *,
        key: Key | None = None,
    ) -> RepairReport:
        """Mend a device folder that is damaged, with all of its examples that can be read.

        A slot that is damaged gives way to the other one. Of a damaged store all that can be read
        goes to a new one; the damaged file stays in the folder under another name, until
        something is forgotten. Where no slot is whole the personal model is fitted again, on a
        release of the folder. Close the device first, in every process.

        Args:
            path: The folder.
            bundle: A release to go on with where none in the folder is whole.
            key: See ``create``.

        Raises:
            DeviceError: There is none, it cannot be written, a newer FaLA wrote it, or it has
                another key.
            BundleError: ``bundle`` cannot be trusted.
        """
        folder = Path(path_of(path, "path"))
        codec = codec_of(key)
        report = repair(folder, None if bundle is None else path_of(bundle, "bundle"), codec)
        if report.fit or report.fit_adapters:
            with cls.open(folder, key=key) as device:
                for adapter in ([None] if report.fit else []) + [*report.fit_adapters]:
                    device.fit(adapter=adapter)
        _log.info("%s: %s", folder, "; ".join(report.actions) or "nothing to repair")
        return report

    def close(self) -> None:
        """Close the store. What was learned is already on the disk."""
        self._installed.close()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def erase(self) -> None:
        """Delete all that is the user's, and the device with it; it is closed then.

        Texts, labels, embeddings and weights are overwritten before their files go. The folder
        goes, too, where nothing else lies in it. Other processes that have it open can neither
        answer nor write any more.

        Raises:
            DeviceError: Something cannot be deleted; what can be is gone.
        """
        with self._installed.work:
            erase(self._installed.path, self._installed.store)
        _log.info("%s: erased", self._installed.path)

    def rotate_key(self, key: Key) -> None:
        """Encrypt all that is kept anew, under another key; or for the first time.

        One transaction: killed on its way, the device has the old key, or the new one. What was
        written under the old one is overwritten. Other processes have to open it again.

        Args:
            key: Gives the new key; see ``create``.

        Raises:
            DataError: It does not give 32 bytes.
            DeviceError: A record is damaged; nothing is changed then.
        """
        if key is None:
            raise DataError("rotate_key needs a key")
        with self._installed.work:
            self._installed.store.rotate(codec_of(key))

    @abstractmethod
    def fit(self, *, adapter: str | None = None) -> LearnReport:
        """See ``Device``."""


def _own(file: Path) -> bool:
    """Whether a file of a folder is one that ``Device.create`` makes."""
    return file.name == BUNDLES or file.name.startswith(_STORE)


def _empty(folder: Path, store: Store, *, remove: bool) -> None:
    """Take back what ``Device.create`` began."""
    store.close()
    shutil.rmtree(folder / BUNDLES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for file in folder.glob(f"{_STORE}*"):
            file.unlink()
        if remove:
            folder.rmdir()
