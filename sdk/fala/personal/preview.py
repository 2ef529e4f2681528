"""Preview: what a replacement would be worth and cost, without its commit."""

from __future__ import annotations

import time

from fala.bundle.signature import Trust
from fala.personal.compare import compare
from fala.personal.prepare import Prepared, check, opening, prepare
from fala.personal.run import Run
from fala.report import Preview
from fala.slots.bundles import bundle_path
from fala.slots.installed import Installed
from fala.text.lexicon import CachedRows

_MEGABYTE = 1e6


def preview(installed: Installed, path: str, run: Run, trust: Trust | None = None) -> Preview:
    """Prepare a replacement, compare, and discard it.

    Args:
        installed: The device.
        path: The release's file.
        run: What the replacement may cost.
        trust: See ``Device.replace``.
    """
    ngrams, budget = CachedRows(installed.store.texts.ngrams), run.budget
    # An older release does no harm here.
    with opening(installed, path, run, trust=trust, allow_older=True) as part:
        active = part.task.active
        prepared = prepare(part, active, run, ngrams, budget.passes(bridged=False))
        _, probes = check(prepared, run)
        spent = time.perf_counter() - run.started
        compared = compare(part.task, active, prepared.refit, prepared.judged)
    further = _further(prepared, run)
    pace = run.seconds.get("check", 0.0) / max(probes, 1)
    # Texts that the replacement encodes before its first model are encoded by now.
    encoded = len(prepared.first.embeddings)
    seconds = spent + further * pace
    if budget.seconds is not None:  # no more texts are encoded after it
        seconds = min(seconds, max(spent, budget.seconds))
    bundle = part.release.bundle
    size = bundle.path.stat().st_size
    return Preview(
        old=active.bundle.manifest.name,
        new=bundle.manifest.name,
        decision=prepared.judged.decision,
        labelled=compared.labelled,
        old_loss=compared.old,
        vendor_loss=compared.vendor,
        carried_loss=compared.carried,
        to_old=compared.to_old,
        to_vendor=compared.to_vendor,
        releases=compared.releases,
        seconds=seconds,
        megabytes=size / _MEGABYTE,
        disk_megabytes=_growth(installed, prepared, size, encoded + further) / _MEGABYTE,
        forward_passes=further + (0 if part.release.static else encoded),
    )


def _further(prepared: Prepared, run: Run) -> int:
    """Texts that a refinement would encode after the first model, at most."""
    release = prepared.part.release
    if release.static or not release.instant or not prepared.part.task.store.texts.kept:
        return 0
    pending = prepared.refit.rows.pending_texts()
    return min(run.budget.passes(bool(release.bridges)), len(pending))


def _growth(installed: Installed, prepared: Prepared, size: int, texts: int) -> int:
    """Bytes by which the device's folder would grow."""
    bundle = prepared.part.release.bundle
    kept = installed.store.slots.bundles()
    # The slot that is not active is overwritten, and what only it uses is deleted.
    idle = kept - {prepared.active.record.bundle, bundle.digest}
    files = [bundle_path(installed.path, digest) for digest in idle]
    deleted = sum(file.stat().st_size for file in files if file.is_file())
    embeddings = 2 * bundle.manifest.dimension * texts  # float16
    return embeddings - deleted + (0 if bundle.digest in kept else size)
