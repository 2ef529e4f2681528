"""The public device: every method checks its arguments, calls, and returns."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace as replace_fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fala.arguments import (
    NewAdapters,
    check_adapter_name,
    check_budget,
    check_candidates,
    check_chosen,
    check_folder,
    check_function,
    check_items,
    check_labelled,
    check_limits,
    check_name,
    check_names,
    check_of_release,
    check_own_encoder,
    check_own_labels,
    check_probabilities,
    check_product,
    check_progress,
    check_readable,
    check_release,
    check_source,
    check_terms,
    check_threshold,
    check_top,
    check_unsigned,
    label_to_find,
    label_to_rank,
    positive_of_two,
)
from fala.backbones.external import Encoders, Functions
from fala.base.errors import DataError, DeviceError, UsageError, check_flag, needs, type_of
from fala.base.examples import CLASSIFICATION, Example, texts_of
from fala.base.files import check_path
from fala.bundle.signature import Trust
from fala.model.heads import Head, PersonalModel, Vectors
from fala.model.labels import HeadLabel, Label, OneLabel, as_array
from fala.personal.adapters import install_adapter
from fala.personal.compare import Accept, side_by_side, slot_before
from fala.personal.learn import Learner, fit_all
from fala.personal.preview import preview
from fala.personal.refine import refine, refined_report
from fala.personal.replace import Terms, replace, replaced_report
from fala.personal.run import Budget, Progress, Run
from fala.report import (
    MODELS,
    Forgotten,
    LearnReport,
    Preview,
    Report,
    RollbackReport,
    SideBySide,
    Status,
)
from fala.slots.creating import create, open_folder
from fala.slots.erasing import drop_copies, erase
from fala.slots.folder import Snapshot, Task
from fala.slots.installing import ReleaseFiles, release_files
from fala.slots.own import on_encoder, own_release, with_labels
from fala.slots.repair import RepairReport, examine, repair
from fala.slots.status import status
from fala.slots.switching import confirm, delete_adapter, opened, roll_back
from fala.store.encryption import Key, codec_of
from fala.store.examples import StoredExample
from fala.store.export import write_rows
from fala.store.texts import KeepText, new_key
from fala.updates import DEFAULT_PRODUCT
from fala.updates.limits import UpdateLimits

_log = logging.getLogger("fala")

_Device = TypeVar("_Device", bound="Device")


class Device:
    """A personal model on a device.

    Use ``Device.create`` once and ``Device.open`` afterwards; a device is a context manager.
    Threads may share an object, and processes a folder: every prediction is by one complete model,
    and no learned label is lost.

    Beside its own task, a device may have further ones (``load_adapter``). Each is an adapter in
    the same backbone, with its own examples and personal model, and is selected by its name.

    Examples:
        >>> device = fala.Device.create("reader", fala_sim.sample_release("glove"))
        >>> texts = ["buy my coins now", "you absolute clown", "a lovely match", "a good soup"]
        >>> device.learn(texts, [1, 1, 0, 0]).labelled
        4
        >>> device.predict(["buy my soup, clown", "a lovely soup"]).tolist()
        [1, 0]

        The examples of the methods continue with this device.
    """

    def __init__(self, own: Task | None = None, *args: object, **kwargs: object) -> None:
        if not isinstance(own, Task) or args or kwargs:
            raise UsageError(
                "fala.Device(...) does not open a device: create one with "
                "fala.Device.create(folder, release), and open it afterwards with "
                "fala.Device.open(folder)"
            )
        self._own, self._folder = own, own.folder
        self._learners = {"": Learner(own)}

    @classmethod
    def create(
        cls: type[_Device],
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str] | None = None,
        *,
        labels: Iterable[OneLabel] | None = None,
        tags: Iterable[OneLabel] | None = None,
        ratings: tuple[float, float] | None = None,
        encoder: Functions | None = None,
        dimension: int | None = None,
        positive: OneLabel | None = None,
        trust: Trust | None = None,
        key: Key | None = None,
        keep_text: KeepText = "always",
        releases: ReleaseFiles | None = None,
    ) -> _Device:
        """Create a device's folder from the app's own encoder and labels, or a vendor's release.

        An app that has an encoder needs no vendor. It passes the encoder, and one of ``labels``,
        ``tags`` and ``ratings``; everything is then learned from the user. A vendor's release has
        its own encoder and labels, and a head that other people have taught. Call this again to
        finish a creation that was killed.

        Args:
            path: A folder that does not exist, is empty, or was never finished.
            bundle: A vendor's release, whose file is copied. None for the app's own labels.
            labels: Two or more names or integers; an example has one of them. ``add_labels`` adds
                further ones.
            tags: One or more names or integers; an example has any number of them.
            ratings: The lowest and the highest number of a rating, for example ``(1, 5)``.
            encoder: The app's own encoder, a function that takes a list of n texts or keys and
                returns their embeddings, (n, d), as an array, a tensor or a sparse matrix. A
                mapping such as ``{"sentences 1": encode}`` gives it a name, which tells it from the
                next encoder; otherwise the name is its class or function, and its dimension:
                ``"SentenceTransformer 384"``. Without a release, the encoder is asked for a few
                short texts, twice, by which the next ``open`` recognizes it. A vendor's release of
                kind ``external`` also needs an encoder, which is checked on the vendor's probes.
                The encoder may be called in any of the app's threads, and in one of FaLA's; it may
                not use a device that asks it. A device without an encoder takes only ``fala.Item``.
            dimension: The length of an embedding, for items (with ``{"name": None}`` as the
                encoder, or none) or for an encoder of other data than texts. The encoder is then
                not asked, and recognized only by its name.
            positive: The label that ``rank`` orders by, and that ``predict(threshold=)`` is for. If
                None, and there are two labels, the conventional positive label is used (yes, 1,
                true), else the second one; with three or more labels, ``rank`` then needs
                ``label=``.
            trust: The vendor's key, which must have signed the release, and every later release and
                adapter that is passed to this device; see ``replace``. None requires no signature.
            key: A function that returns 32 bytes, under which texts, labels, embeddings, logits and
                weights are encrypted on the disk (see ``fala.store.encryption``). The app keeps the
                key in the system's key store. None does not encrypt. Encryption needs the extra
                ``encryption``.
            keep_text: ``"never"`` writes no text to the disk, but a keyed digest, embeddings and
                logits (see ``fala.store.texts``). A text is encoded when it is learned, and cannot
                be encoded again. So a replacement carries over only what a bridge maps, ``refine``
                encodes nothing, a rollback does not count newer examples, and a release's n-gram
                features cannot be fitted. The choice holds for the device's life.
            releases: A ``fala.Releases``, where the release is kept once for many devices. None
                keeps a copy in the device's folder.

        Raises:
            EncoderError: If the encoder is not the release's, failed, or returns other embeddings
                for the same texts.
            BundleError: If the release cannot be trusted.
            BundleMismatchError: If the release is a backbone without a head.
            MissingExtraError: If a library that the release needs is missing, or cannot be loaded.
            DataError: If an argument cannot be used.
            DeviceError: If the folder is in use, or cannot be written.

        Examples:
            >>> with fala.Device.create("other", fala_sim.sample_release("glove")) as other:
            ...     print(other.task, other.labels)
            classification (0, 1)

            Without a release:

            >>> def encoder(texts):
            ...     return [[len(text), text.count("!"), text.count("e")] for text in texts]
            >>> with fala.Device.create("own", labels=["fine", "rude"], encoder=encoder) as own:
            ...     print(own.learn(["Hello there", "Go away!!"], ["fine", "rude"]).labelled)
            2
        """
        own = check_own_labels(bundle, labels, tags, ratings)
        folder, shared = check_folder(path), release_files(releases)
        codec, text_key = codec_of(key), new_key(keep_text)
        source: contextlib.AbstractContextManager[Path]
        if own is not None:
            check_unsigned(trust)
            asked = check_own_encoder(encoder, dimension)
            source = own_release(asked, CLASSIFICATION, *own, ngrams=not text_key)
            encoders = Encoders({asked.name: asked.function})
        else:
            check_of_release(dimension=dimension)
            source, encoders = contextlib.nullcontext(check_release(bundle)), Encoders(encoder)
        with source as file:
            opened = create(
                folder, file, positive=positive, trust=trust, codec=codec, text_key=text_key,
                encoders=encoders, releases=shared,
            )  # fmt: skip
        _log.info("%s: created with %s", opened.folder.path, opened.held().release.name)
        return cls(opened)

    @classmethod
    def open(
        cls: type[_Device],
        path: str | os.PathLike[str],
        *,
        key: Key | None = None,
        encoder: Functions | None = None,
        releases: ReleaseFiles | None = None,
    ) -> _Device:
        """Open a device's folder.

        Args:
            path: The folder.
            key: A function that returns the 32 bytes of the store's key; None for a store that is
                not encrypted.
            encoder: The app's own encoder, or several by their names. An encoder is checked on the
                release's probes at its first use.
            releases: A ``fala.Releases``. A device that has a copy of its release shares it from
                now on. With None, a device that shares its release can also be opened, but a later
                replacement copies.

        Raises:
            DeviceError: If the folder is missing or damaged, or the key is not the store's. Nothing
                is changed then.
            BundleError: If the installed release has changed.

        Examples:
            >>> device.close()
            >>> with fala.Device.open("reader") as device:
            ...     print(sum(1 for _ in device.examples()))
            4
        """
        encoders, shared = Encoders(encoder), release_files(releases)
        return cls(open_folder(check_folder(path), codec_of(key), encoders, shared))

    @classmethod
    def examine(cls, path: str | os.PathLike[str], *, key: Key | None = None) -> RepairReport:
        """Check a device's folder without changing anything.

        Args:
            path: The folder.
            key: A function that returns the 32 bytes of the store's key; None for a store that is
                not encrypted.

        Raises:
            DeviceError: If the folder is missing, cannot be read (permissions, a full disk), or has
                another version or key.

        Examples:
            >>> fala.Device.examine("reader").whole
            True
        """
        return examine(check_folder(path), codec_of(key))

    @classmethod
    def repair(
        cls,
        path: str | os.PathLike[str],
        bundle: str | os.PathLike[str] | None = None,
        *,
        trust: Trust | None = None,
        key: Key | None = None,
        unsigned: bool = False,
    ) -> RepairReport:
        """Repair a damaged folder, with all of its examples that can be read.

        Everything that can be read of a damaged store is written to a new one: texts, labels,
        embeddings, settings, and which release is active. That release is fitted again. The
        previous release and the old logits are lost. If the active release's file cannot be read,
        the previous one takes its place. The damaged store stays in the folder under another name,
        until an example is forgotten. Close the device first, in every process.

        Args:
            path: The folder.
            bundle: A release to install if neither of the device's own is whole. It is audited and
                validated as by ``replace``, must not be older than a release that the device has
                had, and must be for the device's labels and kind of examples.
            trust: The key that must have signed that release; None takes the key of ``create``. If
                the store is so damaged that the key of ``create`` cannot be read, this key takes
                its place.
            key: A function that returns the 32 bytes of the store's key; None for a store that is
                not encrypted.
            unsigned: Whether the device was created without ``trust``, if the store no longer says
                so. A key that can be read stays.

        Raises:
            DeviceError: If the folder is missing, cannot be read or written, or has another version
                or key; or if it cannot be read which key must have signed its releases, and neither
                ``trust`` nor ``unsigned`` is given.
            DataError: If ``trust`` is not a key, or is given together with ``unsigned``.
            BundleError: If ``bundle`` cannot be trusted, or is for other labels or examples.

        Examples:
            >>> device.close()
            >>> fala.Device.repair("reader").actions  # nothing to repair
            ()
        """
        folder = check_folder(path)
        release = None if bundle is None else check_path(bundle, "bundle")
        if check_flag(unsigned, "unsigned") and trust is not None:
            raise DataError("unsigned=True says that no key signs releases; leave trust= out")
        report = repair(
            folder, codec_of(key), fit_all, path=release, trust=trust, unsigned=unsigned
        )
        _log.info("%s: %s", folder, "; ".join(report.actions) or "nothing to repair")
        return report

    def close(self) -> None:
        """Close the store. What was learned is already on the disk.

        Examples:
            >>> device.close()
        """
        self._folder.close()
        for learner in [*self._learners.values()]:
            learner.close()

    def __enter__(self: _Device) -> _Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled, because a device is an open file.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "a device cannot be copied or pickled: threads can share the object, and another "
            "process can open the folder with fala.Device.open"
        )

    def erase(self) -> None:
        """Delete all of the user's data and the device itself, which is then closed.

        Texts, labels, embeddings and weights are overwritten before their files are deleted. The
        folder is also deleted if it is then empty. Other processes that have the device open can no
        longer predict or write. Another call finishes an interrupted erasure, and so does ``open``,
        which then raises an error because the device was erased.

        Raises:
            DeviceError: If a file cannot be deleted; the others are deleted.

        Examples:
            >>> device.erase()
            >>> fala.Device.open("reader")
            Traceback (most recent call last):
            ...
            fala.base.errors.DeviceError: ...
        """
        for learner in [*self._learners.values()]:
            learner.close()
        erase(self._folder.path, self._folder.store)
        _log.info("%s: erased", self._folder.path)

    def rotate_key(self, key: Key) -> None:
        """Encrypt everything again under another key, or for the first time.

        This is one transaction, so if the process is killed, the device has either the old key or
        the new one. Records under the old key are overwritten, and a damaged store that ``repair``
        has set aside is deleted. Other processes have to open the device again.

        Args:
            key: A function that returns the new key; see ``create``.

        Raises:
            DataError: If the function does not return 32 bytes.
            DeviceError: If a record is damaged; nothing is changed then.
        """
        if key is None:
            raise DataError("rotate_key needs a key, a function that returns 32 bytes")
        with self._folder.store.turn():
            self._folder.store.rotate(codec_of(key))
            with self._folder.store.transaction():
                drop_copies(self._folder.path)

    def __repr__(self) -> str:
        try:
            snapshot = self._own.held()
        except DeviceError as error:
            return f"<Device {error}>"
        return (
            f"<Device {self._folder.path}: {snapshot.head.task} on {snapshot.release.name} with "
            f"{MODELS[snapshot.active.decision]}>"
        )

    def status(self, *, adapter: str | None = None) -> Status:
        """Read the state of the device: its release, its model, its examples, and its trial.

        This changes nothing: a release on trial is checked only when the device uses it.

        Args:
            adapter: The task; see ``predict``.

        Raises:
            BundleError: If the active release is damaged. If it is on trial, the next prediction
                falls back to the previous one.
            DeviceError: If the store is damaged, or the device is closed.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> status = device.status()
            >>> status.release, status.decision, status.labelled
            ('glove', 'personal', 4)
            >>> print(status)
            glove is active, with the personal model. The device keeps 4 examples, 4 with a label, \
            and 0 that wait for refine.
        """
        return status(self._learner(adapter).task)

    @property
    def task(self) -> str:
        """``"classification"`` or ``"matching"``."""
        return self._own.held().head.task

    @property
    def labels(self) -> tuple[HeadLabel, ...]:
        """The labels, in the order of the columns of ``predict_proba``.

        All labels are integers, or all are strings, as the release has them; a rating has its name.
        Replacements keep the order; labels that a release adds come last.

        Like ``task``, ``positive`` and ``model``, the labels are in memory, as this object's last
        operation found them, and so are the columns of its last ``predict_proba``. ``status`` reads
        what another process has replaced since.
        """
        return self._own.held().head.labels

    @property
    def positive(self) -> HeadLabel | None:
        """The label that ``rank`` orders by, and that ``predict(threshold=)`` is for.

        This is the label of ``create(positive=)``, also after replacements and rollbacks. It is
        None if there are three labels or more, and none was chosen.

        Raises:
            DataError: If the device has tags, or a rating.
        """
        snapshot = self._own.held()
        snapshot.head.check_exclusive("positive")
        return snapshot.positive

    @property
    def model(self) -> PersonalModel:
        """The active personal model."""
        return self._own.held().model

    def predict(
        self,
        examples: Iterable[Example],
        *,
        threshold: float | None = None,
        adapter: str | None = None,
    ) -> NDArray[Any]:
        """Return the most probable label of every example, or its tags, or its rating.

        The tags of an example are those whose probability is above 1/2. A rating is the mean.

        Args:
            examples: The n texts for a classifier, or ``Match`` objects for a matcher.
            threshold: For two labels, the probability, from 0 to 1, above which ``positive`` is
                returned instead of the other label. If None, 1/2 is used, which makes the fewest
                errors; a lower threshold misses fewer positive examples, and a higher one raises
                fewer false alarms.
            adapter: The task, by its adapter's name; None is the device's own task.

        Returns:
            The decisions, shape (n,): labels of the type of ``labels``, as int64 or strings;
            frozensets of them for tags; values for a rating.

        Raises:
            DataError: If an example is not of the task's kind, or if ``threshold`` is not a
                probability, or is passed for other than two labels.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> device.predict(["buy my soup, clown"])
            array([1])
            >>> device.predict(["buy my soup, clown"], threshold=0.99)
            array([0])
        """
        if threshold is None:
            head, z = self._answer(examples, self._snapshot(adapter))
            return head.link.predict(z, head.labels)
        above, snapshot = check_threshold(threshold), self._snapshot(adapter)
        positive = positive_of_two(snapshot)
        head, z = self._answer(examples, snapshot)
        column = head.labels.index(positive)
        chosen = np.where(head.link.values(z)[:, column] > above, column, 1 - column)
        return as_array(head.labels)[chosen]

    def predict_proba(
        self, examples: Iterable[Example], *, adapter: str | None = None
    ) -> NDArray[np.float64]:
        """Return the personal model's probabilities of every label or tag.

        Args:
            examples: The n texts for a classifier, or ``Match`` objects for a matcher.
            adapter: The task, by its adapter's name; None is the device's own task.

        Returns:
            The probabilities, shape (n, number of labels), in the order of ``labels``; the sum of
            each row is 1, except for tags.

        Raises:
            DataError: If an example is not of the task's kind.
            UsageError: If the device has a rating, which has no probabilities.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> device.predict_proba(["a lovely soup"]).round(1)
            array([[0.9, 0.1]])
        """
        snapshot = self._snapshot(adapter)
        check_probabilities(snapshot.head)
        head, z = self._answer(examples, snapshot)
        return head.link.values(z)

    def rank(
        self,
        candidates: Iterable[str],
        *,
        history: Iterable[str] = (),
        top: int | None = None,
        label: OneLabel | None = None,
        adapter: str | None = None,
    ) -> list[tuple[str, float]]:
        """Order candidates by a label's probability or a rating: news to show, films to offer.

        Args:
            candidates: The n texts, or ``Item`` objects.
            history: What the user opened, oldest first; only for a matcher.
            top: The most candidates to return; None returns all.
            label: The label or tag whose probability ranks; None takes ``positive``.
            adapter: The task, by its adapter's name; None is the device's own task.

        Returns:
            The candidates with their probabilities or values, the best first; equal ones keep the
            given order.

        Raises:
            DataError: If a candidate is not a text, if ``top`` or ``label`` is invalid, or if
                ``label`` is missing and no label is positive.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> news = ["buy my coins", "a lovely film", "you clown"]
            >>> [text for text, _ in device.rank(news, label=0, top=2)]
            ['a lovely film', 'buy my coins']
        """
        snapshot = self._snapshot(adapter)
        head = snapshot.head
        examples = check_candidates(candidates, history, snapshot)
        most = check_top(top)
        column = label_to_rank(label, head, snapshot.positive)
        if not examples:
            return []
        _, z = self._logits(examples, snapshot)
        values = head.link.values(z)[:, column]
        best = np.argsort(-head.link.order(z)[:, column], kind="stable")[:most]
        return [(texts_of(examples[row])[0], float(values[row])) for row in best]

    def learn(
        self,
        examples: Iterable[Example],
        labels: Iterable[Label] | None = None,
        *,
        progress: Progress | None = None,
        adapter: str | None = None,
    ) -> LearnReport:
        """Keep examples with their labels, and fit the personal model to all examples.

        The examples are on the disk before anything is encoded. A few new examples are added to a
        fit of many at the fit's scales, in milliseconds. Probabilities are then within .01 on
        average of those of ``fit``, if ``fit`` keeps the scales and chooses the same model. Call
        ``fit`` in idle time: it fits everything again, and repeats the model selection.

        Args:
            examples: The n texts, or ``Match`` objects. A stored example gets the new label.
            labels: The n labels, in any sequence. Any equal value denotes the same label: 1, 1.0,
                NumPy's 1, True and ``"1"``. A rating takes numbers, and tags take sets of labels.
                None or NaN is for an example without a new label, which keeps an earlier one (see
                ``unlabel``); None in place of the sequence is for all. Examples without a label are
                kept for the next replacement.
            progress: A function that is called with ``"forward"``, the number of texts encoded, and
                their total. Embeddings are kept as they arrive. If it returns False, no more texts
                are encoded, and the personal model is fitted to those that are; ``refine`` encodes
                the others.
            adapter: The task of the examples; see ``predict``.

        Raises:
            DataError: If an example is blank or not of the task's kind, or if a label is not one of
                the model's; nothing is kept then.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> report = device.learn(["see you at the match"], [0])
            >>> report.examples, report.labelled
            (5, 5)
        """
        run, learner = Run(progress=check_progress(progress)), self._learner(adapter)
        snapshot = self._snapshot(adapter)
        checked = check_labelled(snapshot, examples, labels)
        with run:
            return learner.learn(snapshot, *checked, run)

    def remember(
        self,
        examples: Iterable[Example],
        labels: Iterable[Label] | None = None,
        *,
        adapter: str | None = None,
    ) -> list[int]:
        """Keep examples with their labels, without a fit; the next ``fit`` includes them.

        Args:
            examples: The n texts, or ``Match`` objects.
            labels: The n labels, as ``learn`` takes them; None keeps all examples without labels.
            adapter: The task of the examples, by its adapter's name; None is the device's own task.

        Returns:
            The examples' ids. The examples are on the disk. If texts are not kept, they are already
            encoded.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.

        Examples:
            >>> device.remember(["see you at the match", "no label yet"], [0, None])
            [5, 6]
            >>> device.fit().labelled
            5
        """
        learner, snapshot = self._learner(adapter), self._snapshot(adapter)
        return learner.remember(snapshot, *check_labelled(snapshot, examples, labels))

    def fit(self, *examples: object, adapter: str | None = None) -> LearnReport:
        """Fit the personal model to all examples, at newly chosen scales.

        Call this in the app's idle time. Pending texts are encoded if that is free (for a table of
        vectors); with a transformer, ``refine`` encodes them.

        Args:
            examples: Always empty, because examples are passed to ``learn``.
            adapter: The task that is fitted; see ``predict``.

        Raises:
            UsageError: If examples are passed.

        Examples:
            >>> device.fit().fitted
            4
        """
        if examples:
            raise UsageError(
                "fit takes no examples, because it fits to all that the device keeps; call "
                "learn(texts, labels) to keep examples and fit to them"
            )
        learner = self._learner(adapter)
        learner.ready()
        return learner.fit()

    def forget(
        self,
        examples: Iterable[int | StoredExample | Example] | None = None,
        *,
        where: Callable[[StoredExample], object] | None = None,
        adapter: str | None = None,
    ) -> Forgotten:
        """Delete examples, so that the device is as if it had never had them.

        Their texts, embeddings and logits are deleted, and overwritten on the disk. The active
        model is fitted to the rest. The previous model is fitted to the rest of its own training
        examples, and its old logits are written again. Probabilities are then within 1e-6 of those
        of a device that never had the examples, with the same texts encoded and the same fits (see
        ``fit``). Old logits of a model that is gone (the one before the previous model) are deleted
        if it was fitted to one of the examples. All of this is one transaction. A damaged file that
        ``repair`` has set aside is deleted.

        The store's file is then written again, so that no byte of the examples is left in the
        folder. This waits five seconds for other processes that are reading. If it cannot be done,
        ``Forgotten.overwritten`` is False. It is tried again at every change of the device, when
        the device is closed or opened, and by ``forget([])``, which returns whether it is done.

        Args:
            examples: The n texts, ``Match`` or ``Item`` objects; or their ids, or what ``examples``
                returns. Unknown ones are ignored.
            where: A function of a ``StoredExample``, in place of examples; those for which it
                returns true are deleted.
            adapter: The task of the examples; examples of other tasks are ignored. A text stays if
                another task has it.

        Returns:
            The number of deleted examples, and whether their bytes are overwritten.

        Raises:
            DataError: If an example is none of these, or if not exactly one of the two arguments is
                given; nothing is deleted then.

        Examples:
            >>> device.forget(where=lambda row: "clown" in row.example)
            Forgotten(count=1, overwritten=True)
        """
        if (examples is None) == (where is None):
            raise DataError("pass either examples, or where=, a function of an example")
        if examples is not None:
            return self._learner(adapter).forget(self._ids(examples, adapter))
        chosen = check_function(where, "where", "example")
        rows = self.examples(adapter=adapter)
        return self._learner(adapter).forget([row.id for row in rows if chosen(row)])

    def unlabel(
        self,
        examples: Iterable[int | StoredExample | Example],
        *,
        adapter: str | None = None,
    ) -> LearnReport:
        """Withdraw the labels of examples, so that the device is as if they had never had one.

        The examples are kept, for the next replacement or another label. Their labels, including
        earlier ones, and the effects of these are deleted and overwritten on the disk, as exactly
        as by ``forget``, which also deletes the examples. The active and the previous model are
        fitted to the other labels, and old logits are written again. If some bytes cannot be
        overwritten now, ``forget([])`` tries again, and returns whether it is done.

        Args:
            examples: The n texts, ``Match`` or ``Item`` objects, or their ids. An example that the
                device does not have, or that has no label, is ignored.
            adapter: The task of the examples, by its adapter's name; None is the device's own task.

        Returns:
            The result of the fit, as from ``learn``.

        Raises:
            DataError: If an example is not of the task's kind.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> device.unlabel(["you absolute clown"]).labelled
            3
            >>> [row.label for row in device.examples()]
            [1, None, 0, 0]
        """
        return self._learner(adapter).unlabel(self._ids(examples, adapter))

    def _ids(
        self, examples: Iterable[int | StoredExample | Example], adapter: str | None
    ) -> list[int]:
        """Return the ids of examples that an app has chosen."""
        learner = self._learner(adapter)
        ids, others = check_chosen(examples, learner.task.held().head.task)
        return [*ids, *learner.ids(others)]

    def examples(
        self,
        *,
        labelled: bool | None = None,
        label: Label = None,
        adapter: str | None = None,
    ) -> Iterator[StoredExample]:
        """Return the examples that the device keeps, in the order in which they were added.

        Args:
            labelled: True returns only examples with a label, False only those without.
            label: Returns only examples with this label, or with exactly this set of tags.
            adapter: The task of the examples; see ``predict``.

        Returns:
            The examples with their ids, labels and times; see ``StoredExample``.

        Raises:
            DataError: If ``labelled`` is none of its values, or ``label`` is not one of the
                model's.

        Examples:
            >>> [row.example for row in device.examples(label=1)]
            ['buy my coins now', 'you absolute clown']
        """
        if not isinstance(labelled, bool | None):
            raise DataError(f"labelled must be True, False or None, not {type_of(labelled)}")
        head = self._snapshot(adapter).head
        stored = label_to_find(label, head)
        store = self._learner(adapter).store
        with_text = store.texts.kept()
        return (
            replace_fields(
                row,
                example=row.example if with_text else None,
                label=None if text is None else head.link.given_back(text, head.labels),
            )
            for row, text in ((row, row.stored_label) for row in store.examples.all())
            if (labelled is None or (text is not None) == labelled)
            and (stored is None or text == stored)
        )

    def export_data(
        self,
        target: str | os.PathLike[str] | IO[str] | IO[bytes],
        *,
        user: str = "me",
        adapter: str | None = None,
    ) -> int:
        """Write all examples as JSON Lines, in the format that ``fala-replace --data`` reads.

        Every row has the split ``"train"``, and the times of the example and of its label. Labels
        are JSON integers or strings, as the device's labels are; ratings are numbers, and sets of
        tags are lists.

        Args:
            target: A file to create or replace, which only its user may read (mode 0600); or a
                stream.
            user: The name of the user in the rows.
            adapter: The task whose examples are written; see ``predict``.

        Returns:
            The number of rows that were written.

        Raises:
            DataError: If the target cannot be written, texts are not kept, or ``user`` is not a
                name.

        Examples:
            >>> device.export_data("mine.jsonl")
            4
        """
        name = check_name(user, "user")
        if not self._folder.store.texts.kept():
            raise DataError("there is no text to write, because this device does not store texts")
        return write_rows(target, [*self.examples(adapter=adapter)], name)

    def preview(
        self,
        bundle: str | os.PathLike[str] | None = None,
        budget: Budget | None = None,
        *,
        encoder: Functions | None = None,
        dimension: int | None = None,
        trust: Trust | None = None,
    ) -> Preview:
        """Estimate a release's worth to this user, and its cost, without installing anything.

        The replacement is prepared up to its commit, and discarded. Over a bridge, or with n-gram
        features, that takes no forward pass but for a few probes; without either, it takes the
        budget's passes. The active model is fitted once more for the comparison.

        Args:
            bundle: The new release's file; None for the app's own ``encoder``.
            budget: The limits of the replacement's cost; None is ``Budget()``.
            encoder: The app's next encoder, in place of a release.
            dimension: The length of the encoder's embeddings.
            trust: The vendor's public key; None takes the key of ``create``, if there was one.

        Returns:
            The losses of the old personal model, the new model alone and the carried model on the
            same labelled examples, each left out, and what the replacement would cost.

        Raises:
            BundleError: If ``replace`` would raise it.
            DataError: If an argument cannot be used.

        Examples:
            >>> preview = device.preview(fala_sim.sample_release("bert"))
            >>> preview.new, preview.decision, preview.comparison.worse  # None: inconclusive
            ('bert', 'personal', None)
        """
        run, origin = Run(check_budget(budget)), self._folder.key(trust)
        with self._source(bundle, encoder, dimension, trust) as path:
            return preview(self._own, path, run, origin)

    def replace(
        self,
        bundle: str | os.PathLike[str] | None = None,
        budget: Budget | None = None,
        *,
        encoder: Functions | None = None,
        dimension: int | None = None,
        accept: Accept = "always",
        trust: Trust | None = None,
        allow_older: bool = False,
        progress: Progress | None = None,
        adapters: NewAdapters = (),
    ) -> Report:
        """Replace the backbone, and carry the personal models of all tasks over.

        If the release has a bridge from the old backbone, or n-gram features, a new personal model
        is installed before any forward pass, and is then refined within the budget, as ``refine``
        does. Otherwise the first texts of the budget are representatives, chosen by correlation
        clustering on the old embeddings. Before it is installed, the new release is run on
        edge-case texts in a separate process, and on the device's own texts here. The old model
        stays for ``rollback``, even if an app that was killed passes the active release again.
        After any failure the active model is the old one, or the new one as first fitted.

        The new release is on trial until ``confirm``, or until it has predicted 100 examples. A
        rollback also ends the trial, and a second rollback starts a new one. On trial, every
        process runs the release on a few probes before its first prediction. If the release fails
        on a probe, or on a text of a refinement, or if three consecutive processes end there, the
        device falls back to the previous model, fits it to newer labels, and reports why
        (``Status.fell_back``, until the next replacement or rollback; also a warning in the log).
        There is no rollback to the failed release. Predictions are counted in memory, and written
        when they are enough or at ``close``. Those of a process that is killed do not count, and
        the trial lasts longer. Replacing a release on trial confirms it, since it becomes the
        previous one, so use it first, or roll back.

        Args:
            bundle: The new release's file, which is copied. It must be for the same task and have
                this device's labels, in any order; it may have more. None for the app's own
                ``encoder``.
            budget: The limits of the cost; None is ``Budget()``.
            encoder: The app's next encoder, in place of a release; see ``create``. Its name must
                differ from the old encoder's name. The device keeps its labels, and the old
                embeddings stay usable without the old encoder. From now on ``open`` takes this
                encoder, or both by their names if a rollback may follow.
            dimension: The length of the encoder's embeddings. Without a function nothing is
                encoded, so pass the items again with their new vectors to ``learn``.
            accept: ``"better-than-old"`` refuses a release whose first personal model is worse for
                this user than the active model, beyond noise; ``"better-than-vendor"`` refuses one
                if it is worse than the new model alone. Labels of texts that both backbones have
                encoded decide (``Comparison``); up to 20 forward passes of the budget are first
                spent on random texts for this. ``"better-than-old"`` is ``Comparison.worse``, which
                also weighs whether the two vendor models agree. ``"always"`` refuses nothing;
                ``Report.worse`` reports it in any case, and ``preview`` beforehand.
            trust: The vendor's Ed25519 public key, as its 32 bytes, as PEM, or as a file of either.
                The release must have its signature beside it, as ``fala-export sign`` writes it.
                None takes the key of ``create``, if there was one.
            allow_older: True accepts a release whose version is below one that this device has had,
                or that is of another product. A release without a version is always accepted.
            progress: A function that is called with a stage's name, the units done and their total.
                If it returns False, the work ends: before the installation with ``CancelledError``
                and nothing changed, afterwards with the report. The function may use the device. If
                the device learns meanwhile, the first model is fitted once more, without calling
                the function.
            adapters: The vendor's adapters for the new backbone, one for every loaded adapter:
                files, which have the names of the tasks, or files by the names of the tasks. All
                tasks are replaced in one transaction, and rolled back together. A task whose
                adapter already fits the new backbone needs none. The budget is for all tasks
                together: a text that two tasks have in the same adapter is encoded once.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: If the release cannot be trusted, or is not for this task and these labels.
            OlderReleaseError: If the release is older, or of another product, without
                ``allow_older``.
            DataError: If an argument cannot be used.
            MissingExtraError: If the release, or ``trust``, needs a library that is missing or
                broken.
            MissingAdapterError: If a loaded adapter has no successor; delete it first, or pass one.
            UnknownAdapterError: If an adapter is passed that has no predecessor.
            WorseModelError: If the new model would be worse, and ``accept`` refuses it; nothing
                changed.
            CancelledError: If ``progress`` returned False.
            DeviceError: If the device's folder cannot be written.
            DeviceChangedError: If another release was installed meanwhile.

        Examples:
            >>> bert = fala_sim.sample_release("bert")
            >>> report = device.replace(bert, fala.Budget(forward_passes=0))
            >>> report.old, report.new, report.decision, report.forward_passes
            ('glove', 'bert', 'personal', 0)
            >>> print(report)
            The personal model was carried over from glove to bert. On 4 labelled examples, each \
            left out, ...
            >>> device.status().on_trial, device.status().can_roll_back
            (True, True)
        """
        origin = self._folder.key(trust)
        terms = check_terms(accept, origin, adapters, allow_older=allow_older)
        functions = encoder.values() if isinstance(encoder, Mapping) else [encoder]
        if budget is None and bundle is None and not any(functions):
            budget = Budget(forward_passes=0)
        run = Run(check_budget(budget), check_progress(progress))
        with self._source(bundle, encoder, dimension, trust) as path:
            return self._replace(path, terms, run)

    def _source(
        self,
        bundle: str | os.PathLike[str] | None,
        encoder: Functions | None,
        dimension: int | None,
        trust: Trust | None,
    ) -> contextlib.AbstractContextManager[Path]:
        """Hold the file of a vendor's release, or of one made for the app's own encoder."""
        asked = check_source(bundle, encoder, dimension, trust)
        if asked is None:
            return contextlib.nullcontext(check_release(bundle))
        return on_encoder(self._own, asked, named=isinstance(encoder, Mapping))

    def _replace(self, path: Path, terms: Terms, run: Run) -> Report:
        self._learner().ready()
        with run:
            replaced = replace(self._own, path, run, terms)
        report = replaced_report(replaced, run)
        _log.info("%s -> %s: %s", report.old, report.new, report)
        return report

    def update(
        self,
        url: str,
        *,
        root: str | bytes | os.PathLike[str],
        product: str | None = None,
        limits: UpdateLimits | None = None,
        budget: Budget | None = None,
        accept: Accept = "always",
        progress: Progress | None = None,
        adapters: NewAdapters = (),
    ) -> Report | None:
        """Install the newest release of the vendor's repository, if this device never had it.

        The repository follows The Update Framework (``fala-export publish`` keeps one). Metadata
        are rejected if the keys of the trusted root did not sign them, if they have expired, or if
        they are older than those that this device has seen. A release that the user rolled back is
        skipped until the vendor publishes another one. An interrupted download resumes at the next
        call. The release is then installed as by ``replace``.

        This method needs the extra ``ota``.

        Args:
            url: The repository's address, with http or https.
            root: The trusted root that the app pins: a ``root.json`` of the repository, as bytes
                or as a file.
            product: The product whose releases are installed; None takes the installed release's
                product.
            limits: The limits of the download's time and size; None is ``UpdateLimits()``.
            budget: The limits of the replacement's cost; None is ``Budget()``.
            accept: Which models may be installed, as in ``replace``.
            progress: A function that is called as in ``replace``; during ``"download"`` it counts
                bytes.
            adapters: The vendor's adapters for the new backbone, one for every loaded adapter.

        Returns:
            The report of ``replace``; None if no release is newer.

        Raises:
            DownloadError: If the repository cannot be reached, sends too much or too slowly, or
                breaks off.
            UntrustedUpdateError: If the vendor did not sign what the repository sends. Subclasses
                are for metadata that have expired, or are older than those that were seen.
            UpdateError: If the repository has no such product, or another update is under way.
            DataError: If ``root`` is not a repository's root, or another argument cannot be used.
            MissingExtraError: If the extra is not installed.
            FalaError: If ``replace`` raises it.
        """
        with needs("signed updates need an extra", extra="ota"):
            from fala.updates.client import Source, newer_release, repository_url, trusted_root
        budget = check_budget(budget)
        download = check_limits(limits, UpdateLimits, "limits must be a fala.UpdateLimits")
        active = opened(self._own).release.bundle.manifest
        product_name = check_product(product) or active.product or DEFAULT_PRODUCT
        # Arguments are checked before any download. A product that is passed by name may be another
        # one.
        older = product_name != active.product
        terms = check_terms(accept, "repository", adapters, allow_older=older)
        run, settings = Run(budget, check_progress(progress)), self._folder.store.settings
        source = Source(
            repository_url(url), trusted_root(root), product_name,
            lambda: settings.admission().versions.get(product_name),
        )  # fmt: skip
        with run, newer_release(self._folder.path, source, download, run.check) as release:
            if release is None:
                _log.info("%s: no update: %s", self._folder.path, self.status())
                return None
            return self._replace(release, terms, Run(budget, progress))

    def refine(
        self,
        budget: Budget | None = None,
        *,
        progress: Progress | None = None,
        adapter: str | None = None,
    ) -> Report:
        """Refine the last replacement: encode more of the user's texts, and fit again.

        Call this in the app's idle time. Every batch of texts is committed with the model fitted to
        it, so after an interruption or a kill the next call resumes there. The refinement ends
        early if a batch changed next to nothing, all texts are encoded, or another model has become
        active meanwhile.

        Args:
            budget: Further forward passes and seconds; None is ``Budget()``.
            progress: A function that is called with a stage's name, the units done and their total;
                if it returns False, the work ends there.
            adapter: The task whose texts are encoded; see ``predict``.

        Returns:
            What was done, in which ``old`` and ``new`` are the same backbone.

        Raises:
            DataError: If an argument cannot be used.
            DeviceError: If the device's folder cannot be written.

        Examples:
            >>> bert = fala_sim.sample_release("bert")
            >>> device.replace(bert, fala.Budget(forward_passes=0)).forward_passes
            0
            >>> device.refine(fala.Budget(forward_passes=3)).forward_passes
            3
        """
        run = Run(check_budget(budget), check_progress(progress))
        learner = self._learner(adapter)
        learner.ready()
        with run:
            refined = refine(learner.task, run, run.budget.passes(bridged=True))
        return refined_report(learner.task, refined, run)

    def confirm(self) -> None:
        """End the trial of the active release; see ``replace``.

        This is for an app with its own checks. It does nothing if no release is on trial.

        Raises:
            DeviceError: If the device's folder cannot be written.

        Examples:
            >>> _ = device.replace(fala_sim.sample_release("bert"), fala.Budget(forward_passes=0))
            >>> device.confirm()
            >>> device.status().on_trial
            False
        """
        confirm(self._folder)

    def add_labels(self, labels: Iterable[OneLabel]) -> LearnReport:
        """Add labels or tags to a device of the app's own encoder, and fit to all of them.

        Nothing is encoded again. Examples that were labelled before an added tag existed count as
        examples without it, until they are labelled again. A rollback then goes back to the model
        without the added labels instead of an earlier encoder, and keeps the examples that have one
        of them.

        Args:
            labels: Strings or integers, like those of ``labels``; those that the device has are
                ignored.

        Returns:
            The result of the fit, as from ``learn``.

        Raises:
            DataError: If a value cannot be a label.
            UsageError: If the labels come with a vendor's release, or the device has a rating.
            DeviceError: If the device's folder cannot be written.

        Examples:
            >>> def encoder(texts):
            ...     return [[len(text), text.count("!")] for text in texts]
            >>> with fala.Device.create("own", labels=["fine", "rude"], encoder=encoder) as own:
            ...     _ = own.learn(["Hello there", "Go away!!"], ["fine", "rude"])
            ...     print(own.add_labels(["spam"]).labelled, own.labels)
            2 ('fine', 'rude', 'spam')
        """
        learner = self._learner()
        learner.ready()
        own = with_labels(self._own, check_names(labels, "labels"))
        if own is None:
            return learner.fit()
        terms = check_terms("always", self._folder.key(), (), allow_older=True)
        run = Run(Budget(forward_passes=0))
        with own as path, run:
            replaced = replace(self._own, path, run, terms)
        confirm(self._folder)  # confirmed because the encoder has been in use
        return learner.report(self._snapshot(None), replaced.first.model)

    def rollback(self) -> RollbackReport:
        """Make the model before the last replacement active; a second call undoes the first.

        All tasks are rolled back together, and fitted to newer labels if their backbones have
        encoded the texts.

        Returns:
            What was done, for the device's own task.

        Raises:
            DeviceError: If no previous model is kept, or an adapter was loaded since.
            BundleError: If the previous release is damaged; the device then stays as it is.

        Examples:
            >>> _ = device.replace(fala_sim.sample_release("bert"), fala.Budget(forward_passes=0))
            >>> print(device.rollback())
            The device went from bert back to glove. The personal model is active, as it was. \
            Labels stay: 4 of 4 examples have one.
        """
        old = opened(self._own).release.name
        roll_back(self._folder)
        to_fit = [
            task for task in (self._own, *self._own.adapted())
            if opened(task).state.to_fit
        ]  # fmt: skip
        for task in to_fit:
            self._learner(task.name or None).fit()
        now = self.status()
        report = RollbackReport(
            old, now.release, now.decision, now.examples, now.labelled,
            refitted=self._own in to_fit, on_trial=now.on_trial,
        )  # fmt: skip
        _log.info("%s: %s", self._folder.path, report)
        return report

    def compare(self, examples: Iterable[Example], *, adapter: str | None = None) -> SideBySide:
        """Return the decisions of the previous model and of the active one on the same examples.

        This is for an app that shows what a release on trial changes, before ``confirm`` or
        ``rollback``. The previous model is as it was when it was replaced, without later labels.
        The examples are not kept, and do not count as predictions of the trial.

        Args:
            examples: The n texts, or ``Match`` objects.
            adapter: The task, by its adapter's name; None is the device's own task.

        Raises:
            DataError: If an example is not of the task's kind.
            DeviceError: If no previous model is kept, or it is damaged.
            EncoderError: If the app's own encoder of one of the two releases was not passed.
            UnknownAdapterError: If no adapter of this name is loaded.

        Examples:
            >>> _ = device.replace(fala_sim.sample_release("bert"), fala.Budget(forward_passes=0))
            >>> both = device.compare(["buy my soup, clown", "a lovely soup"])
            >>> both.old, both.new, both.before.tolist(), both.now.tolist(), both.differ.tolist()
            ('glove', 'bert', [1, 0], [1, 0], [False, False])
        """
        self._learner(adapter).ready()
        snapshot = self._snapshot(adapter)
        checked = check_readable(examples, snapshot)
        previous = slot_before(snapshot)
        check_items(checked, previous.release)
        return side_by_side(snapshot, previous, checked)

    def load_adapter(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        positive: OneLabel | None = None,
        trust: Trust | None = None,
    ) -> str:
        """Load a further task: an adapter in the installed release's backbone, with its head.

        The task has its own examples, labels and personal model, so the other tasks' predictions
        stay the same, to the bit. Methods select the task by ``adapter=``. A release on trial is
        confirmed. The adapter has to be deleted before a rollback to the previous release, which it
        does not fit.

        Args:
            path: The adapter's file, as ``fala-export adapter`` writes it; the file is copied.
            name: The task's name; None takes the bundle's name.
            positive: The label that ``rank`` orders by, as in ``create``.
            trust: The vendor's public key; None takes the key of ``create``, if there was one.

        Returns:
            The task's name.

        Raises:
            BundleMismatchError: If the bundle is not an adapter, or was made for another backbone.
            BundleError: If the adapter cannot be trusted, or cannot predict.
            DataError: If an adapter of this name is loaded already, or an argument cannot be used.
            DeviceError: If the device's folder cannot be written.
        """
        file = check_path(path, "path")
        name = None if name is None else check_adapter_name(name)
        self._learner().ready()
        name = install_adapter(self._own, file, name, positive, self._folder.key(trust))
        learner = self._learner(name)
        if learner.store.examples.counts()[0]:  # a repair has kept examples of this task
            learner.fit()
        _log.info("%s: adapter %s loaded", self._folder.path, name)
        return name

    def delete_adapter(self, name: str) -> None:
        """Delete a task: its adapter, examples and labels, embeddings and logits.

        Everything is overwritten on the disk; a text stays if another task has it.

        Args:
            name: The adapter's name.

        Raises:
            UnknownAdapterError: If no adapter of this name is loaded.
        """
        learner = self._learner(check_adapter_name(name))
        delete_adapter(learner.task)
        self._learners.pop(name, learner).close()
        self._folder.store.scrub()
        _log.info("%s: adapter %s deleted", self._folder.path, name)

    def _snapshot(self, adapter: str | None) -> Snapshot:
        """Return the snapshot of a task as it is now.

        Raises:
            DataError: If the name of the adapter is invalid.
            UnknownAdapterError: If no adapter of this name is loaded.
        """
        return opened(self._learner(adapter).task)

    def _learner(self, adapter: str | None = None) -> Learner:
        """Return the learner of a task, by its adapter's name, whether one is loaded or not.

        Raises:
            DataError: If the name is invalid.
        """
        name = "" if adapter is None else check_adapter_name(adapter)
        if (learner := self._learners.get(name)) is not None:
            return learner
        # Two threads get the same learner, even in simultaneous first calls.
        return self._learners.setdefault(name, Learner(Task(self._folder, name, self._own)))

    def _answer(self, examples: Iterable[Example], snapshot: Snapshot) -> tuple[Head, Vectors]:
        """Return the head of a task's active model, and its logits of n examples, (n, C)."""
        return self._logits(check_readable(examples, snapshot), snapshot)

    def _logits(self, examples: list[Example], snapshot: Snapshot) -> tuple[Head, Vectors]:
        """Return the head and the logits of examples that are checked."""
        learner = self._learner(snapshot.task.name or None)
        snapshot, z = learner.logits(snapshot, examples)
        return snapshot.head, z
