"""All of a replacement that changes nothing: open, read, encode, fit, load, probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fala.backbones import Backbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.errors import BundleFormatError, BundleMismatchError, DimensionError, OlderReleaseError
from fala.examples import unique_texts
from fala.model.active import ActiveModel
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, Vectors
from fala.personal.budget import Budget, Follower
from fala.personal.choose import Choice, OldSpace, choose
from fala.personal.encode import PROBES, forward, probe
from fala.personal.fitting import Fitted, fit_recalled, vendor_alone
from fala.personal.memory import Memory, Recalled, Target, Taught, recall, taught_by
from fala.personal.stages import Stages
from fala.slots.bundles import open_release
from fala.slots.installed import Installed
from fala.slots.open_slot import OpenSlot, lazy, prior_of
from fala.slots.task import Task
from fala.slots.validation import proven
from fala.slots.versions import check_version
from fala.store.texts import NOT_KEPT
from fala.text.lexicon import CachedRows


@dataclass(frozen=True, eq=False)
class Release:
    """A new release, opened.

    Attributes:
        bundle: Its bundle.
        head: Its head, with the labels in the device's order, and further ones behind them.
        bridges: Those that lead to its backbone from one that the device has had, the worst first.
    """

    bundle: Bundle
    head: Head
    bridges: list[Bridge]

    @property
    def instant(self) -> bool:
        """Whether a personal model can answer before any forward pass: by a bridge, or by words."""
        return bool(self.bridges) or self.head.lexical is not None

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass."""
        return self.bundle.manifest.kind == WORD_VECTORS


@dataclass(frozen=True, eq=False)
class Prepared:
    """A personal model on a new release, as it would answer first.

    Attributes:
        now: What answers.
        memory: What the device remembers, with the texts that were encoded for this.
        taught: What the old model says; None where the labels are others.
        recalled: The examples as the new backbone knows them.
        fitted: The new model.
        first: The first choice of texts; of none over a bridge.
        encoded: The new backbone's embeddings of them, by text.
        seconds: Of reading, encoding and fitting.
    """

    now: OpenSlot
    memory: Memory
    taught: Taught | None
    recalled: Recalled
    fitted: Fitted
    first: Choice
    encoded: Mapping[str, Vectors]
    seconds: float


def open_new(
    installed: Installed,
    path: str,
    now: OpenSlot,
    trust: Trust | None = None,
    *,
    allow_older: bool = False,
) -> Release:
    """Open a release that is to replace what answers.

    Raises:
        OlderReleaseError: It is older than one that was installed, and that is not allowed.
        BundleMismatchError: It is for another task, or lacks a label of the device's.
        BundleError: It cannot be trusted.
        DeviceChangedError: Another one was installed meanwhile.
    """
    bundle, head = open_release(path, hold=True, trust=trust)
    if not allow_older:
        try:
            check_version(installed.store, now.bundle.manifest, bundle.manifest)
        except OlderReleaseError as error:
            raise OlderReleaseError(f"{bundle.path}: {error}") from error
    return fitting(installed, now, bundle, head)


def fitting(task: Task, now: OpenSlot, bundle: Bundle, head: Head) -> Release:
    """A release, or an adapter, for a task that is to go on with it.

    Args:
        task: The task.
        now: What answers for it.
        bundle: What was opened.
        head: Its head.

    Raises:
        BundleMismatchError: It is for another task, or lacks a label of the device's.
        BundleError: It cannot be trusted.
        DeviceChangedError: Another one was installed meanwhile.
    """
    labels = now.model.head.labels
    if head.task != now.model.head.task or not set(labels) <= set(head.labels):
        raise BundleMismatchError(
            f"{bundle.path}: for {head.task} with labels {', '.join(head.labels)}; this "
            f"device does {now.model.head.task} with labels {', '.join(labels)}"
        )
    added = [label for label in head.labels if label not in labels]
    with task.expecting(now):
        before = now.bundle.bridges()
    new_bridges = bundle.bridges()
    # Also where texts were read with a prompt: those that were read without one cross it.
    active = now.bundle.backbone_digest
    direct = new_bridges.get(active)
    if direct is not None and len(direct.matrix) != now.bundle.manifest.dimension:
        raise DimensionError(
            f"{bundle.path}: its bridge starts from {len(direct.matrix)} dimensions; this device's "
            f"backbone has {now.bundle.manifest.dimension}"
        )
    reached = reachable(new_bridges, before, active)
    # A bridge from a backbone that this device never had leads nowhere.
    bridges = [
        one
        for one in reached
        if one.source == now.record.backbone or task.store.embeddings.has(one.source)
    ]
    return Release(bundle, head.in_order([*labels, *added]), bridges)


class Preparation:
    """A replacement under way, before anything changes; see ``preparing``.

    Attributes:
        release: What is to be installed.
        load: Gives its backbone, loaded.
        passes: How many texts were encoded for it.
        limit: How many may be; None for the budget's.
    """

    def __init__(
        self,
        installed: Task,
        release: Release,
        budget: Budget,
        stages: Stages,
        follower: Follower,
        last: CachedRows,
        load: Callable[[], Backbone],
        encoded: dict[str, Vectors] | None = None,
    ) -> None:
        self.release, self.load = release, load
        self._last = last
        self._installed, self._budget = installed, budget
        self._stages, self._follower = stages, follower
        self._positive = installed.positive(release.head)
        # What another task has encoded with the same backbone is not encoded again.
        self._encoded: dict[str, Vectors] = {} if encoded is None else encoded
        self._first: Choice | None = None
        self.passes = 0
        self.limit: int | None = None

    def fit(self, now: OpenSlot) -> Prepared:
        """Fit a personal model on the release; what was encoded before is not encoded again."""
        stages = self._stages
        started = time.perf_counter()
        self._follower.check("read")
        with stages.stage("read"):
            memory = Memory(self._installed.store, self._last)
            target, taught = self._target(memory, now)
            memory.add(target.backbone, self._encoded)
            recalled = recall(memory, target)
        if self._first is None:
            known = len(self._encoded)
            self._first = self._encode(memory, recalled, taught, now)
            self.passes = len(self._encoded) - known
            if self.passes:
                with stages.stage("read"):
                    memory.add(target.backbone, self._encoded)
                    recalled = recall(memory, target)
        self._follower.check("solve")
        with stages.stage("solve"):
            fitted = self._fit(now, target, recalled)
        return Prepared(
            now, memory, taught, recalled, fitted, self._first, self._encoded,
            time.perf_counter() - started,
        )  # fmt: skip

    def check(self, prepared: Prepared) -> tuple[Backbone, int]:
        """Let the new model answer the device's own texts.

        Returns:
            The backbone, loaded, and how many texts it answered.

        Raises:
            BundleError: It cannot be loaded, or cannot answer.
        """
        bundle, fitted = self.release.bundle, prepared.fitted
        with self._stages.stage("load"):
            backbone = self.load()  # one that does not load must not be committed
        self._follower.check("check")
        with self._stages.stage("check"):
            texts: list[str] = []
            if self._installed.store.texts.kept:
                texts = unique_texts(row.known for row in prepared.memory.examples()[-PROBES:])
            answering = ActiveModel(fitted.model, lazy(bundle, backbone), fitted.threshold)
            return backbone, probe(answering, bundle, texts)

    def _target(self, memory: Memory, now: OpenSlot) -> tuple[Target, Taught | None]:
        release, head = self.release, self.release.head
        taught = taught_by(memory, now) if now.model.head.labels == head.labels else None
        # A vendor's model has nothing personal to hand on.
        differences: Mapping[int, Vectors] = {}
        if taught is not None and not now.model.is_vendor:
            differences = taught.differences()
        return Target(
            head, release.bundle.backbone_digest, prior_of(release.bundle, head.labels),
            release.bridges, release.bundle.scales, differences,
        ), taught  # fmt: skip

    def _encode(
        self, memory: Memory, recalled: Recalled, taught: Taught | None, now: OpenSlot
    ) -> Choice:
        """What passes through the new backbone before it answers.

        All of it where that costs nothing; nothing over a bridge, or where words speak; else
        representatives.
        """
        if not memory.store.texts.kept:
            return Choice([])
        if self.release.static:
            choice = Choice(recalled.unseen())
        elif self.release.instant or not memory.examples():
            return Choice([])
        else:
            limit = self._budget.passes(bridged=False) if self.limit is None else self.limit

            def old() -> OldSpace:
                found = taught_by(memory, now) if taught is None else taught
                return OldSpace(found.embeddings, found.logits, now.model.head)

            with self._stages.stage("select"):
                choice = choose(recalled, np.empty((0, 1)), limit, limit, old)
        seconds = self._budget.seconds
        with self._stages.stage("forward"):
            deadline = None if seconds is None else self._stages.started + seconds
            encoded = forward(
                choice.texts, lambda texts: self.load().encode(texts),
                None if self.release.static else deadline, self._follower,
            )  # fmt: skip
        self._encoded.update(encoded)
        return choice

    def _fit(self, now: OpenSlot, target: Target, recalled: Recalled) -> Fitted:
        training = recalled.training
        if not recalled.ids and not recalled.waiting:
            return vendor_alone(target, "the device has no examples yet")
        if not recalled.ids and not self._installed.store.texts.kept:
            count = len(recalled.waiting)
            return vendor_alone(
                target,
                f"{NOT_KEPT}, so that none of the {count} examples is known to it; a release with "
                "a bridge from the old backbone would carry what is personal over",
            )
        if not recalled.ids:
            return vendor_alone(target, "the budget allows no representative")
        if now.model.is_vendor and not training.labelled.any():
            return vendor_alone(target, "nothing personal is known yet")
        if not training.used.any():
            return vendor_alone(target, "there is neither a label nor an old logit to fit to")
        try:
            return fit_recalled(target, recalled, self._positive)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            raise BundleFormatError(
                f"{self.release.bundle.path}: the numbers of its head, prior and bridges are too "
                f"large or too small for a fit ({error}); nothing was installed"
            ) from error


@contextmanager
def preparing(
    installed: Installed,
    path: str,
    budget: Budget,
    stages: Stages,
    follower: Follower,
    now: OpenSlot,
    last: CachedRows,
    *,
    trust: Trust | None,
    allow_older: bool,
) -> Iterator[Preparation]:
    """Open a release, and load its backbone while the store is read and texts are chosen.

    Args:
        installed: The device.
        path: The release's file.
        budget: What it may cost.
        stages: Times what is done.
        follower: Told of every stage.
        now: What answers.
        last: The words of the device's texts, hashed once for all of this.
        trust: See ``Device.replace``.
        allow_older: See ``Device.replace``.
    """
    follower.check("open")
    with stages.stage("open"):
        release = open_new(installed, path, now, trust, allow_older=allow_older)
    with ThreadPoolExecutor(max_workers=1) as loader:
        # What was installed before has proved itself.
        again = release.bundle.digest in installed.store.slots.bundles()
        loading = loader.submit(proven, release.bundle, known=again)
        yield Preparation(installed, release, budget, stages, follower, last, loading.result)
