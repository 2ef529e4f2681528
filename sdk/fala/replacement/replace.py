"""A replacement: training data, fit, check, probe, commit, refine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from fala.backbones import Backbone
from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.errors import (
    BundleFormatError,
    BundleMismatchError,
    DeviceChangedError,
    DimensionError,
    WorseModelError,
)
from fala.examples import unique_texts
from fala.model.answering import Answering
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, Vectors
from fala.proving.prove import proven
from fala.replacement.budget import Budget, Follower
from fala.replacement.choose import Choice, OldSpace, choose
from fala.replacement.encode import PROBES, forward, probe
from fala.replacement.fitting import Fitted, fit_recalled, vendor_alone
from fala.replacement.memory import Memory, Recalled, Target, Taught, recall, taught_by
from fala.replacement.refine import Refined, Refinement, same_release
from fala.replacement.stages import Stages
from fala.solver.judge import decisions
from fala.store.installed import Installed
from fala.store.open_slot import OpenSlot, lazy, prior_of
from fala.store.slots import open_release


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
class Replaced:
    """What a replacement did.

    Attributes:
        release: What came.
        recalled: The examples as the new backbone knew them when it first answered.
        fitted: The first model that answered.
        first: The first choice of texts; of none over a bridge.
        encoded: How many texts passed through the new backbone before it answered.
        seconds: From reading the store to the checked model.
        agreement: See ``Report``.
        mapped: Examples whose input was estimated over a bridge.
        refined: What came after; None where there was no budget for it.
        probes: Texts that the new release had to answer.
        old_loss: See ``Report``.
    """

    release: Release
    recalled: Recalled
    fitted: Fitted
    first: Choice
    encoded: int
    seconds: float
    agreement: float | None
    mapped: int
    probes: int
    old_loss: float | None
    refined: Refined | None = None


def open_new(installed: Installed, path: str, now: OpenSlot) -> Release:
    """Open a release that is to replace what answers.

    Raises:
        BundleMismatchError: It is for another task, or lacks a label of the device's.
        BundleError: It cannot be trusted.
    """
    bundle, head = open_release(path, hold=True)
    labels = now.model.head.labels
    if head.task != now.model.head.task or not set(labels) <= set(head.labels):
        raise BundleMismatchError(
            f"{bundle.path}: for {head.task} with labels {', '.join(head.labels)}; this "
            f"device does {now.model.head.task} with labels {', '.join(labels)}"
        )
    added = [label for label in head.labels if label not in labels]
    new_bridges = bundle.bridges()
    direct = new_bridges.get(now.record.backbone)
    if direct is not None and len(direct.matrix) != now.bundle.manifest.dimension:
        raise DimensionError(
            f"{bundle.path}: its bridge starts from {len(direct.matrix)} dimensions; this device's "
            f"backbone has {now.bundle.manifest.dimension}"
        )
    reached = reachable(new_bridges, now.bundle.bridges(), now.record.backbone)
    # A bridge from a backbone that this device never had leads nowhere.
    bridges = [
        one
        for one in reached
        if one.source == now.record.backbone or installed.store.has_embeddings(one.source)
    ]
    return Release(bundle, head.in_order([*labels, *added]), bridges)


def replace(
    installed: Installed,
    path: str,
    budget: Budget,
    stages: Stages,
    follower: Follower,
    positive: Callable[[Head], int],
    *,
    allow_worse: bool = True,
) -> Replaced:
    """Carry the personal model over to a new release.

    Args:
        installed: The device.
        path: The release's file.
        budget: What it may cost.
        stages: Times what is done.
        follower: Told of every stage.
        positive: Gives the label whose F1 thresholds are for, by head.
        allow_worse: See ``Device.replace``.
    """
    follower.check("open")
    with stages.stage("open"):
        now = installed.now
        release = open_new(installed, path, now)
    with ThreadPoolExecutor(max_workers=1) as loader:
        # The session is made while the store is read and representatives are chosen.
        # What was installed before has proved itself.
        again = release.bundle.digest in installed.store.bundles()
        loading = loader.submit(proven, release.bundle, known=again)
        work = _Replacement(
            installed, release, stages, follower, positive(release.head), allow_worse=allow_worse
        )
        replaced = work.run(now, budget, loading)
    # Without a bridge or words the budget has bought the first answer.
    if release.static or not release.instant or budget.forward_passes == 0:
        return replaced
    refinement = Refinement(installed, stages, follower, positive(release.head))
    known = replaced.recalled, replaced.fitted
    refined = refinement.run(budget, bridged=bool(release.bridges), known=known)
    return dataclasses.replace(replaced, refined=refined)


class _Replacement:
    """One replacement under way, until its first commit."""

    def __init__(
        self,
        installed: Installed,
        release: Release,
        stages: Stages,
        follower: Follower,
        positive: int,
        *,
        allow_worse: bool,
    ) -> None:
        self._installed, self._release = installed, release
        self._stages, self._follower, self._positive = stages, follower, positive
        self._allow_worse = allow_worse
        self._encoded: dict[str, Vectors] = {}
        self._first: Choice | None = None

    def run(self, now: OpenSlot, budget: Budget, loading: Future[Backbone]) -> Replaced:
        """Fit, check, probe and commit; again, where something was learned in between."""
        while True:
            try:
                return self._once(now, budget, loading)
            except DeviceChangedError:  # noqa: PERF203
                found = self._installed.now
                if not same_release(found, now):
                    raise
                now = found

    def _once(self, now: OpenSlot, budget: Budget, loading: Future[Backbone]) -> Replaced:
        release, stages = self._release, self._stages
        started = time.perf_counter()
        self._follower.check("read")
        with stages.stage("read"):
            memory = Memory(self._installed.store)
            target, taught = self._target(memory, now)
            memory.add(target.backbone, self._encoded)
            recalled = recall(memory, target)
        if self._first is None:
            self._first = self._encode(memory, recalled, taught, now, budget, loading)
            if self._encoded:
                with stages.stage("read"):
                    memory.add(target.backbone, self._encoded)
                    recalled = recall(memory, target)
        self._follower.check("solve")
        with stages.stage("solve"):
            fitted = self._fit(now, target, recalled)
        old_loss = now.record.loss
        if not self._allow_worse and old_loss is not None and fitted.loss is not None:
            _refuse_worse(release, old_loss, fitted.loss)
        seconds = time.perf_counter() - started
        with stages.stage("load"):
            backbone = loading.result()  # one that does not load must not be committed
        self._follower.check("check")
        with stages.stage("check"):
            texts = unique_texts(row.example for row in memory.examples()[-PROBES:])
            answering = Answering(fitted.model, lazy(release.bundle, backbone), fitted.threshold)
            probes = probe(answering, release.bundle, texts)
        self._follower.check("commit")
        with stages.stage("commit"):
            logits = None
            if not now.model.is_vendor and taught is not None:
                logits = taught.logits, taught.vendor
            self._installed.commit(
                now, release.bundle, backbone, fitted.change(self._encoded), logits
            )
        self._follower.tell("commit", 1, 1)
        return Replaced(
            release, recalled, fitted, self._first, 0 if release.static else len(self._encoded),
            seconds, _agreement(fitted, recalled, taught), len(recalled.ids) - recalled.real,
            probes, old_loss,
        )  # fmt: skip

    def _target(self, memory: Memory, now: OpenSlot) -> tuple[Target, Taught | None]:
        release, head = self._release, self._release.head
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
        self,
        memory: Memory,
        recalled: Recalled,
        taught: Taught | None,
        now: OpenSlot,
        budget: Budget,
        loading: Future[Backbone],
    ) -> Choice:
        """What passes through the new backbone before it answers.

        All of it where that costs nothing; nothing over a bridge, or where words speak; else
        representatives.
        """
        if self._release.static:
            choice = Choice(recalled.unseen())
        elif self._release.instant or not memory.examples():
            return Choice([])
        else:
            limit = budget.passes(bridged=False)

            def old() -> OldSpace:
                found = taught_by(memory, now) if taught is None else taught
                return OldSpace(found.embeddings, found.logits, now.model.head)

            with self._stages.stage("select"):
                choice = choose(recalled, np.empty((0, 1)), limit, limit, old)
        with self._stages.stage("forward"):
            deadline = None if budget.seconds is None else self._stages.started + budget.seconds
            self._encoded = forward(
                choice.texts, lambda texts: loading.result().encode(texts),
                None if self._release.static else deadline, self._follower,
            )  # fmt: skip
        return choice

    def _fit(self, now: OpenSlot, target: Target, recalled: Recalled) -> Fitted:
        training = recalled.training
        if not recalled.ids and not recalled.waiting:
            return vendor_alone(target, "the device has no examples yet")
        if not recalled.ids:
            return vendor_alone(target, "the budget allows no representative")
        if now.model.is_vendor and not training.labelled.any():
            return vendor_alone(target, "nothing personal is known yet")
        if not training.telling.any():
            return vendor_alone(target, "there is neither a label nor an old logit to fit to")
        try:
            return fit_recalled(target, recalled, self._positive)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            raise BundleFormatError(
                f"{self._release.bundle.path}: the numbers of its head, prior and bridges are too "
                f"large or too small for a fit ({error}); nothing was installed"
            ) from error


def _refuse_worse(release: Release, before: float, after: float) -> None:
    if after > before:
        raise WorseModelError(
            f"{release.bundle.path}: worse for this user than what answers, which goes on: "
            f"cross-entropy of labels, each left out, {after:.3f} against {before:.3f}; with "
            "allow_worse=True it is installed all the same"
        )


def _agreement(fitted: Fitted, recalled: Recalled, taught: Taught | None) -> float | None:
    """Share of examples on which the fit, each left out, decides as the old model does."""
    if taught is None or not len(fitted.left_out):
        return None
    known = [position for position, row in enumerate(recalled.ids) if row in taught.logits]
    if not known:
        return None
    old = np.stack([taught.logits[recalled.ids[position]] for position in known])
    return float(np.mean(decisions(old) == decisions(fitted.left_out[known])))
