"""Preview a replacement: what it would be worth and cost, without its commit."""

from __future__ import annotations

import math
import time
from pathlib import Path

from fala.bundle.reading import named_errors
from fala.personal.compare import Sides
from fala.personal.prepare import Carried, check, opening, prepare
from fala.personal.run import Run
from fala.report import MIN_REAL, Preview
from fala.slots.admit import Origin
from fala.slots.folder import Task
from fala.slots.installing import bundle_path
from fala.solver.decision import MATTERS, MIN_LABELLED, NORMAL_95

_MEGABYTE = 1e6


def preview(task: Task, path: Path, run: Run, origin: Origin) -> Preview:
    """Prepare a replacement, compare it with the active model, and discard it.

    Args:
        task: The device's own task.
        path: The release's file.
        run: The run, which has the budget of the replacement.
        origin: The origin that the release must have.
    """
    budget = run.budget
    # Previewing an older release does no harm.
    with opening(task, path, run, origin, allow_older=True) as (before, release):
        limit = budget.passes(bridged=False)
        first = prepare(before, release, run, limit, evidence=MIN_REAL)
        probes = check(first, run)
        spent = time.perf_counter() - run.started
        sides = Sides(before.active, first.model, release.bundle.digest)
        comparison, changes = sides.compare(), sides.changes()
        passes = _passes_to_know(sides, first, comparison.labelled)
    further = _further(first, run)
    pace = run.seconds.get("check", 0.0) / max(probes, 1)
    # The texts that the replacement encodes before its first model are already encoded.
    encoded = len(first.embeddings)
    seconds = spent + further * pace
    if budget.seconds is not None:  # no more texts are encoded after that time
        seconds = min(seconds, max(spent, budget.seconds))
    bundle = release.bundle
    with named_errors(bundle.path):
        size = bundle.path.stat().st_size
    return Preview(
        old=before.release.name,
        new=release.name,
        decision=first.model.verdict.decision,
        comparison=comparison,
        changes=changes,
        passes_to_know=passes if comparison.worse is None else 0,
        seconds=seconds,
        megabytes=size / _MEGABYTE,
        disk_megabytes=_growth(first, size, encoded + further) / _MEGABYTE,
        forward_passes=further + first.encoded,
    )


def _passes_to_know(sides: Sides, first: Carried, compared: int) -> int | None:
    """Estimate the forward passes needed to know whether a user would be worse off.

    The spread of the loss differences, on estimated embeddings as well, determines how many
    examples give their mean to within ``MATTERS``.

    Args:
        sides: The labelled examples on the old and the new model.
        first: The first model on the new release.
        compared: Number of labelled examples that are already encoded.

    Returns:
        The number of forward passes; None if the user has too few labels.
    """
    waiting = sum(row.label is not None for row in first.model.rows.pending)
    losses = sides.measured(sides.labelled(), first.model.rows.space.head.link.losses)
    if losses is None or len(losses["old"]) < MIN_LABELLED:
        return None
    spread = float((losses["carried"] - losses["old"]).std(ddof=1))
    examples = max(MIN_LABELLED, math.ceil((NORMAL_95 * spread / MATTERS) ** 2))
    return None if examples > len(losses["old"]) + waiting else max(examples - compared, 0)


def _further(first: Carried, run: Run) -> int:
    """Return the number of texts that a refinement would encode after the first model, at most."""
    rows = first.model.rows
    if first.release.static or not rows.space.instant or not rows.reading.store.texts.kept():
        return 0
    pending = rows.pending_texts()
    remaining = run.budget.passes(bool(rows.space.bridges)) - len(first.embeddings)
    return min(remaining, len(pending))


def _growth(first: Carried, size: int, texts: int) -> int:
    """Return the number of bytes by which the device's folder would grow."""
    bundle, folder = first.release.bundle, first.task.folder
    in_use = folder.store.slots.bundles()
    # The idle slot is overwritten, and the bundle that only it uses is deleted.
    idle = in_use - {first.before.active.record.bundle, bundle.digest}
    files = [bundle_path(folder.path, digest) for digest in idle]
    deleted = sum(file.stat().st_size for file in files if file.is_file())
    embeddings = 2 * bundle.manifest.dimension * texts  # float16
    return embeddings - deleted + (0 if bundle.digest in in_use else size)
