"""A replacement: prepare, compare, commit, refine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fala.bundle.signature import Trust
from fala.errors import DeviceChangedError
from fala.lexical.ngrams import LastNgrams
from fala.model.heads import Head
from fala.replacement.budget import Budget, Follower
from fala.replacement.choose import Choice
from fala.replacement.compare import Accept, compare, refuse_worse
from fala.replacement.fitting import Fitted
from fala.replacement.memory import Recalled, Taught
from fala.replacement.prepare import Preparation, Release, preparing
from fala.replacement.refine import Refined, Refinement, same_release
from fala.replacement.stages import Stages
from fala.solver.judge import decisions
from fala.store.installed import Installed, Move
from fala.store.open_slot import OpenSlot


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


def replace(
    installed: Installed,
    path: str,
    budget: Budget,
    stages: Stages,
    follower: Follower,
    positive: Callable[[Head], int],
    accept: Accept = "always",
    *,
    trust: Trust | None = None,
    allow_older: bool = False,
) -> Replaced:
    """Carry the personal model over to a new release.

    Args:
        installed: The device.
        path: The release's file.
        budget: What it may cost.
        stages: Times what is done.
        follower: Told of every stage.
        positive: Gives the label whose F1 thresholds are for, by head.
        accept: See ``Device.replace``.
        trust: See ``Device.replace``.
        allow_older: See ``Device.replace``.
    """
    now, last = installed.now, LastNgrams(installed.store.ngrams)
    with preparing(
        installed, path, budget, stages, follower, positive, now, last,
        trust=trust, allow_older=allow_older,
    ) as preparation:  # fmt: skip
        while True:
            try:
                replaced = _once(installed, preparation, now, stages, follower, positive, accept)
                break
            except DeviceChangedError:  # something was learned in between: all again
                found = installed.now
                if not same_release(found, now):
                    raise
                now = found
    release = replaced.release
    if release.static or budget.forward_passes == 0:
        return replaced
    # Without a bridge or words the budget has bought the first answer.
    if not release.instant and installed.store.keeping.texts:
        return replaced
    refinement = Refinement(installed, stages, follower, positive(release.head), last)
    known = replaced.recalled, replaced.fitted
    refined = refinement.run(budget, bridged=bool(release.bridges), known=known)
    return dataclasses.replace(replaced, refined=refined)


def _once(
    installed: Installed,
    preparation: Preparation,
    now: OpenSlot,
    stages: Stages,
    follower: Follower,
    positive: Callable[[Head], int],
    accept: Accept,
) -> Replaced:
    """Fit, compare, check and commit.

    Raises:
        DeviceChangedError: What answers was changed meanwhile.
    """
    release = preparation.release
    prepared = preparation.fit(now)
    recalled, fitted, taught = prepared.recalled, prepared.fitted, prepared.taught
    if accept != "always":
        with stages.stage("compare"):
            refuse_worse(compare(installed, prepared, positive), accept, release.bundle.path)
    backbone, probes = preparation.check(prepared)
    follower.check("commit")
    with stages.stage("commit"):
        logits = None
        if not now.model.is_vendor and taught is not None:
            logits = taught.logits, taught.vendor
        change = fitted.change(prepared.memory.data, prepared.encoded)
        installed.commit([Move(installed, now, release.bundle, change, logits)], backbone)
    follower.tell("commit", 1, 1)
    return Replaced(
        release, recalled, fitted, prepared.first,
        0 if release.static else len(prepared.encoded), prepared.seconds,
        _agreement(fitted, recalled, taught), len(recalled.ids) - recalled.real, probes,
        now.record.loss,
    )  # fmt: skip


def _agreement(fitted: Fitted, recalled: Recalled, taught: Taught | None) -> float | None:
    """Share of examples on which the fit, each left out, decides as the old model does."""
    if taught is None or not len(fitted.left_out):
        return None
    known = [position for position, row in enumerate(recalled.ids) if row in taught.logits]
    if not known:
        return None
    old = np.stack([taught.logits[recalled.ids[position]] for position in known])
    return float(np.mean(decisions(old) == decisions(fitted.left_out[known])))
