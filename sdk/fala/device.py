"""The door: a device's folder with its personal model, its examples and two slots."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from fala.arguments import budget_of, follower_of, listed, path_of
from fala.errors import DataError, DeviceError
from fala.examples import Example, check_examples
from fala.model.heads import Head, PersonalModel, label_name
from fala.model.losses import label_probabilities
from fala.proving.prove import proven
from fala.replacement.budget import Budget, Progress
from fala.replacement.learn import Learner
from fala.replacement.refine import Refinement
from fala.replacement.replace import replace
from fala.replacement.reporting import refined_report, replaced_report
from fala.replacement.stages import Stages
from fala.report import LearnReport, Report
from fala.store.installed import Installed
from fala.store.records import StoredExample
from fala.store.slots import BUNDLES, SLOTS, install, open_release, slot_record
from fala.store.store import Store

_STORE = "store.sqlite3"
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

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str],
        *,
        positive: str | int | None = None,
    ) -> Device:
        """Make a device folder with a release installed.

        A creation that was killed on its way is finished by calling it again. The release is
        loaded, and answers odd texts, before anything is made; see ``replace``.

        Args:
            path: A folder that does not exist, is empty, or was never finished.
            bundle: The release's file; it is copied.
            positive: Of two labels, the one whose F1 ``decide`` is to be best at; None takes the
                release's second.

        Raises:
            BundleError: The release cannot be trusted.
            BundleMismatchError: It is a backbone without a head.
            DataError: ``positive`` is not one of the release's labels.
            DeviceError: The folder is in use, or cannot be written.
        """
        path = Path(path_of(path, "path"))
        opened, head = open_release(path_of(bundle, "bundle"), hold=True)
        if positive is not None and label_name(positive) not in head.labels:
            raise DataError(
                f"positive is one of {', '.join(head.labels)}, not {label_name(positive)!r:.60}"
            )
        proven(opened)  # a model that does not load, or answer, must not be installed
        with contextlib.ExitStack() as undo:
            try:
                made = not path.exists()
                path.mkdir(parents=True, exist_ok=True)
                others = [file.name for file in path.iterdir() if not _own(file)]
                if others:
                    raise DeviceError(f"{path}: the folder is not empty; choose another")
                store = Store(path / _STORE, create=True)
                undo.callback(store.close)
                # One transaction: a creation killed anywhere in it was never begun, and of two at
                # once the second finds the first one's device.
                with store.transaction():
                    if store.finished:
                        raise DeviceError(f"{path}: the folder is not empty; use Device.open")
                    undo.callback(_empty, path, store, remove=made)
                    shutil.rmtree(path / BUNDLES, ignore_errors=True)
                    (path / BUNDLES).mkdir()
                    install(opened, path)
                    store.put_slot(slot_record(SLOTS[0], opened, head.vendor_model()))
                    store.activate(SLOTS[0], None)
                    if positive is not None:
                        store.set(_POSITIVE, str(positive))
            except OSError as error:
                raise DeviceError(f"{path}: {error.strerror or error}") from error
            device = cls(path, store)
            undo.pop_all()
        _log.info("%s: created with %s", path, opened.manifest.name)
        return device

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Device:
        """Open a device folder.

        Raises:
            DeviceError: There is none, or it is damaged.
            BundleError: The installed release is not what was installed.
        """
        path = Path(path_of(path, "path"))
        try:
            there = (path / _STORE).is_file()
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            raise DeviceError(f"{path}: cannot be opened: {error}") from error
        if not there:
            raise DeviceError(f"{path}: not a device folder; make one with Device.create")
        store = Store(path / _STORE)
        try:
            if not store.finished:
                raise DeviceError(
                    f"{path}: its creation was never finished; call Device.create again"
                )
            return cls(path, store)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Close the store. What was learned is already on the disk."""
        self._installed.store.close()

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
        return self._installed.now.model.head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the probabilities.

        The order stays over replacements; labels that a release adds come last.
        """
        return self._installed.now.model.head.labels

    @property
    def positive(self) -> str:
        """Of two labels, the one whose F1 ``decide`` is to be best at."""
        return self._installed.store.get(_POSITIVE) or self.labels[-1]

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

    def predict(self, examples: Iterable[Example]) -> NDArray[np.float64]:
        """Probabilities of every label by the personal model.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Returns:
            Shape (n, number of labels); rows add up to 1.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        now = self._installed.now
        return label_probabilities(
            now.answering.logits(check_examples(examples, now.model.head.task))
        )

    def decide(self, examples: Iterable[Example]) -> list[str]:
        """The label of every example, by the user's own threshold.

        With two labels the threshold is the one that is expected to give the best F1 of
        ``positive``; where too little is known, and with more labels, the likeliest label is taken.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        now = self._installed.now
        return now.answering.decide(check_examples(examples, now.model.head.task))

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
            The examples' ids. They are on the disk.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
        """
        return self._learner.remember(*self._checked(examples, labels))

    def fit(self) -> LearnReport:
        """Fit the personal model to all that is known, with the scales chosen anew.

        For the app's idle time. Texts that no backbone has seen are encoded where that is free
        (word vectors); a transformer sees them in ``refine``.
        """
        return self._learner.fit(self._positive())

    def forget(self, ids: Iterable[int]) -> int:
        """Delete examples, with their texts, embeddings and logits, and fit to the others.

        Args:
            ids: As ``examples`` gives them; unknown ones are passed over.

        Returns:
            How many were deleted.

        Raises:
            DataError: If an id is not a whole number; nothing is deleted then.
        """
        wanted = listed(ids, "ids")
        for value in wanted:
            if isinstance(value, bool) or not isinstance(value, int):
                raise DataError(f"an example's id is a whole number, not {value!r}")
        return self._learner.forget(wanted, self._positive())

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
        for row in self._installed.store.examples():
            if labelled is not None and (row.label is not None) != labelled:
                continue
            if label is None or row.label == str(label):
                yield row

    def replace(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        allow_worse: bool = True,
        progress: Progress | None = None,
    ) -> Report:
        """Replace the backbone and carry the personal model over.

        Where the release has a bridge from the old backbone, a new personal model answers before
        any forward pass, and is then refined within the budget, as ``refine`` does. Without a
        bridge the first of the budget's texts are representatives, chosen by correlation
        clustering on the old embeddings. The old model stays for ``rollback``. Whatever goes wrong
        before the last moment, the device answers as before, or with the model that came first.

        Before it is installed, a release's graph and tokenizer are looked at without being loaded:
        they may hold, and cost, what an encoder's do. Then it is loaded, and answers odd texts, in
        a process of its own under limits of time and memory, where the system lets an app start one
        (not where the environment variable FALA_NO_CHILD_PROCESS is set); at last it answers the
        device's own texts here.

        Args:
            bundle: The new release's file; it is copied. It is for the same task and has this
                device's labels, in any order; it may have more.
            budget: What it may cost; None is ``Budget()``.
            allow_worse: False refuses a release whose first personal model is worse for this user,
                by the labels, than the model that answers; ``Report.worse`` tells it in any case.
            progress: Called with a stage's name, what is done and what there is to do; if it
                gives False, the work ends: before the new model answers with ``CancelledError``
                and nothing changed, afterwards with the report.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: The release cannot be trusted, or is not for this task and these labels.
            DataError: An argument is not one of those above.
            WorseModelError: ``allow_worse`` is False, and it would be.
            CancelledError: ``progress`` asked for an end.
            DeviceError: The device's folder cannot be written.
            DeviceChangedError: Another release was installed meanwhile.
        """
        path = path_of(bundle, "bundle")
        limits, follower = budget_of(budget), follower_of(progress)
        stages, before = Stages(), self.name
        replaced = replace(
            self._installed, path, limits, stages, follower, self._positive,
            allow_worse=allow_worse,
        )  # fmt: skip
        report = replaced_report(before, replaced, self._installed.now, limits, stages)
        _log.info("%s -> %s: %s", report.old, report.new, report.reason)
        return report

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
        stages = Stages()
        refinement = Refinement(self._installed, stages, follower, self._positive())
        refined = refinement.run(limits)
        return refined_report(refined, self._installed.now, stages)

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
