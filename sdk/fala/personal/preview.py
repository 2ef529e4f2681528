"""What a replacement would be worth and cost: all of it but the commit."""

from __future__ import annotations

import time

from fala.bundle.signature import Trust
from fala.personal.budget import Budget, Follower
from fala.personal.compare import compare
from fala.personal.prepare import Prepared, Release, preparing
from fala.personal.stages import Stages
from fala.report import Preview
from fala.slots.bundles import bundle_path
from fala.slots.installed import Installed
from fala.text.lexicon import CachedRows

_MEGABYTE = 1e6


def preview(
    installed: Installed,
    path: str,
    budget: Budget,
    trust: Trust | None = None,
) -> Preview:
    """Prepare a replacement, compare, and throw it away.

    Args:
        installed: The device.
        path: The release's file.
        budget: What the replacement may cost.
        trust: See ``Device.replace``.
    """
    started = time.perf_counter()
    now, stages = installed.now, Stages()
    with preparing(
        installed, path, budget, stages, Follower(None), now,
        CachedRows(installed.store.texts.ngrams),
        trust=trust, allow_older=True,  # to look at one does no harm
    ) as preparation:  # fmt: skip
        prepared = preparation.fit(now)
        release = preparation.release
        _, probes = preparation.check(prepared)
        spent = time.perf_counter() - started
        compared = compare(installed, prepared)
    further = _further(release, prepared, budget)
    pace = stages.seconds.get("check", 0.0) / max(probes, 1)
    # Texts that the replacement encodes before it answers are encoded by now.
    encoded = len(prepared.encoded)
    passes = further + (0 if release.static else encoded)
    seconds = spent + further * pace
    if budget.seconds is not None:  # no more texts are encoded after it
        seconds = min(seconds, max(spent, budget.seconds))
    size = release.bundle.path.stat().st_size
    return Preview(
        old=now.bundle.manifest.name,
        new=release.bundle.manifest.name,
        decision=prepared.fitted.decision,
        labelled=compared.labelled,
        old_loss=compared.old,
        vendor_loss=compared.vendor,
        carried_loss=compared.carried,
        to_old=compared.to_old,
        to_vendor=compared.to_vendor,
        releases=compared.releases,
        seconds=seconds,
        megabytes=size / _MEGABYTE,
        disk_megabytes=_growth(installed, release, size, encoded + further) / _MEGABYTE,
        forward_passes=passes,
    )


def _further(release: Release, prepared: Prepared, budget: Budget) -> int:
    """Texts that a refinement would encode after the first answer, at most."""
    if release.static or not release.instant or not prepared.memory.store.texts.kept:
        return 0
    return min(budget.passes(bool(release.bridges)), len(prepared.recalled.unseen()))


def _growth(installed: Installed, release: Release, size: int, texts: int) -> int:
    """Bytes by which the device's folder would grow."""
    known = installed.store.slots.bundles()
    digest = release.bundle.digest
    # The slot that does not answer is overwritten, and what only it uses is deleted.
    idle = known - {installed.now.record.bundle, digest}
    files = [bundle_path(installed.path, name) for name in idle]
    gone = sum(file.stat().st_size for file in files if file.is_file())
    embeddings = 2 * release.bundle.manifest.dimension * texts  # float16
    return embeddings - gone + (0 if digest in known else size)
