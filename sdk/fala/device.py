"""The door: a device's folder with its personal model, its examples and two slots."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fala.arguments import (
    budget_of,
    follower_of,
    ids_where,
    limits_of,
    listed,
    name_of,
    path_of,
    product_of,
)
from fala.bundle.signature import Trust
from fala.errors import DataError, DeviceError, MissingExtraError
from fala.examples import Example, check_examples
from fala.model.answering import Answering
from fala.model.heads import Head, PersonalModel, label_name
from fala.model.losses import label_probabilities
from fala.proving.prove import proven
from fala.replacement.budget import Budget, Progress
from fala.replacement.compare import Accept, accept_of
from fala.replacement.learn import Learner
from fala.replacement.preview import preview
from fala.replacement.refine import Refinement
from fala.replacement.replace import replace
from fala.replacement.reporting import refined_report, replaced_report
from fala.replacement.stages import Stages
from fala.report import LearnReport, Preview, Report
from fala.store.database import doctor
from fala.store.erasing import erase
from fala.store.export import write_rows
from fala.store.health import REBUILT
from fala.store.health import STORE as _STORE
from fala.store.installed import Installed
from fala.store.keeping import KeepText, keep_text_of
from fala.store.private import keep_private
from fala.store.records import StoredExample
from fala.store.repair import RepairReport, look, repair
from fala.store.sealing import Key, seal_of
from fala.store.slots import BUNDLES, SLOTS, install, open_release, slot_record
from fala.store.store import Store
from fala.store.versions import newest_version, note_version
from fala.updates.layout import DEFAULT_PRODUCT
from fala.updates.limits import UpdateLimits

_POSITIVE = "positive"

_log = logging.getLogger("fala")


class Device:
    """A personal model on a device.

    Use ``Device.create`` once and ``Device.open`` afterwards; it is a context manager. Threads may
    share an object, and processes a folder: every answer is of one model, whole, and whatever was
    learned counts.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._installed = Installed(path, store)
        self._learner = Learner(self._installed)
        self._task = self._installed.now.model.head.task  # no replacement changes it

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str],
        *,
        positive: str | int | None = None,
        trust: Trust | None = None,
        key: Key | None = None,
        keep_text: KeepText = "always",
    ) -> Device:
        """Make a device folder with a release installed.

        A creation that was killed on its way is finished by calling it again.

        Args:
            path: A folder that does not exist, is empty, or was never finished.
            bundle: The release's file; it is copied.
            positive: Of two labels, the one whose F1 ``decide`` is to be best at; None takes the
                release's second.
            trust: The vendor's key, which must have signed the release; see ``replace``.
            key: Gives 32 bytes, by which texts, labels, embeddings, logits and weights are
                encrypted on the disk (see ``fala.store.sealing``); the app keeps them, in the
                system's key store. None does not encrypt. Needs the extra ``encryption``.
            keep_text: ``"never"`` writes no text to the disk, but a keyed digest, embeddings and
                logits (see ``fala.store.keeping``). A text is encoded when it is learned, and
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
        seal, keeping = seal_of(key), keep_text_of(keep_text)
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
                store = Store(path / _STORE, create=True, seal=seal)
                undo.callback(store.close)
                # One transaction: a creation killed anywhere in it was never begun, and of two at
                # once the second finds the first one's device.
                with store.transaction():
                    if store.finished:
                        raise DeviceError(f"{path}: the folder is not empty; use Device.open")
                    undo.callback(_empty, path, store, remove=made)
                    store.mark()
                    store.keep_text(keeping)
                    shutil.rmtree(path / BUNDLES, ignore_errors=True)
                    (path / BUNDLES).mkdir()
                    keep_private(path / BUNDLES)
                    install(opened, path)
                    store.put_slot(slot_record(SLOTS[0], opened, head.vendor_model()))
                    store.activate(SLOTS[0], None)
                    note_version(store, opened.manifest)
                    if positive is not None:
                        store.set(_POSITIVE, str(positive))
            except OSError as error:
                raise DeviceError(f"{path}: {error.strerror or error}") from error
            device = cls(path, store)
            undo.pop_all()
        _log.info("%s: created with %s", path, opened.manifest.name)
        return device

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, key: Key | None = None) -> Device:
        """Open a device folder.

        Args:
            path: The folder.
            key: See ``create``.

        Raises:
            DeviceError: There is none, it is damaged, or it was written under another key, or
                none; nothing is changed then.
            BundleError: The installed release is not what was installed.
        """
        path, seal = Path(path_of(path, "path")), seal_of(key)
        try:
            there = (path / _STORE).is_file()
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            raise DeviceError(f"{path}: cannot be opened: {error}") from error
        if not there and (path / REBUILT).exists():
            raise DeviceError(f"{path}: a repair was interrupted; {doctor(path)}")
        if not there:
            raise DeviceError(f"{path}: not a device folder; make one with Device.create")
        store = Store(path / _STORE, seal=seal)
        try:
            if not store.finished:
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
        return look(Path(path_of(path, "path")), seal_of(key))

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
        seal = seal_of(key)
        report = repair(folder, None if bundle is None else path_of(bundle, "bundle"), seal)
        if report.fit:
            with cls.open(folder, key=key) as device:
                device.fit()
        _log.info("%s: %s", folder, "; ".join(report.actions) or "nothing to repair")
        return report

    def close(self) -> None:
        """Close the store. What was learned is already on the disk."""
        self._installed.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            count, labelled = self._installed.store.counts()
            kind = "the vendor's model" if self.model.is_vendor else "a personal model"
            return (
                f"<Device {self._installed.path}: {self.task} on {self.name} with {kind}, "
                f"{count} examples, {labelled} labelled>"
            )
        except DeviceError as error:
            return f"<Device {self._installed.path}: {error}>"

    @property
    def name(self) -> str:
        """The installed backbone's name."""
        return self._installed.now.bundle.manifest.name

    @property
    def task(self) -> str:
        """``"classification"`` or ``"matching"``."""
        return self._task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the probabilities.

        The order stays over replacements; labels that a release adds come last.
        """
        return self._installed.now.model.head.labels

    @property
    def positive(self) -> str:
        """Of two labels, the one whose F1 ``decide`` is to be best at."""
        return self.labels[self._positive()]

    @property
    def model(self) -> PersonalModel:
        """The personal model that answers."""
        return self._installed.now.model

    @property
    def threshold(self) -> float:
        """The logit above which ``decide`` decides for the second of two labels."""
        return self._installed.now.answering.threshold

    @property
    def can_roll_back(self) -> bool:
        """Whether an earlier model is kept."""
        return self._installed.store.active()[1] is not None

    @property
    def on_trial(self) -> bool:
        """Whether the release that answers has still to prove itself; see ``replace``."""
        return self._installed.trials.running() is not None

    @property
    def fell_back(self) -> str | None:
        """Why the device left its last release, which failed its trial; see ``replace``."""
        return self._installed.trials.fell_back

    def predict(self, examples: Iterable[Example]) -> NDArray[np.float64]:
        """Probabilities of every label by the personal model.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Returns:
            Shape (n, number of labels); rows add up to 1.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        checked = check_examples(examples, self._task)
        return label_probabilities(self._learner.ask(checked, Answering.logits, self._positive))

    def decide(self, examples: Iterable[Example]) -> list[str]:
        """The label of every example, by the user's own threshold.

        With two labels the threshold is the one that is expected to give the best F1 of
        ``positive``; where too little is known, and with more labels, the likeliest label is taken.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        checked = check_examples(examples, self._task)
        return self._learner.ask(checked, Answering.decide, self._positive)

    def learn(
        self, examples: Iterable[Example], labels: Iterable[str | int | None] | None = None
    ) -> LearnReport:
        """Keep examples with their labels, and fit the personal model to all that is known.

        The examples are on the disk before anything is encoded. A few more examples beside many
        are added to the last fit at its scales, in milliseconds (where leave-one-out would keep the
        scales, probabilities are within .01 on average of those of ``fit``, which does all anew
        when there is time, and checks again which model is to answer).

        Args:
            examples: n texts, or ``Match`` objects. One that is known already takes the new label.
            labels: n labels (names, or integers that spell them), None for an example that the
                user gave no label; None for all. Examples without a label are kept for the next
                replacement.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
        """
        checked, named = self._checked(examples, labels)
        return self._learner.learn(checked, named, self._positive())

    def remember(
        self, examples: Iterable[Example], labels: Iterable[str | int | None] | None = None
    ) -> list[int]:
        """Keep examples with their labels, and do nothing else: they count after ``fit``.

        Args:
            examples: See ``learn``.
            labels: See ``learn``.

        Returns:
            The examples' ids. They are on the disk. Where texts are not kept they are encoded.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
        """
        return self._learner.remember(*self._checked(examples, labels))

    def fit(self) -> LearnReport:
        """Fit the personal model to all that is known, with the scales chosen anew.

        For the app's idle time. Texts that no backbone has seen are encoded where that is free
        (word vectors); a transformer sees them in ``refine``.
        """
        self._learner.ready(self._positive)
        return self._learner.fit(self._positive())

    def forget(
        self,
        ids: Iterable[int] | None = None,
        *,
        where: Callable[[StoredExample], object] | None = None,
    ) -> int:
        """Delete examples, so that the device is as one that never saw them.

        Their texts, embeddings and logits go, and are overwritten on the disk. What answers is
        fitted to the others, and so is the earlier model, to what it knew when it was left; what
        that one said of other examples it says again. Probabilities are then within 1e-6 of those
        of a device that never saw them, and had the same texts encoded. Where a model that is
        gone (that before the earlier one) had seen them, what it said of others goes with them.
        All this is one transaction. A damaged file that ``repair`` has kept aside is deleted.

        Args:
            ids: As ``examples`` gives them; unknown ones are passed over.
            where: In place of ids: a function of a ``StoredExample`` that says whether it goes.

        Returns:
            How many were deleted.

        Raises:
            DataError: If an id is not a whole number, or not one of both arguments is given;
                nothing is deleted then.
        """
        chosen = ids_where(ids, where, self.examples)
        return self._learner.forget(chosen, self._positive)

    def export_data(
        self, target: str | os.PathLike[str] | IO[str] | IO[bytes], *, user: str = "me"
    ) -> int:
        """Write all examples as JSON Lines, in the format that ``fala-replace --data`` reads.

        Every row has the split ``"train"``, and the times at which it and its label came. Labels
        are numbers where all of the device's spell numbers. An example with a blank text is left
        out: it is no row.

        Args:
            target: A file to make or replace, for its user alone (mode 0600); or a stream.
            user: The rows' user.

        Returns:
            How many rows were written.

        Raises:
            DataError: It cannot be written there, texts are not kept, or ``user`` is no name.
        """
        name = name_of(user, "user")
        if not self._installed.store.keeping.texts:
            raise DataError("there is no text to write: this device was made to keep none")
        rows = self._installed.store.examples()
        return write_rows(target, rows, self.labels, name)

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
            self._installed.store.rotate(seal_of(key))

    def examples(
        self, *, labelled: bool | None = None, label: str | int | None = None
    ) -> Iterator[StoredExample]:
        """What the device keeps, in the order in which it came.

        Args:
            labelled: Only those with a label, or only those without.
            label: Only those with this label.

        Returns:
            Examples with their ids, labels and times; see ``StoredExample``.
        """
        wanted = None if label is None else label_name(label)
        kept = self._installed.store.keeping.texts
        return (
            row if kept else replace_fields(row, example=None)
            for row in self._installed.store.examples()
            if (labelled is None or (row.label is not None) == labelled)
            and (wanted is None or row.label == wanted)
        )

    def preview(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        trust: Trust | None = None,
    ) -> Preview:
        """Is a release worth it to this user? Nothing is changed, and nothing is written.

        All that ``replace`` does before its new model answers is done, and thrown away: over a
        bridge, or with words, that takes no forward pass but for a few probes; without either it
        takes the budget's. The model that answers is fitted once more, to compare with.

        Args:
            bundle: See ``replace``.
            budget: What the replacement may cost; None is ``Budget()``.
            trust: See ``replace``.

        Returns:
            Losses of the old, the vendor's new and the carried model on the same labelled
            examples, each left out, and what the replacement would cost.

        Raises:
            BundleError: As ``replace`` would.
            DataError: An argument is not one of those above.
        """
        path, limits = path_of(bundle, "bundle"), budget_of(budget)
        return preview(self._installed, path, limits, self._positive, trust)

    def replace(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        accept: Accept = "always",
        trust: Trust | None = None,
        allow_older: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Replace the backbone and carry the personal model over.

        Where the release has a bridge from the old backbone, a new personal model answers before
        any forward pass, and is then refined within the budget, as ``refine`` does. Without a
        bridge the first of the budget's texts are representatives, chosen by correlation
        clustering on the old embeddings. Before it is installed the new release answers odd texts,
        in a process of its own (``fala.proving``), and here the device's own. The old model stays
        for ``rollback``. Whatever goes wrong, the device answers as before, or by the first fit.

        The new release is on trial (``on_trial``) until ``confirm``, or until it has answered 100
        examples; a rollback ends that too, and coming back begins it anew. While it is on trial
        every process lets it answer a few texts before it answers the app. Where it cannot, or
        where three processes in a row died of it, the device falls back to the earlier model by
        itself, catches up with what was said since, and tells why (``fell_back``, until the next
        replacement or rollback; a warning in the log); there is no rolling back to it. Answers
        are counted in memory, and written when they are enough or at ``close``: of a process that
        is killed they do not count, and the trial lasts longer. Who replaces a release on trial
        confirms it: it is what the device goes back to, so let it answer first, or roll back.

        Args:
            bundle: The new release's file; it is copied. It is for the same task and has this
                device's labels, in any order; it may have more.
            budget: What it may cost; None is ``Budget()``.
            accept: ``"better-than-old"`` refuses a release whose first personal model is worse
                for this user than the model that answers, ``"better-than-vendor"`` one where it is
                worse than the vendor's own new model: where the losses of the labelled examples,
                each left out, are larger by more than a standard error of their mean difference,
                pair by pair. Fewer than 10 labels, or 3 of each of two labels, prove nothing, and
                refuse nothing. ``"always"`` refuses nothing; ``Report.worse`` tells it in any
                case, and ``preview`` beforehand.
            trust: The vendor's Ed25519 public key, as its 32 bytes, as PEM, or as a file of
                either: the release must have its signature beside it, as ``fala-export sign``
                writes it. None asks for no signature.
            allow_older: True takes a release whose version is below one that this device has
                had, or that is of another product. Releases without a version are always taken.
            progress: Called with a stage's name, what is done and what there is to do; if it
                gives False, the work ends: before the new model answers with ``CancelledError``
                and nothing changed, afterwards with the report.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: The release cannot be trusted, or is not for this task and these labels.
            OlderReleaseError: ``allow_older`` is False, and it is.
            DataError: An argument is not one of those above.
            MissingExtraError: ``trust`` is given, and pyca/cryptography is not installed.
            WorseModelError: It would be worse, and ``accept`` refuses that; nothing changed.
            CancelledError: ``progress`` asked for an end.
            DeviceError: The device's folder cannot be written.
            DeviceChangedError: Another release was installed meanwhile.
        """
        path, accepted = path_of(bundle, "bundle"), accept_of(accept)
        limits, follower = budget_of(budget), follower_of(progress)
        self._learner.ready(self._positive)
        stages, before = Stages(), self.name
        replaced = replace(
            self._installed, path, limits, stages, follower, self._positive, accepted,
            trust=trust, allow_older=allow_older,
        )  # fmt: skip
        report = replaced_report(before, replaced, self._installed.now, limits, stages)
        _log.info("%s -> %s: %s", report.old, report.new, report.sentence)
        return report

    def update(
        self,
        url: str,
        *,
        root: str | bytes | os.PathLike[str],
        product: str | None = None,
        budget: Budget | None = None,
        accept: Accept = "always",
        limits: UpdateLimits | None = None,
        progress: Progress | None = None,
    ) -> Report | None:
        """Install the newest release of the vendor's repository, if this device never had it.

        The repository follows The Update Framework (``fala-export publish`` keeps one). Nothing
        is believed that the keys of the trusted root did not sign, that is past its time, or that
        is older than what this device has seen. A release that the user went back from is not
        installed again: the vendor's next one is. What was downloaded when something broke off is
        gone on from at the next call. Then the release is installed as ``replace`` does.

        Needs the extra ``fala-sdk[ota]``.

        Args:
            url: The repository's address, with http or https.
            root: The trusted root that the app pins: a ``root.json`` of the repository, as bytes
                or as a file.
            product: Whose releases; None takes the installed release's product.
            budget: See ``replace``.
            accept: See ``replace``.
            limits: What is waited for, and how much is taken; None is ``UpdateLimits()``.
            progress: See ``replace``; during ``"download"`` it is told bytes.

        Returns:
            What ``replace`` did; None where there is nothing newer.

        Raises:
            DownloadError: The repository cannot be reached, gives too much or too slowly, or
                breaks off.
            UntrustedUpdateError: What it gives is not what the vendor signed; its subclasses tell
                what is past its time and what is older than what was seen.
            UpdateError: It has no such product, or another update is under way.
            MissingExtraError: The extra is not installed.
            FalaError: See ``replace``.
        """
        try:
            from fala.updates.client import Wanted, newer_release, repository_url, trusted_root
        except ImportError as error:
            raise MissingExtraError(
                f"install fala-sdk[ota] for signed updates ({error})"
            ) from error
        taken, accepted = limits_of(limits), accept_of(accept)
        budget, follower = budget_of(budget), follower_of(progress)
        installed = self._installed.now.bundle.manifest.product
        asked = product_of(product) or installed or DEFAULT_PRODUCT

        def newest() -> int | None:
            now = self._installed.now.bundle.manifest
            return newest_version(self._installed.store, asked, now)

        wanted = Wanted(repository_url(url), trusted_root(root), asked, newest)
        with newer_release(self._installed.path, wanted, taken, follower.check) as release:
            if release is None:
                return None
            return self.replace(
                release, budget, accept=accepted, progress=progress,
                allow_older=asked != installed,  # another product was asked for by its name
            )  # fmt: skip

    def refine(self, budget: Budget | None = None, *, progress: Progress | None = None) -> Report:
        """Go on with the last replacement: encode more of the user's texts, and fit again.

        For the app's idle time. Every batch of texts is kept, with the model fitted to it, before
        the next: it may be interrupted, or killed, at any instant, and goes on there. It ends
        early where a batch changed next to nothing, all texts were encoded, or another model was
        installed meanwhile.

        Args:
            budget: Further forward passes and seconds; None is ``Budget()``.
            progress: Called with a stage's name, what is done and what there is to do; if it
                gives False, the work ends there.

        Returns:
            What was done. ``old`` and ``new`` are the same backbone.

        Raises:
            DataError: An argument is not one of those above.
            DeviceError: The device's folder cannot be written.
        """
        limits, follower = budget_of(budget), follower_of(progress)
        self._learner.ready(self._positive)
        stages = Stages()
        refinement = Refinement(self._installed, stages, follower, self._positive())
        refined = refinement.run(limits)
        return refined_report(refined, self._installed.now, stages)

    def confirm(self) -> None:
        """End the trial of the release that answers: it has proved itself; see ``replace``.

        For an app with checks of its own. Does nothing where nothing is on trial.

        Raises:
            DeviceError: The device's folder cannot be written.
        """
        self._installed.confirm()

    def rollback(self) -> None:
        """Go back to the model before the last replacement; a second call comes back here.

        What was learned since counts: the model is fitted to it where its backbone has seen it.

        Raises:
            DeviceError: If no earlier model is kept.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        said = self._installed.roll_back()
        if said:
            self._learner.fit(self._positive())
        _log.info("rolled back to %s", self.name)

    def _positive(self, head: Head | None = None) -> int:
        """Position of the positive label, of two."""
        labels = self.labels if head is None else head.labels
        named = self._installed.store.get(_POSITIVE)
        return labels.index(named) if named in labels else len(labels) - 1

    def _checked(
        self, examples: Iterable[Example], labels: Iterable[str | int | None] | None
    ) -> tuple[list[Example], list[str | None]]:
        head = self._installed.now.model.head
        checked = check_examples(examples, head.task)
        given: Sequence[str | int | None] = [None] * len(checked)
        if labels is not None:
            given = listed(labels, "labels")
        if len(given) != len(checked):
            raise DataError(f"{len(checked)} examples, but {len(given)} labels")
        head.label_shares(given)
        return checked, [None if label is None else label_name(label) for label in given]


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
