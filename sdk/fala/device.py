"""The door: a device's folder with its personal model, its examples and two slots."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from fala import replacement
from fala.backbones import Backbone
from fala.bundle import Bundle
from fala.bundle_format import WORD_VECTORS
from fala.errors import (
    BundleMismatchError,
    DataError,
    DeviceError,
)
from fala.examples import Example, check_examples, texts_of, unique_texts
from fala.heads import PersonalModel
from fala.objective import Evidence
from fala.personal import Prior, carried_logits, personal_fit
from fala.replacement import (
    Budget,
    Knowledge,
    Objective,
    Progress,
    Report,
)
from fala.slots import (
    BUNDLES,
    SLOTS,
    bundle_digest,
    bundle_path,
    install,
    model_digest,
    open_release,
    slot_record,
    sweep,
)
from fala.store import SlotRecord, Store

_STORE = "store.sqlite3"


@dataclass(frozen=True)
class LearnReport:
    """What a device knows after learning.

    Attributes:
        examples: Examples in the store.
        labelled: How many of them have a label.
        fitted: Examples that the personal matrix was fitted to; 0 where there was nothing to fit.
        lambda_: The penalty that leave-one-out chose; None where nothing was fitted.
        loss: Leave-one-out loss at that penalty, in nats by example for labels.
    """

    examples: int
    labelled: int
    fitted: int
    lambda_: float | None
    loss: float | None


class Device:
    """A personal model on a device.

    Use ``Device.create`` once and ``Device.open`` afterwards; it is a context manager. One object
    at a time should write to a folder.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._loaded: Backbone | None = None
        self._take(*self._installed(self._store.active()[0]))

    @classmethod
    def create(cls, path: str | os.PathLike[str], bundle: str | os.PathLike[str]) -> Device:
        """Make a device folder with a release installed.

        Args:
            path: A folder that does not exist, or is empty.
            bundle: The release's file; it is copied.

        Raises:
            BundleError: The release cannot be trusted.
            BundleMismatchError: It is a backbone without a head.
            DeviceError: The folder is in use, or cannot be written.
        """
        path = Path(path)
        opened, head = open_release(bundle)
        opened.backbone()  # a model that does not load must not be installed
        with contextlib.ExitStack() as undo:
            try:
                made = not path.exists()
                path.mkdir(parents=True, exist_ok=True)
                if any(path.iterdir()):
                    hint = "use Device.open" if (path / _STORE).exists() else "choose another"
                    raise DeviceError(f"{path}: the folder is not empty; {hint}")
                undo.callback(_empty, path, remove=made)
                (path / BUNDLES).mkdir()
                install(opened, path)
            except OSError as error:
                raise DeviceError(f"{path}: {error.strerror or error}") from error
            store = Store(path / _STORE, create=True)
            undo.callback(store.close)
            with store.transaction():
                store.put_slot(slot_record(SLOTS[0], opened, head.vendor_model()))
                store.activate(SLOTS[0], None)
            device = cls(path, store)
            undo.pop_all()
        return device

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Device:
        """Open a device folder.

        Raises:
            DeviceError: There is none, or it is damaged.
            BundleError: The installed release is not what was installed.
        """
        path = Path(path)
        if not (path / _STORE).is_file():
            raise DeviceError(f"{path}: not a device folder; make one with Device.create")
        store = Store(path / _STORE)
        try:
            return cls(path, store)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Close the store. What was learned is already on the disk."""
        self._store.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The installed backbone's name."""
        return self._bundle.manifest.name

    @property
    def task(self) -> str:
        """``"classification"`` or ``"matching"``."""
        return self._head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the probabilities."""
        return self._head.labels

    @property
    def model(self) -> PersonalModel:
        """The personal model that answers."""
        return self._model

    @property
    def can_roll_back(self) -> bool:
        """Whether an earlier model is kept."""
        return self._store.active()[1] is not None

    def predict(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Probabilities of every label by the personal model.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Returns:
            Shape (n, number of labels); rows add up to 1.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        examples = check_examples(examples, self.task)
        texts = unique_texts(examples)
        embeddings = dict(zip(texts, self._backbone.encode(texts), strict=True))
        return self._model.probabilities(self._head.inputs(examples, embeddings))

    def learn(
        self, examples: Sequence[Example], labels: Sequence[str | int | None] | None = None
    ) -> LearnReport:
        """Keep examples with their labels, and fit the personal matrix to all that is known.

        The fit is cross-entropy on labels, together with the old logits that a replacement
        brought along, by reweighted least squares: no backpropagation.

        Args:
            examples: n texts, or ``Match`` objects. One that is known already takes the new label.
            labels: n labels (names, or integers that spell them), None for an example that the
                user gave no label; None for all. Examples without a label are kept for the next
                replacement.

        Raises:
            DataError: If an example or a label cannot be used; nothing is kept then.
        """
        examples = check_examples(examples, self.task)
        given = [None] * len(examples) if labels is None else list(labels)
        if len(given) != len(examples):
            raise DataError(f"{len(examples)} examples, but {len(given)} labels")
        self._head.label_shares(given)
        stored = self._store.embeddings(self._backbone_digest)
        missing = [text for text in unique_texts(examples) if text not in stored]
        fresh = dict(zip(missing, self._backbone.encode(missing), strict=True)) if missing else {}
        # Kept before the fit: whatever happens there, the user's data is safe.
        with self._store.transaction():
            self._store.remember(examples, [None if y is None else str(y) for y in given])
            self._store.add_embeddings(self._backbone_digest, fresh)
        return self._fit()

    def replace(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        objective: Objective = "mse+ce",
        prior: Prior = "vendor",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Report:
        """Replace the backbone and carry the personal model over.

        Representatives are chosen on the old embeddings; only they pass through the new backbone.
        The old model stays for ``rollback``. Whatever goes wrong before the last moment, the
        device answers as before.

        Args:
            bundle: The new release's file; it is copied.
            budget: What it may cost; None is ``Budget()``.
            objective: ``"mse"`` fits old logits (the paper), ``"ce"`` labels, ``"mse+ce"`` both.
            prior: ``"vendor"`` changes the vendor's new model as little as needed and carries
                over what was personal in the old logits; ``"zero"`` fits the old logits whole,
                from nothing, as the paper does.
            seed: Seed of the clustering.
            progress: Called with a stage's name, what is done and what there is to do.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: The release cannot be trusted, or is not for this task and these labels.
            DeviceError: The device's folder cannot be written.
        """
        started = time.perf_counter()
        report = Report(old=self.name, new="")
        with report.stage("open"):
            opened, head = open_release(bundle)
            report.new = opened.manifest.name
            if (head.task, head.labels) != (self.task, self.labels):
                raise BundleMismatchError(
                    f"{opened.path}: for {head.task} with labels {', '.join(head.labels)}; this "
                    f"device does {self.task} with labels {', '.join(self.labels)}"
                )
        # The session is made while representatives are chosen, which needs the old backbone only.
        with ThreadPoolExecutor(max_workers=1) as loader:
            loading = loader.submit(opened.backbone)
            with report.stage("read"):
                ids, knowledge = self._knowledge()
                known = self._store.embeddings(opened.backbone_digest)
            outcome = replacement.replace(
                knowledge,
                head,
                lambda texts: loading.result().encode(texts),
                known,
                budget or Budget(),
                report,
                static=opened.manifest.kind == WORD_VECTORS,
                objective=objective,
                prior=prior,
                seed=seed,
                progress=progress,
            )
            backbone = loading.result()  # one that does not load must not be committed
        with report.stage("commit"):
            carried = report.decision == "personal"
            record, installed = self._commit(opened, outcome, ids, knowledge, carried)
        self._take(record, installed, outcome.model, backbone)
        report.seconds["total"] = time.perf_counter() - started
        return report

    def rollback(self) -> None:
        """Go back to the model before the last replacement; a second call comes back here.

        Raises:
            DeviceError: If no earlier model is kept.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        slot, previous = self._store.active()
        if previous is None:
            raise DeviceError(f"{self._path}: there is no earlier model to go back to")
        installed = self._installed(previous)  # verified before it may answer
        with self._store.transaction():
            self._store.activate(previous, slot)
        self._take(*installed)

    @property
    def _backbone_digest(self) -> str:
        return self._record.backbone

    @property
    def _backbone(self) -> Backbone:
        # Loaded when first needed: opening a device to look at it costs no session.
        if self._loaded is None:
            self._loaded = self._bundle.backbone()
        return self._loaded

    def _installed(self, slot: str) -> tuple[SlotRecord, Bundle, PersonalModel]:
        """A slot's model and its bundle, verified."""
        record = self._store.slot(slot)
        bundle, head = open_release(bundle_path(self._path, record.bundle))
        if bundle_digest(bundle) != record.bundle:
            raise DeviceError(f"{bundle.path}: not the bundle that was installed")
        try:
            model = PersonalModel(head, record.theta, record.bias)
        except DataError as error:
            raise DeviceError(f"{self._path}: slot {slot} is damaged: {error}") from error
        return record, bundle, model

    def _take(
        self,
        record: SlotRecord,
        bundle: Bundle,
        model: PersonalModel,
        backbone: Backbone | None = None,
    ) -> None:
        """Let a model answer; its backbone is loaded later where it is not given."""
        self._record, self._bundle, self._model = record, bundle, model
        self._head = model.head
        self._loaded = backbone

    def _knowledge(self) -> tuple[list[int], Knowledge]:
        """What is known of every example that has an embedding of the active backbone."""
        embeddings = self._store.embeddings(self._backbone_digest)
        rows = [
            row
            for row in self._store.examples()
            if all(text in embeddings for text in texts_of(row.example))
        ]
        examples = [row.example for row in rows]
        inputs = self._head.inputs(examples, embeddings)
        knowledge = Knowledge(
            examples=examples,
            inputs=inputs,
            logits=self._model.logits(inputs),
            vendor_logits=self._head.vendor_model().logits(inputs),
            labels=self._head.label_shares([row.label for row in rows]),
        )
        return [row.id for row in rows], knowledge

    def _fit(self) -> LearnReport:
        """Fit the personal matrix to all labels and to the teacher's logits, and keep it."""
        ids, knowledge = self._knowledge()
        logits = self._taught(ids, knowledge)
        known = knowledge.labelled | ~np.isnan(logits).any(axis=1)
        everything = self._store.examples()
        labelled = sum(row.label is not None for row in everything)
        if not known.any():
            return LearnReport(len(everything), labelled, 0, None, None)
        solved = personal_fit(
            self._head,
            Evidence.of(
                self._head.features(knowledge.inputs[known]),
                logits=logits[known],
                labels=knowledge.labels[known],
            ),
        )
        model = PersonalModel(self._head, solved.theta, solved.bias)
        teachers = self._record.teacher, self._record.teacher_vendor
        record = slot_record(self._record.name, self._bundle, model, *teachers)
        with self._store.transaction():
            self._store.put_slot(record)
        self._record, self._model = record, model
        return LearnReport(len(everything), labelled, int(known.sum()), solved.lambda_, solved.loss)

    def _taught(self, ids: Sequence[int], knowledge: Knowledge) -> NDArray[np.float64]:
        """What the teacher's logits ask of this model, (n, C); NaN where there are none."""
        targets = np.full(knowledge.labels.shape, np.nan)
        teacher, vendor = self._record.teacher, self._record.teacher_vendor
        if teacher is not None and vendor is not None:
            personal, plain = self._store.logits(teacher), self._store.logits(vendor)
            for position, row in enumerate(ids):
                if row in personal and row in plain:
                    targets[position] = carried_logits(
                        knowledge.vendor_logits[position], personal[row], plain[row]
                    )
        return targets

    def _commit(
        self,
        bundle: Bundle,
        outcome: replacement.Outcome,
        ids: Sequence[int],
        knowledge: Knowledge,
        carried: bool,
    ) -> tuple[SlotRecord, Bundle]:
        """Write the idle slot, then let it answer, in one transaction."""
        slot = self._record.name
        idle = next(name for name in SLOTS if name != slot)
        teachers: tuple[str, ...] = ()
        if carried:
            vendor = self._head.vendor_model()
            teachers = self._record.model, model_digest(self._bundle, vendor)
        try:
            installed = install(bundle, self._path)
            record = slot_record(idle, installed, outcome.model, *teachers)
            with self._store.transaction():
                self._store.add_embeddings(bundle.backbone_digest, outcome.embeddings)
                logits = (knowledge.logits, knowledge.vendor_logits)
                for model, values in zip(teachers, logits, strict=False):
                    self._store.add_logits(model, dict(zip(ids, values, strict=True)))
                self._store.put_slot(record)
                self._store.activate(idle, slot)
                self._store.prune()
        except OSError as error:
            raise DeviceError(f"{self._path}: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(DeviceError):
                sweep(self._path, self._store.bundles())
        return record, installed


def _empty(folder: Path, *, remove: bool) -> None:
    """Take back what ``Device.create`` began."""
    shutil.rmtree(folder / BUNDLES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for file in folder.glob(f"{_STORE}*"):
            file.unlink()
        if remove:
            folder.rmdir()
