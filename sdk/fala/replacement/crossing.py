"""A replacement over a bridge: an answer before any forward pass, then a better one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from fala.bundle.format import WORD_VECTORS
from fala.bundle.reading import Bundle
from fala.model.answering import Answering
from fala.model.bridge import Bridge
from fala.model.heads import Head
from fala.replacement.fitting import Fitting
from fala.replacement.installed import Installed
from fala.replacement.memory import Kept, Memory, kept_view, knowledge_of, recall_from, recall_now
from fala.replacement.recall import Recalled, reachable
from fala.replacement.representing import Budget, Progress, Report, forward
from fala.selection.next_texts import BATCH, LARGEST_BATCH, LEAST_MOVE, agreement, move, next_texts

KeepOld = Literal["auto", "always", "never"]


def cross(
    installed: Installed,
    opened: Bundle,
    head: Head,
    bridges: Sequence[Bridge],
    keep_old: KeepOld,
    report: Report,
) -> None:
    """The instant stage: fit to estimates of the new embeddings, and let that answer.

    Args:
        installed: The device.
        opened: The new release.
        head: Its head.
        bridges: Those that lead to its backbone, the worst first.
        keep_old: Whether the old view goes on; see ``Device.replace``.
        report: Filled in.
    """
    started = time.perf_counter()
    now, memory = installed.now, Memory(installed.store)
    with ThreadPoolExecutor(max_workers=1) as loader:
        loading = loader.submit(opened.backbone)
        with report.stage("read"):
            ids, knowledge = knowledge_of(memory, now)
            # A vendor's model has nothing personal to hand on.
            taught = None if now.model.is_vendor else (ids, knowledge)
            moved = knowledge.logits - knowledge.vendor_logits
            view = _view_to_keep(now, keep_old, labelled=bool(knowledge.labelled.any()))
            recalled = recall_from(
                memory, head, opened.backbone_digest, bridges, view,
                dict(zip(ids, moved, strict=True)) if taught else {},
            )  # fmt: skip
        fitting = Fitting(head, opened.prior(), view, report)
        fitted = fitting.fit(recalled)
        if now.model.is_vendor and not recalled.labelled.any():
            nothing = "nothing personal is known" if recalled.examples else "no examples"
            fitted = fitting.vendor(f"{nothing} yet")
        seconds = time.perf_counter() - started
        with report.stage("load"):
            backbone = loading.result()  # one that does not load must not be committed
    _describe(recalled, report)
    report.bridged = len(recalled.examples) - report.representatives
    if knowledge.examples and len(fitted.left_out) == len(knowledge.examples):
        report.agreement = agreement(fitted.left_out, knowledge.logits)
    with report.stage("commit"):
        installed.commit(opened, backbone, fitted, taught)
    report.instant = {
        "decision": report.decision,
        "vendor_loss": report.vendor_loss,
        "personal_loss": report.personal_loss,
        "lambda_": report.lambda_,
        "threshold": fitted.threshold,
        "solves": report.solves,
        "columns": report.columns,
        "seconds": seconds,
    }


def refine(
    installed: Installed,
    budget: Budget,
    started: float,
    report: Report,
    progress: Progress | None,
) -> None:
    """Encode batches of texts, each followed by a fit that is kept with them.

    Args:
        installed: The device.
        budget: Further forward passes, and seconds.
        started: When the seconds began, by ``time.perf_counter``.
        report: Filled in.
        progress: Called after every batch.
    """
    now, memory = installed.now, Memory(installed.store)
    earlier = installed.earlier()
    static = now.bundle.manifest.kind == WORD_VECTORS
    left = total = None if static else budget.passes(bridged=True)
    deadline = None if budget.seconds is None else started + budget.seconds
    with report.stage("read"):
        recalled = recall_now(memory, now, earlier)
    fitting = Fitting(now.model.head, now.bundle.prior(), kept_view(now), report)
    telling = bool(recalled.telling.any())
    report.stopped = "the budget is spent" if telling else "there is no label to fit to"
    fitted = fitting.fit(recalled) if telling and left != 0 else None
    spent = 0
    while fitted is not None and left != 0:
        with report.stage("select"):
            # As many as before: a long refinement spends its time on texts, not on fits.
            size = min(max(BATCH, spent), LARGEST_BATCH)
            texts = next_texts(fitted.left_out, recalled, left)[:size]
        if not texts:
            report.stopped = "there is nothing left to encode"
            break
        with report.stage("forward"):
            encoded = forward(texts, now.backbone.encode, deadline, None)
        if not encoded:
            report.stopped = "the time is over"
            break
        spent += len(encoded)
        if left is not None and total is not None:
            left -= len(encoded)
            report.forward_passes = total - left
        with report.stage("read"):
            memory.add(now.record.backbone, encoded)
            recalled = recall_now(memory, now, earlier)
        before, fitted = fitted, fitting.fit(recalled)
        # The embeddings are kept with the model: what a pass cost is never paid twice.
        with report.stage("commit"):
            installed.keep(fitted, encoded)
        if progress is not None and total is not None:
            progress("forward", report.forward_passes, total)
        if len(encoded) < len(texts):
            report.stopped = "the time is over"
            break
        if left != 0 and move(before.left_out, fitted.left_out) < LEAST_MOVE:
            report.stopped = "the last texts changed next to nothing"
            break
    _describe(recalled, report)


def _describe(recalled: Recalled, report: Report) -> None:
    report.examples = len(recalled.examples)
    report.labelled = int(recalled.labelled.sum())
    report.representatives = sum(not texts for texts in recalled.missing)


def _view_to_keep(now: Answering, keep_old: KeepOld, *, labelled: bool) -> Kept | None:
    """The view that goes on: the active backbone's, or the one that it has beside it."""
    if keep_old == "never":
        return None
    if now.bundle.manifest.kind == WORD_VECTORS or keep_old == "always":
        # With labels what is personal is fitted anew; without, the old model alone knows it.
        model = now.model.head.vendor_model() if labelled else now.model
        bridges = reachable(now.bundle.bridges(), {}, "")
        return Kept(now.record.bundle, now.record.backbone, model, bridges)
    return kept_view(now)
