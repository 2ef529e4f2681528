"""The read-only part of a replacement: open, read, encode, fit, load, probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fala.backbones import LazyBackbone
from fala.backbones.external import ExternalEncoder
from fala.bundle.reading import Bundle
from fala.bundle.signature import Trust
from fala.errors import (
    BundleFormatError,
    BundleMismatchError,
    DimensionError,
    OlderReleaseError,
    counted,
)
from fala.examples import unique_texts
from fala.model.active import ActiveModel
from fala.model.bridge import Bridge, reachable
from fala.model.heads import Head, Vectors
from fala.personal.choose import Choice, choose, choose_by_chance
from fala.personal.encode import forward
from fala.personal.gather import OldLogits, Rows, Snapshot, Space, gather, old_logits
from fala.personal.refit import Refit, fit_rows
from fala.personal.run import Run
from fala.slots.bundles import open_release
from fala.slots.folder import Folder
from fala.slots.open_slot import OpenSlot, lazy_backbone, prior_of
from fala.slots.task import Task
from fala.slots.validation import PROBES, check_own_texts, validate
from fala.slots.versions import check_version
from fala.store.texts import NOT_KEPT


@dataclass(frozen=True, eq=False)
class Part:
    """A task's part in a replacement: a new release, or an adapter, opened for it.

    Attributes:
        task: The task.
        bundle: The bundle to be installed for it.
        head: Its head, with the labels in the device's order, and new ones after them.
        bridges: The bridges to its backbone from those that the device has used, the worst first.
        backbone: Its backbone.
    """

    task: Task
    bundle: Bundle
    head: Head
    bridges: Sequence[Bridge]
    backbone: LazyBackbone

    @property
    def instant(self) -> bool:
        """Whether a personal model needs no forward pass: over a bridge, or by n-grams."""
        return bool(self.bridges) or self.head.lexical is not None

    @property
    def static(self) -> bool:
        """Whether encoding costs no forward pass."""
        return not self.backbone.is_transformer


@dataclass(frozen=True, eq=False)
class Prepared:
    """The first personal model on a new release.

    Attributes:
        part: The task's part.
        active: The slot that was active meanwhile.
        old: The old logits; None if the labels differ.
        model: The new model.
        choice: The texts chosen for the new backbone to encode; none over a bridge.
        embeddings: The new backbone's embeddings of those that were encoded, by text.
        seconds: Wall time to read, encode and fit.
    """

    part: Part
    active: OpenSlot
    old: OldLogits | None
    model: Refit
    choice: Choice
    embeddings: Mapping[str, Vectors]
    seconds: float

    @property
    def encoded(self) -> int:
        """Forward passes spent on it."""
        return 0 if self.part.static else len(self.embeddings)


@contextmanager
def opening(
    folder: Folder,
    path: Path,
    run: Run,
    *,
    trust: Trust | None,
    allow_older: bool,
    signed: bool = False,
) -> Iterator[Part]:
    """Open a release, and load its backbone while the store is read and texts are chosen.

    Args:
        folder: The device's folder.
        path: The release's file.
        run: Times the stages.
        trust: See ``Device.replace``.
        allow_older: See ``Device.replace``.
        signed: Whether a signature of it was verified already.

    Raises:
        OlderReleaseError: It is older than an installed one, without ``allow_older``.
        BundleMismatchError: It is for another task, or lacks a label of the device's.
        BundleError: It cannot be trusted.
        DeviceChangedError: Another one was installed meanwhile.
    """
    run.check("open")
    with run.stage("open"):
        active = Task(folder).active
        bundle, head = open_release(path, hold=True, trust=trust)
        if not allow_older:
            try:
                check_version(folder.store, active.bundle.manifest, bundle.manifest)
            except OlderReleaseError as error:
                raise OlderReleaseError(f"{bundle.path}: {error}") from error
    with ThreadPoolExecutor(max_workers=1) as loader:
        backbone = lazy_backbone(bundle, lambda: loading.result())
        part = part_for(Task(folder), active, bundle, head, backbone)
        # A release that was installed before has been validated.
        installed_before = bundle.digest in folder.store.slots.bundles()
        loading = loader.submit(
            validate,
            bundle,
            folder.encoders,
            signed=signed or trust is not None,
            installed=installed_before,
        )
        yield part


def part_for(
    task: Task, active: OpenSlot, bundle: Bundle, head: Head, backbone: LazyBackbone
) -> Part:
    """A task's part in a replacement by a release, or an adapter.

    Args:
        task: The task.
        active: Its active slot.
        bundle: The bundle.
        head: Its head.
        backbone: Its backbone.

    Raises:
        BundleMismatchError: It is for another task, or lacks a label of the device's.
        BundleError: It cannot be trusted.
        DeviceChangedError: Another one was installed meanwhile.
    """
    labels = active.model.head.labels
    before = active.model.head
    continues = head.link.continues(before.link, head.labels, labels)
    if head.task != before.task or not continues:
        raise BundleMismatchError(f"{bundle.path}: for {head.asks}; this device does {before.asks}")
    added = [label for label in head.labels if label not in labels]
    with task.expecting(active):
        earlier = active.bundle.bridges()
    bridges = bundle.bridges()
    # Also where the active slot has a prompt: texts encoded without it can be mapped.
    digest = active.bundle.backbone_digest
    direct = bridges.get(digest)
    if direct is not None and len(direct.matrix) != active.bundle.manifest.dimension:
        raise DimensionError(
            f"{bundle.path}: its bridge starts from {counted(len(direct.matrix), 'dimension')}; "
            f"this device's backbone has {active.bundle.manifest.dimension}"
        )
    # A bridge from a backbone that this device never used maps nothing.
    usable = [
        bridge
        for bridge in reachable(bridges, earlier, digest)
        if bridge.source == active.record.backbone or task.store.embeddings.has(bridge.source)
    ]
    return Part(task, bundle, head.in_order([*labels, *added]), usable, backbone)


def prepare(
    part: Part,
    active: OpenSlot,
    run: Run,
    limit: int,
    *,
    evidence: int,
    earlier: Prepared | None = None,
    shared: Mapping[str, Vectors] | None = None,
) -> Prepared:
    """Fit a personal model on a release.

    Args:
        part: The task's part.
        active: Its active slot.
        run: Times the stages.
        limit: Forward passes, at most.
        evidence: Forward passes, at most, to compare the model with the active one.
        earlier: An earlier attempt, whose texts are encoded; None encodes them now.
        shared: Embeddings of the same backbone that were computed for another task.

    Raises:
        CancelledError: The app cancelled.
        BundleFormatError: The release's numbers are too large or too small for a fit.
    """
    task, bundle, head = part.task, part.bundle, part.head
    started = time.perf_counter()
    run.check("read")
    with run.stage("read"):
        snapshot = Snapshot(task.store, run)
        old = old_logits(snapshot, active) if active.model.head.labels == head.labels else None
        space = Space(
            head, bundle.backbone_digest, prior_of(bundle, head.labels), part.bridges,
            bundle.scales,
            # A vendor's model has no personal part to pass on.
            {} if old is None or active.model.is_vendor else old.differences(),
        )  # fmt: skip
        snapshot.add(space.backbone, shared or {})
        if earlier is not None:
            snapshot.add(space.backbone, earlier.embeddings)
        rows = gather(snapshot, space)
    if earlier is not None:
        choice, embeddings = earlier.choice, earlier.embeddings
    else:
        choice = _choice(
            rows, part, run, limit, evidence, lambda: old or old_logits(snapshot, active)
        )
        with run.stage("forward"):
            embeddings = forward(choice.texts, part.backbone.encode, run, free=part.static)
        if embeddings:
            with run.stage("read"):
                snapshot.add(space.backbone, embeddings)
                rows = gather(snapshot, space)
    run.check("solve")
    try:
        with run.stage("solve"):
            model = fit_rows(rows)
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        raise BundleFormatError(
            f"{bundle.path}: the numbers of its head, prior and bridges are too "
            f"large or too small for a fit ({error}); nothing was installed"
        ) from error
    if model.fit is None:
        reason = _vendor_reason(active, model.rows, texts=task.store.texts.kept)
        model = replace(model, verdict=replace(model.verdict, reason=reason))
    seconds = time.perf_counter() - started
    return Prepared(part, active, old, model, choice, embeddings, seconds)


def check(prepared: Prepared, run: Run) -> int:
    """Run the new model on the device's own texts.

    Returns:
        The number of texts.

    Raises:
        BundleError: It cannot be loaded, or fails on a text.
        CancelledError: The app cancelled.
    """
    part, model = prepared.part, prepared.model
    with run.stage("load"):
        backbone = part.backbone.loaded  # one that does not load must not be installed
    run.check("check")
    with run.stage("check"):
        texts: list[str] = []
        if part.task.store.texts.kept:
            newest = model.rows.snapshot.examples()[-PROBES:]
            texts = unique_texts(row.known for row in newest)
        if isinstance(backbone, ExternalEncoder):
            # The vendor's probes have passed; without a function it cannot encode texts.
            cannot_encode = not backbone.has_function and run.budget.forward_passes == 0
            if cannot_encode or not texts:
                return 0
        active_model = ActiveModel(model.model, part.backbone, model.verdict.threshold)
        return check_own_texts(active_model, part.bundle, texts[:PROBES])


def _choice(
    rows: Rows,
    part: Part,
    run: Run,
    limit: int,
    evidence: int,
    old: Callable[[], OldLogits | None],
) -> Choice:
    """The texts that the new backbone encodes before the first personal model.

    All of them if that costs no pass; over a bridge, or with n-grams, those to compare the models
    by; else representatives.
    """
    if not part.task.store.texts.kept:
        return Choice([])
    if part.static:
        return Choice(rows.pending_texts())
    if not (rows.ids or rows.pending):
        return Choice([])
    if part.instant:
        return choose_by_chance(rows, min(limit, evidence))
    with run.stage("select"):
        return choose(rows, np.empty((0, 1)), limit, limit, old)


def _vendor_reason(active: OpenSlot, rows: Rows, *, texts: bool) -> str:
    """Why the vendor's own model is installed."""
    if not rows.ids and not rows.pending:
        return "the device has no examples yet"
    if not rows.ids and not texts:
        return (
            f"{NOT_KEPT}, so that none of "
            f"{counted(len(rows.pending), 'example')} has an embedding; a "
            "release with a bridge from the old backbone would carry the personal model over"
        )
    if not rows.ids:
        return "the budget allows no representative"
    if active.model.is_vendor:
        return "there is no personal model and no label yet"
    return "there is neither a label nor an old logit to fit to"
