"""A replacement: prepare, compare, commit, refine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fala.bundle.signature import Trust
from fala.errors import DeviceChangedError
from fala.model.heads import Vectors
from fala.personal.adapters import Adapters, loader_of, open_new_adapters
from fala.personal.budget import Budget, Follower
from fala.personal.choose import Choice
from fala.personal.compare import Accept, compare, refuse_worse
from fala.personal.fitting import Fitted
from fala.personal.memory import Recalled, Taught
from fala.personal.prepare import Preparation, Prepared, Release, preparing
from fala.personal.prompts import Prompted, mix_prompts
from fala.personal.refine import Refined, Refinement, same_release
from fala.personal.stages import Stages
from fala.slots.installed import Installed, Move
from fala.slots.open_slot import OpenSlot
from fala.slots.task import Task
from fala.solver.judge import decisions
from fala.text.lexicon import CachedRows


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
        adapters: What it did for the further tasks, by their adapters' names.
        prompted: What became of the release's prompts; None where they were not asked for.
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
    adapters: Mapping[str, Replaced] = field(default_factory=dict)
    prompted: Prompted | None = None


@dataclass(eq=False)
class _Part:
    """A task's part in a replacement under way."""

    task: Task
    now: OpenSlot
    preparation: Preparation


def replace(
    installed: Installed,
    path: str,
    budget: Budget,
    stages: Stages,
    follower: Follower,
    accept: Accept = "always",
    *,
    trust: Trust | None = None,
    allow_older: bool = False,
    adapters: Adapters = (),
    prompts: bool = False,
) -> Replaced:
    """Carry the personal models over to a new release.

    Args:
        installed: The device.
        path: The release's file.
        budget: What it may cost, for all tasks together.
        stages: Times what is done.
        follower: Told of every stage.
        accept: See ``Device.replace``.
        trust: See ``Device.replace``.
        allow_older: See ``Device.replace``.
        adapters: The further tasks' adapters for it.
        prompts: Whether its writers' prompts are mixed for the user, at last.
    """
    now, last = installed.now, CachedRows(installed.store.texts.ngrams)
    with preparing(
        installed, path, budget, stages, follower, now, last, trust=trust, allow_older=allow_older
    ) as preparation:
        release = preparation.release
        parts = [_Part(installed, now, preparation)]
        with stages.stage("open"):
            further = open_new_adapters(installed, release, adapters, trust)
        encoded: dict[str, dict[str, Vectors]] = {}
        for task, before, adapter in further:
            digest = adapter.bundle.backbone_digest
            load = loader_of(preparation.load, adapter.bundle)
            parts.append(_Part(task, before, Preparation(
                task, adapter, budget, stages, follower, last, load, encoded.setdefault(digest, {})
            )))  # fmt: skip
        while True:
            try:
                replaced = _once(installed, parts, budget, stages, follower, accept)
                break
            except DeviceChangedError:  # something was learned in between: all again
                for part in parts:
                    found = part.task.now
                    if not same_release(found, part.now):
                        raise
                    part.now = found
                if installed.store.slots.adapters() != [task.store.adapter for task, *_ in further]:
                    raise
    done = _refined(parts, replaced, budget, stages, follower, last)
    if not prompts:
        return done
    left = budget.passes(bool(release.bridges)) - _spent(done)
    prompted = mix_prompts(installed, budget, left, stages, follower)
    return dataclasses.replace(done, prompted=prompted)


def _spent(done: Replaced) -> int:
    """Forward passes of a replacement, for all tasks."""
    own = done.encoded + (0 if done.refined is None else done.refined.forward_passes)
    return own + sum(_spent(one) for one in done.adapters.values())


def _once(
    installed: Installed,
    parts: Sequence[_Part],
    budget: Budget,
    stages: Stages,
    follower: Follower,
    accept: Accept,
) -> list[Replaced]:
    """Fit, compare, check and commit, every task.

    Raises:
        DeviceChangedError: What answers was changed meanwhile.
    """
    prepared: list[Prepared] = []
    spent = sum(part.preparation.passes for part in parts)
    for place, part in enumerate(parts):
        preparation = part.preparation
        left = budget.passes(bridged=False) - spent
        preparation.limit = _share(left, len(parts) - place)
        before = preparation.passes
        prepared.append(preparation.fit(part.now))
        spent += preparation.passes - before
        if accept != "always":
            with stages.stage("compare"):
                path = preparation.release.bundle.path
                refuse_worse(compare(part.task, prepared[-1]), accept, path)
    checked = [part.preparation.check(one) for part, one in zip(parts, prepared, strict=True)]
    follower.check("commit")
    moves: list[Move] = []
    for part, one in zip(parts, prepared, strict=True):
        logits = None
        if not part.now.model.is_vendor and one.taught is not None:
            logits = one.taught.logits, one.taught.vendor
        change = one.fitted.change(one.memory.data, one.encoded)
        moves.append(Move(part.task, part.now, part.preparation.release.bundle, change, logits))
    with stages.stage("commit"):
        installed.commit(moves, checked[0][0])
    follower.tell("commit", 1, 1)
    return [
        Replaced(
            part.preparation.release, one.recalled, one.fitted, one.first,
            0 if part.preparation.release.static else part.preparation.passes, one.seconds,
            _agreement(one.fitted, one.recalled, one.taught),
            len(one.recalled.ids) - one.recalled.real, probes, part.now.record.loss,
        )
        for part, one, (_, probes) in zip(parts, prepared, checked, strict=True)
    ]  # fmt: skip


def _refined(
    parts: Sequence[_Part],
    replaced: Sequence[Replaced],
    budget: Budget,
    stages: Stages,
    follower: Follower,
    last: CachedRows,
) -> Replaced:
    """Spend what is left of the budget on every task in turn."""
    spent, done = 0, list(replaced)
    bridged = bool(parts[0].preparation.release.bridges)
    passes = budget.passes(bridged) - sum(one.encoded for one in replaced)
    for place, (part, one) in enumerate(zip(parts, replaced, strict=True)):
        release = one.release
        if release.static or budget.forward_passes == 0:
            continue
        # Without a bridge or words the budget has bought the first answer.
        if not release.instant and part.task.store.texts.kept:
            continue
        refinement = Refinement(part.task, stages, follower, part.task.positive(release.head), last)
        own = dataclasses.replace(budget, forward_passes=_share(passes - spent, len(parts) - place))
        known = one.recalled, one.fitted
        refined = refinement.run(own, bridged=bool(release.bridges), known=known)
        spent += refined.forward_passes
        done[place] = dataclasses.replace(one, refined=refined)
    further = {part.task.store.adapter: one for part, one in zip(parts[1:], done[1:], strict=True)}
    return dataclasses.replace(done[0], adapters=further)


def _share(left: int, tasks: int) -> int:
    """A task's share of the forward passes that are left for it and those after it."""
    return -(-max(left, 0) // tasks)


def _agreement(fitted: Fitted, recalled: Recalled, taught: Taught | None) -> float | None:
    """Share of examples on which the fit, each left out, decides as the old model does."""
    if taught is None or not len(fitted.left_out):
        return None
    known = [position for position, row in enumerate(recalled.ids) if row in taught.logits]
    if not known:
        return None
    old = np.stack([taught.logits[recalled.ids[position]] for position in known])
    return float(np.mean(decisions(old) == decisions(fitted.left_out[known])))
