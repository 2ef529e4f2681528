"""What a device's tasks are asked and taught: its own, and those of adapters beside it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fala.arguments import adapter_name, ids_where, listed, name_of, path_of
from fala.bundle.signature import Trust
from fala.errors import DataError, DeviceError
from fala.examples import Example, check_examples
from fala.folder import DeviceFolder
from fala.model.active import ActiveModel
from fala.model.heads import PersonalModel, label_name
from fala.model.losses import label_probabilities
from fala.personal.adapters import load
from fala.personal.learn import Learner
from fala.report import AdapterInfo, LearnReport
from fala.slots.erasing import scrub
from fala.store.export import write_rows
from fala.store.records import StoredExample
from fala.store.store import Store

_log = logging.getLogger("fala")


class DeviceTasks(DeviceFolder):
    """What of a ``Device`` is about its tasks and their examples; see there.

    Args:
        path: The folder.
        store: Its store, open.
    """

    def __init__(self, path: Path, store: Store) -> None:
        super().__init__(path, store)
        self._learners: dict[str, Learner] = {}
        self._task = self._installed.now.model.head.task  # no replacement changes it

    def __repr__(self) -> str:
        try:
            count, labelled = self._installed.store.examples.counts()
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
        return self.labels[self._installed.positive()]

    @property
    def model(self) -> PersonalModel:
        """The personal model that answers."""
        return self._installed.now.model

    @property
    def threshold(self) -> float:
        """The logit above which ``decide`` decides for the second of two labels."""
        return self._installed.now.answering.threshold

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that are loaded; see ``load_adapter``."""
        return tuple(self._installed.store.slots.adapters())

    def adapter(self, name: str) -> AdapterInfo:
        """What is known of a loaded adapter.

        Raises:
            UnknownAdapterError: None of this name is loaded.
        """
        learner = self._learner(name)
        now, (count, labelled) = learner.task.now, learner.task.store.examples.counts()
        head = now.model.head
        return AdapterInfo(
            name, head.task, head.labels, head.labels[learner.task.positive()],
            now.answering.threshold, count, labelled, now.model.is_vendor,
        )  # fmt: skip

    def load_adapter(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        positive: str | int | None = None,
        trust: Trust | None = None,
    ) -> str:
        """Load a further task: an adapter in the installed release's backbone, with its head.

        Its examples, labels and personal model are its own, and the other tasks answer as before,
        to the bit. It is asked by its name (``adapter=``); no adapter is ever active for others. A
        release on trial is confirmed by it; it lets nobody go back to the release before, which
        the adapter is not made for, unless it is deleted first.

        Args:
            path: The adapter's file, as ``fala-export adapter`` writes it; it is copied.
            name: What it is called here; None takes the bundle's own name.
            positive: See ``create``.
            trust: See ``replace``.

        Returns:
            Its name.

        Raises:
            BundleMismatchError: It is no adapter, or was made for another backbone.
            BundleError: It cannot be trusted, or cannot answer.
            DataError: There is one of this name already, or an argument is none of those above.
            DeviceError: The device's folder cannot be written.
        """
        file, called = path_of(path, "path"), None if name is None else adapter_name(name)
        self._learner().ready()
        task = load(self._installed, file, called, positive, trust)
        loaded = task.store.adapter
        if task.store.examples.counts()[0]:  # a repair has kept them
            self._learner(loaded).fit()
        _log.info("%s: adapter %s loaded", task.path, loaded)
        return loaded

    def delete_adapter(self, name: str) -> None:
        """Delete a task: its adapter, its examples and labels, and all that was made of them.

        What was deleted is overwritten on the disk; a text stays where another task has it.

        Args:
            name: The adapter's name.

        Raises:
            UnknownAdapterError: None of this name is loaded.
        """
        self._installed.unload(adapter_name(name))
        self._learners.pop(name, None)
        scrub(self._installed.path, self._installed.store)
        _log.info("%s: adapter %s deleted", self._installed.path, name)

    def predict(
        self, examples: Iterable[Example], *, adapter: str | None = None
    ) -> NDArray[np.float64]:
        """Probabilities of every label by the personal model.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.
            adapter: The task that is asked, by its adapter's name; None is the device's own.

        Returns:
            Shape (n, number of labels); rows add up to 1.

        Raises:
            DataError: If an example is not of the task's kind.
            UnknownAdapterError: No adapter of this name is loaded.
        """
        learner = self._learner(adapter)
        checked = check_examples(examples, self._kind(learner))
        return label_probabilities(learner.ask(checked, ActiveModel.logits))

    def decide(self, examples: Iterable[Example], *, adapter: str | None = None) -> list[str]:
        """The label of every example, by the user's own threshold.

        With two labels the threshold is the one that is expected to give the best F1 of
        ``positive``; where too little is known, and with more labels, the likeliest label is taken.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.
            adapter: See ``predict``.

        Raises:
            DataError: If an example is not of the task's kind.
            UnknownAdapterError: No adapter of this name is loaded.
        """
        learner = self._learner(adapter)
        checked = check_examples(examples, self._kind(learner))
        return learner.ask(checked, ActiveModel.decide)

    def learn(
        self,
        examples: Iterable[Example],
        labels: Iterable[str | int | None] | None = None,
        *,
        adapter: str | None = None,
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
            adapter: The task that they are of; see ``predict``.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
            UnknownAdapterError: No adapter of this name is loaded.
        """
        learner = self._learner(adapter)
        return learner.learn(*self._checked(learner, examples, labels))

    def remember(
        self,
        examples: Iterable[Example],
        labels: Iterable[str | int | None] | None = None,
        *,
        adapter: str | None = None,
    ) -> list[int]:
        """Keep examples with their labels, and do nothing else: they count after ``fit``.

        Args:
            examples: See ``learn``.
            labels: See ``learn``.
            adapter: See ``learn``.

        Returns:
            The examples' ids. They are on the disk. Where texts are not kept they are encoded.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
        """
        learner = self._learner(adapter)
        return learner.remember(*self._checked(learner, examples, labels))

    def fit(self, *, adapter: str | None = None) -> LearnReport:
        """Fit the personal model to all that is known, with the scales chosen anew.

        For the app's idle time. Texts that no backbone has seen are encoded where that is free
        (word vectors); a transformer sees them in ``refine``.

        Args:
            adapter: The task that is fitted; see ``predict``.
        """
        learner = self._learner(adapter)
        learner.ready()
        return learner.fit()

    def forget(
        self,
        ids: Iterable[int] | None = None,
        *,
        where: Callable[[StoredExample], object] | None = None,
        adapter: str | None = None,
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
            adapter: The task that they are of; those of others are passed over. A text stays
                where another task has it.

        Returns:
            How many were deleted.

        Raises:
            DataError: If an id is not a whole number, or not one of both arguments is given;
                nothing is deleted then.
        """
        learner = self._learner(adapter)
        chosen = ids_where(ids, where, lambda: self.examples(adapter=adapter))
        return learner.forget(chosen)

    def export_data(
        self,
        target: str | os.PathLike[str] | IO[str] | IO[bytes],
        *,
        user: str = "me",
        adapter: str | None = None,
    ) -> int:
        """Write all examples as JSON Lines, in the format that ``fala-replace --data`` reads.

        Every row has the split ``"train"``, and the times at which it and its label came. Labels
        are numbers where all of the device's spell numbers. An example with a blank text is left
        out: it is no row.

        Args:
            target: A file to make or replace, for its user alone (mode 0600); or a stream.
            user: The rows' user.
            adapter: The task whose examples are written; see ``predict``.

        Returns:
            How many rows were written.

        Raises:
            DataError: It cannot be written there, texts are not kept, or ``user`` is no name.
        """
        name = name_of(user, "user")
        if not self._installed.store.texts.kept:
            raise DataError("there is no text to write: this device was made to keep none")
        task = self._learner(adapter).task
        return write_rows(target, task.store.examples.all(), task.now.model.head.labels, name)

    def examples(
        self,
        *,
        labelled: bool | None = None,
        label: str | int | None = None,
        adapter: str | None = None,
    ) -> Iterator[StoredExample]:
        """What the device keeps, in the order in which it came.

        Args:
            labelled: Only those with a label, or only those without.
            label: Only those with this label.
            adapter: The task whose they are; see ``predict``.

        Returns:
            Examples with their ids, labels and times; see ``StoredExample``.
        """
        wanted = None if label is None else label_name(label)
        store = self._learner(adapter).task.store
        kept = store.texts.kept
        return (
            row if kept else replace_fields(row, example=None)
            for row in store.examples.all()
            if (labelled is None or (row.label is not None) == labelled)
            and (wanted is None or row.label == wanted)
        )

    def _learner(self, adapter: str | None = None) -> Learner:
        """What fits a task's model.

        Raises:
            UnknownAdapterError: No adapter of this name is loaded.
        """
        name = "" if adapter is None else adapter_name(adapter)
        if name:
            self._installed.store.of(name).slots.version()  # says so
        # Of two threads that come first together one wins, for both.
        return self._learners.setdefault(name, Learner(self._installed.task(name)))

    def _kind(self, learner: Learner) -> str:
        """What a task's examples are of."""
        own = learner.task is self._installed
        return self._task if own else learner.task.now.model.head.task

    def _checked(
        self,
        learner: Learner,
        examples: Iterable[Example],
        labels: Iterable[str | int | None] | None,
    ) -> tuple[list[Example], list[str | None]]:
        head = learner.task.now.model.head
        checked = check_examples(examples, head.task)
        given: Sequence[str | int | None] = [None] * len(checked)
        if labels is not None:
            given = listed(labels, "labels")
        if len(given) != len(checked):
            raise DataError(f"{len(checked)} examples, but {len(given)} labels")
        head.label_shares(given)
        return checked, [None if label is None else label_name(label) for label in given]
