"""The door: a device's folder with its personal model, its examples and two slots."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import BundleMismatchError, DataError, DeviceError
from fala.examples import Example, check_examples, unique_texts
from fala.model.bridge import Bridge
from fala.model.heads import Head, PersonalModel
from fala.model.losses import label_probabilities
from fala.replacement import representing as replacement
from fala.replacement.crossing import KeepOld, cross, refine
from fala.replacement.fitting import Fitted
from fala.replacement.installed import Installed
from fala.replacement.learning import LearnReport, fit_known
from fala.replacement.memory import Memory, encode_missing, knowledge_of
from fala.replacement.recall import reachable
from fala.replacement.representing import Budget, Objective, Progress, Report
from fala.solver.blend import View
from fala.solver.personal import Prior
from fala.store.slots import BUNDLES, SLOTS, install, open_release, slot_record
from fala.store.store import Store

_STORE = "store.sqlite3"


class Device:
    """A personal model on a device.

    Use ``Device.create`` once and ``Device.open`` afterwards; it is a context manager. One object
    at a time should write to a folder.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._installed = Installed(path, store)

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
        """The labels' names, in the order of the probabilities."""
        return self._installed.now.model.head.labels

    @property
    def model(self) -> PersonalModel:
        """The personal model that answers, without the view beside it."""
        return self._installed.now.model

    @property
    def view(self) -> View | None:
        """The earlier backbone's view, whose logits are added to the model's; None without one."""
        return self._installed.now.view if self._installed.now.blended else None

    @property
    def threshold(self) -> float:
        """The logit above which ``decide`` decides for the second of two labels."""
        return self._installed.now.record.threshold

    @property
    def can_roll_back(self) -> bool:
        """Whether an earlier model is kept."""
        return self._installed.store.active()[1] is not None

    def predict(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Probabilities of every label by the personal model.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Returns:
            Shape (n, number of labels); rows add up to 1.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        return label_probabilities(self._installed.now.logits(check_examples(examples, self.task)))

    def decide(self, examples: Sequence[Example]) -> list[str]:
        """The label of every example, by the user's own threshold.

        With two labels the threshold is the one that is expected to give the best F1 of the
        second; where too little is known, and with more labels, the likeliest label is taken.

        Args:
            examples: n texts for a classifier, ``Match`` objects for a matcher.

        Raises:
            DataError: If an example is not of the task's kind.
        """
        z = self._installed.now.logits(check_examples(examples, self.task))
        decided = z[:, 0] > self.threshold if z.shape[1] == 1 else z.argmax(axis=1)
        return [self.labels[int(position)] for position in decided]

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
        self._installed.now.model.head.label_shares(given)
        now, texts = self._installed.now, unique_texts(examples)
        fresh = {
            now.record.backbone: encode_missing(
                self._installed.store, now.record.backbone, now.backbone, texts
            )
        }
        if now.record.view is not None and now.view_backbone is not None:
            digest = now.record.view.backbone
            fresh[digest] = encode_missing(self._installed.store, digest, now.view_backbone, texts)
        # Kept before the fit: whatever happens there, the user's data is safe.
        with self._installed.store.transaction():
            self._installed.store.remember(examples, [None if y is None else str(y) for y in given])
            for digest, embeddings in fresh.items():
                self._installed.store.add_embeddings(digest, embeddings)
        return fit_known(self._installed)

    def replace(
        self,
        bundle: str | os.PathLike[str],
        budget: Budget | None = None,
        *,
        keep_old: KeepOld = "auto",
        objective: Objective = "mse+ce",
        prior: Prior = "vendor",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Report:
        """Replace the backbone and carry the personal model over.

        Where the release has a bridge from the old backbone, a new personal model answers before
        any forward pass, and is then refined within the budget, as ``refine`` does. Without a
        bridge representatives are chosen on the old embeddings; only they pass through the new
        backbone. The old model stays for ``rollback``. Whatever goes wrong before the last
        moment, the device answers as before, or with the model that came first.

        Args:
            bundle: The new release's file; it is copied.
            budget: What it may cost; None is ``Budget()``.
            keep_old: Over a bridge, whether the old backbone's view goes on answering beside the
                new one: ``"auto"`` where it costs no forward pass (word vectors), ``"always"``,
                ``"never"``.
            objective: ``"mse"`` fits old logits (the paper), ``"ce"`` labels, ``"mse+ce"`` both.
                A bridge is used by the last only.
            prior: ``"vendor"`` changes the vendor's new model as little as needed and carries
                over what was personal in the old logits; ``"zero"`` fits the old logits whole,
                from nothing, as the paper does, and without a bridge.
            seed: Seed of the clustering.
            progress: Called with a stage's name, what is done and what there is to do.

        Returns:
            What was done, what was decided and what it cost.

        Raises:
            BundleError: The release cannot be trusted, or is not for this task and these labels.
            DataError: An argument is not one of those above.
            DeviceError: The device's folder cannot be written.
        """
        if keep_old not in get_args(KeepOld):
            raise DataError(f"keep_old is one of {', '.join(get_args(KeepOld))}, not {keep_old!r}")
        started = time.perf_counter()
        budget = budget or Budget()
        report = Report(old=self.name, new="")
        with report.stage("open"):
            opened, head = open_release(bundle)
            report.new = opened.manifest.name
            if (head.task, head.labels) != (self.task, self.labels):
                raise BundleMismatchError(
                    f"{opened.path}: for {head.task} with labels {', '.join(head.labels)}; this "
                    f"device does {self.task} with labels {', '.join(self.labels)}"
                )
            bridges: list[Bridge] = []
            if (objective, prior) == ("mse+ce", "vendor"):
                now = self._installed.now
                reached = reachable(opened.bridges(), now.bundle.bridges(), now.record.backbone)
                # A bridge from a backbone that this device never had leads nowhere.
                bridges = [
                    one
                    for one in reached
                    if one.source == now.record.backbone
                    or self._installed.store.has_embeddings(one.source)
                ]
        if bridges:
            cross(self._installed, opened, head, bridges, keep_old, report)
            if budget.forward_passes != 0 or opened.manifest.kind == WORD_VECTORS:
                refine(self._installed, budget, started, report, progress)
        else:
            self._represent(opened, head, budget, report, objective, prior, seed, progress)
        report.threshold, report.views = self.threshold, self._installed.now.costs()
        report.seconds["total"] = time.perf_counter() - started
        return report

    def refine(self, budget: Budget | None = None, *, progress: Progress | None = None) -> Report:
        """Go on with the last replacement: encode more of the user's texts, and fit again.

        For the app's idle time. Every batch of texts is kept, with the model fitted to it, before
        the next: it may be interrupted, or killed, at any instant, and goes on there. It ends
        early where a batch changed next to nothing, or all texts were encoded.

        Args:
            budget: Further forward passes and seconds; None is ``Budget()``.
            progress: Called with a stage's name, what is done and what there is to do.

        Returns:
            What was done. ``old`` and ``new`` are the same backbone.

        Raises:
            DeviceError: The device's folder cannot be written.
        """
        started = time.perf_counter()
        report = Report(
            old=self.name,
            new=self.name,
            decision="vendor" if self.model.is_vendor else "personal",
            reason="nothing was fitted",
        )
        refine(self._installed, budget or Budget(), started, report, progress)
        report.threshold, report.views = self.threshold, self._installed.now.costs()
        report.seconds["total"] = time.perf_counter() - started
        return report

    def rollback(self) -> None:
        """Go back to the model before the last replacement; a second call comes back here.

        Raises:
            DeviceError: If no earlier model is kept.
            BundleError: The earlier release is damaged; the device stays as it is.
        """
        self._installed.roll_back()

    def _represent(
        self,
        opened: Bundle,
        head: Head,
        budget: Budget,
        report: Report,
        objective: Objective,
        prior: Prior,
        seed: int,
        progress: Progress | None,
    ) -> None:
        """A replacement without a bridge: representatives alone speak for the user."""
        # The session is made while representatives are chosen, which needs the old backbone only.
        with ThreadPoolExecutor(max_workers=1) as loader:
            loading = loader.submit(opened.backbone)
            with report.stage("read"):
                ids, knowledge = knowledge_of(Memory(self._installed.store), self._installed.now)
                known = self._installed.store.embeddings(opened.backbone_digest)
            outcome = replacement.replace(
                knowledge,
                head,
                lambda texts: loading.result().encode(texts),
                known,
                budget,
                report,
                static=opened.manifest.kind == WORD_VECTORS,
                objective=objective,
                prior=prior,
                seed=seed,
                progress=progress,
            )
            backbone = loading.result()  # one that does not load must not be committed
        with report.stage("commit"):
            taught = (ids, knowledge) if report.decision == "personal" else None
            fitted = Fitted(
                outcome.model,
                0.0,
                None,
                knowledge.vendor_logits.astype(np.float64),
                report.lambda_,
                None,
            )
            self._installed.commit(opened, backbone, fitted, taught, outcome.embeddings)


def _empty(folder: Path, *, remove: bool) -> None:
    """Take back what ``Device.create`` began."""
    shutil.rmtree(folder / BUNDLES, ignore_errors=True)
    with contextlib.suppress(OSError):
        for file in folder.glob(f"{_STORE}*"):
            file.unlink()
        if remove:
            folder.rmdir()
