"""The read-only part of a replacement: open, read, encode, fit, load, probe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fala.backbones.external import ExternalEncoder
from fala.base.errors import (
    BundleFormatError,
    BundleMismatchError,
    OlderReleaseError,
    counted,
)
from fala.base.examples import unique_texts
from fala.bundle.manifest import Manifest
from fala.bundle.reading import Bundle
from fala.model.bridge import Bridge, reachable
from fala.personal.choose import Choice, choose, labelled_first
from fala.personal.encode import Encoded, forward
from fala.personal.gather import (
    GatheredRows,
    OldLogits,
    Reading,
    Space,
    gather,
    old_logits,
)
from fala.personal.refit import Refit, fit_rows
from fala.personal.run import Run
from fala.selection.representatives import affordable
from fala.slots.admit import Origin, admit
from fala.slots.folder import Folder, Snapshot, Task
from fala.slots.release import Release
from fala.slots.switching import opened
from fala.slots.validation import PROBES, check_own_texts
from fala.store.texts import NOT_KEPT


@dataclass(frozen=True, eq=False)
class Carried:
    """The first personal model of a task on a new release or adapter.

    Attributes:
        before: The snapshot of the task that it was prepared from.
        release: The new release, with its head's labels in the device's order.
        old: The old logits; None if the labels differ.
        model: The new model.
        choice: The texts chosen for the new backbone to encode; empty over a bridge.
        embeddings: The new backbone's embeddings of the texts that were encoded, by text.
        seconds: Wall time to read, encode and fit, in seconds.
    """

    before: Snapshot
    release: Release
    old: OldLogits | None
    model: Refit
    choice: Choice
    embeddings: Encoded
    seconds: float

    @property
    def task(self) -> Task:
        """The task."""
        return self.before.task

    @property
    def encoded(self) -> int:
        """Number of forward passes spent on the model."""
        return 0 if self.release.static else len(self.embeddings)


@contextmanager
def opening(
    task: Task, path: Path, run: Run, origin: Origin, *, allow_older: bool
) -> Iterator[tuple[Snapshot, Release]]:
    """Open a release, and load its backbone while the store is read and texts are chosen.

    Args:
        task: The device's own task.
        path: The release's file.
        run: The run, which times the stages.
        origin: The origin that the release must have.
        allow_older: Whether the release may be older than an installed one.

    Yields:
        The snapshot of the task, and the release for it.

    Raises:
        OlderReleaseError: If the release is older than an installed one, without ``allow_older``.
        BundleMismatchError: If the release is for another task, or lacks a label of the device.
        BundleError: If the release cannot be trusted.
    """
    run.check("open")
    with run.stage("open"):
        folder, before = task.folder, opened(task)
        release = admit(path, origin, folder.encoders, folder.releases)
        if not allow_older:
            _check_version(folder, before.release.bundle.manifest, release.bundle)
        release = successor(before, release)
    with ThreadPoolExecutor(max_workers=1) as loader:
        yield before, release.loading(loader)


def successor(before: Snapshot, release: Release) -> Release:
    """Return a release or an adapter as a task's next one, with labels in the device's order.

    Args:
        before: The snapshot of the task.
        release: The release.

    Raises:
        BundleMismatchError: If the release is for another task, or lacks a label of the device.
        BundleFormatError: If the release's bridge starts from embeddings of another length.
    """
    head, old, bundle = release.head, before.head, release.bundle
    continues = head.link.continues(old.link, head.labels, old.labels) or (
        # The app itself may add tags, but old sets of tags say nothing about a vendor's further
        # tag.
        release.own and head.link == old.link and set(old.names) <= set(head.names)
    )
    if head.task != old.task or not continues:
        raise BundleMismatchError(
            f"{bundle.path}: this release is for {head.described}, but this device does "
            f"{old.described}"
        )
    dimension = before.release.bundle.manifest.dimension
    direct = release.bridges.get(before.backbone)
    if direct is not None and len(direct.matrix) != dimension:
        raise BundleFormatError(
            f"{bundle.path}: its bridge starts from {counted(len(direct.matrix), 'dimension')}, "
            f"but this device's backbone has {dimension}"
        )
    added = [label for label in head.labels if str(label) not in old.names]
    return replace(release, head=head.in_order([*old.labels, *added]))


def _bridges(before: Snapshot, release: Release) -> list[Bridge]:
    """Return the bridges to a release from the backbones that a task has used, the worst first."""
    embeddings = before.task.store.embeddings
    # A bridge from a backbone that this device never used has nothing to map.
    return [
        bridge
        for bridge in reachable(release.bridges, before.release.bridges, before.backbone)
        if bridge.source == before.backbone or embeddings.has(bridge.source)
    ]


def prepare(
    before: Snapshot,
    release: Release,
    run: Run,
    limit: int,
    *,
    evidence: int,
    earlier: Carried | None = None,
    shared: Encoded | None = None,
) -> Carried:
    """Fit a personal model on a release.

    Args:
        before: The snapshot of the task.
        release: The release; see ``successor``.
        run: The run, which times the stages.
        limit: The most forward passes.
        evidence: The most forward passes to compare the model with the active one.
        earlier: An earlier attempt, whose texts are encoded; None encodes them now.
        shared: Embeddings of the same backbone that were computed for another task.

    Raises:
        CancelledError: If the app cancels.
        BundleFormatError: If the release's numbers are too large or too small for a fit.
    """
    head = release.head
    started = time.perf_counter()
    run.check("read")
    with run.stage("read"):
        reading = Reading(before, run)
        old = old_logits(reading, before.active) if before.head.names == head.names else None
        space = Space(
            head, release.bundle.backbone_digest, _bridges(before, release), release.bundle.scales,
            {} if old is None else old.passed_on(head),
        )  # fmt: skip
        reading.add(space.backbone, shared or {})
        if earlier is not None:
            reading.add(space.backbone, earlier.embeddings)
        rows = gather(reading, space)
    if earlier is not None:
        choice, embeddings = earlier.choice, earlier.embeddings
    else:
        choice = _choice(
            rows, release, run, limit, evidence, lambda: old or old_logits(reading, before.active)
        )
        with run.stage("forward"):
            embeddings = forward(choice.texts, release.backbone.encode, run, free=release.static)
        if embeddings:
            with run.stage("read"):
                reading.add(space.backbone, embeddings)
                rows = gather(reading, space)
    run.check("solve")
    try:
        with run.stage("solve"):
            model = fit_rows(rows)
    except (np.linalg.LinAlgError, ArithmeticError) as error:
        raise BundleFormatError(
            f"{release.bundle.path}: the numbers of its head and bridges are too "
            f"large or too small for a fit ({error}); nothing was installed"
        ) from error
    if model.fit is None:
        reason = _vendor_reason(before, model.rows)
        model = replace(model, verdict=replace(model.verdict, reason=reason))
    seconds = time.perf_counter() - started
    return Carried(before, release, old, model, choice, embeddings, seconds)


def _check_version(folder: Folder, active: Manifest, bundle: Bundle) -> None:
    """Refuse a release of another product, or older than one that this device has had.

    A release without a version, or without a product, is not compared.

    Args:
        folder: The device's folder.
        active: The manifest of the active release.
        bundle: The bundle of the new release.

    Raises:
        OlderReleaseError: If the release is older, or of another product.
    """
    new, path = bundle.manifest, bundle.path
    hint = "pass allow_older=True to install it all the same"
    if new.product is not None and active.product is not None and new.product != active.product:
        raise OlderReleaseError(
            f"{path}: this is a release of {new.product}, and this device has one of "
            f"{active.product}; {hint}"
        )
    newest = folder.store.settings.admission().versions.get(new.product or "")
    if new.version is not None and newest is not None and new.version < newest:
        raise OlderReleaseError(
            f"{path}: this is version {new.version}, and this device has had version {newest} "
            f"already; use rollback to go back to the release before the last, or {hint}"
        )


def check(carried: Carried, run: Run) -> int:
    """Run the new model on the device's own texts.

    Returns:
        The number of texts.

    Raises:
        BundleError: If the model cannot be loaded, or fails on a text.
        CancelledError: If the app cancels.
    """
    release, model = carried.release, carried.model
    reading = model.rows.reading
    with run.stage("load"):
        backbone = release.backbone.load()  # a backbone that does not load must not be installed
    run.check("check")
    with run.stage("check"):
        texts: list[str] = []
        if reading.store.texts.kept():
            newest = reading.examples()[-PROBES:]
            texts = unique_texts(row.stored for row in newest)
        if isinstance(backbone, ExternalEncoder):
            # The vendor's probes have passed. Without a function, the app's encoder cannot encode
            # texts.
            cannot_encode = backbone.function is None and run.budget.forward_passes == 0
            if cannot_encode or not texts:
                return 0
        encode = release.backbone.encode
        return check_own_texts(model.model, encode, release.bundle, texts[:PROBES])


def _choice(
    rows: GatheredRows,
    release: Release,
    run: Run,
    limit: int,
    evidence: int,
    old: Callable[[], OldLogits | None],
) -> Choice:
    """Return the texts that the new backbone encodes before the first personal model.

    They are all texts if encoding costs no pass; over a bridge or with n-grams, those by which the
    models are compared; and otherwise representatives.
    """
    if not rows.reading.store.texts.kept():
        return Choice([])
    if release.static:
        return Choice(rows.pending_texts())
    if not (rows.ids or rows.pending):
        return Choice([])
    if rows.space.instant:
        order = labelled_first(rows.ids, rows.training.labelled)
        missing = [rows.missing[position] for position in order]
        return Choice(affordable(missing, min(limit, evidence)))
    with run.stage("select"):
        return choose(rows, np.empty((0, 1)), limit, limit, old)


def _vendor_reason(before: Snapshot, rows: GatheredRows) -> str:
    """Return why the vendor's own model is installed."""
    if not rows.ids and not rows.pending:
        return "the device has no examples yet"
    if not rows.ids and not rows.reading.store.texts.kept():
        return (
            f"{NOT_KEPT}, and none of {counted(len(rows.pending), 'example')} has an embedding; a "
            "release with a bridge from the old backbone would carry the personal model over"
        )
    if not rows.ids:
        return "the budget allows no representative"
    if before.model.is_vendor:
        return "there is no personal model and no label yet"
    return "there is neither a label nor an old logit to fit to"
