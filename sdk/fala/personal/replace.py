"""Replace: prepare, compare, check, install, refine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fala.bundle.signature import Trust
from fala.errors import BundleError, DeviceChangedError
from fala.model.heads import Vectors
from fala.personal.adapters import Adapters, adapter_parts
from fala.personal.compare import Accept, compare, refuse_worse
from fala.personal.prepare import First, Part, Prepared, check, opening, prepare
from fala.personal.refine import Refined, refine
from fala.personal.refit import Refit, until_committed
from fala.personal.run import Run
from fala.report import MIN_REAL, Comparison
from fala.slots.installed import Installed, Move
from fala.slots.open_slot import OpenSlot
from fala.solver.judge import decisions
from fala.text.lexicon import CachedRows


@dataclass(frozen=True)
class Terms:
    """On what terms a release is installed; see ``Device.replace``.

    Attributes:
        accept: What it must not be proven worse than.
        trust: The key that must have signed it.
        allow_older: Whether an older one is taken.
        adapters: The further tasks' adapters for it.
    """

    accept: Accept = "always"
    trust: Trust | None = None
    allow_older: bool = False
    adapters: Adapters = ()


@dataclass(frozen=True, eq=False)
class Replaced:
    """What a replacement did for a task.

    Attributes:
        prepared: The first personal model on the new release, and all that it was made of.
        probes: Texts that the new release had to answer.
        refined: The refinement; None where there was no budget for it.
        comparison: The model at the end and the old one; None where that is gone.
        adapters: What was done for the further tasks, by their adapters' names.
    """

    prepared: Prepared
    probes: int
    refined: Refined | None = None
    comparison: Comparison | None = None
    adapters: Mapping[str, Replaced] = field(default_factory=dict)

    @property
    def encoded(self) -> int:
        """Forward passes before the first model was installed."""
        release = self.prepared.part.release
        return 0 if release.static else len(self.prepared.first.embeddings)

    @property
    def last(self) -> Refit:
        """The examples' rows at the end, and the last model."""
        return self.prepared.refit if self.refined is None else self.refined.last

    @property
    def passes(self) -> int:
        """Forward passes for all tasks together."""
        refined = 0 if self.refined is None else self.refined.forward_passes
        return self.encoded + refined + sum(one.passes for one in self.adapters.values())

    def passes_left(self, run: Run) -> int:
        """Forward passes that are left of the run's budget."""
        return run.budget.passes(bool(self.prepared.part.release.bridges)) - self.passes

    def agreement(self) -> float | None:
        """Share of examples on which the first fit, each left out, decides as the old model does.

        None where there is no old model to compare with, or nothing was fitted.
        """
        old, model, ids = self.prepared.old, self.prepared.judged, self.prepared.refit.rows.ids
        if old is None or not len(model.left_out):
            return None
        both = [position for position, row in enumerate(ids) if row in old.logits]
        if not both:
            return None
        before = np.stack([old.logits[ids[position]] for position in both])
        return float(np.mean(decisions(before) == decisions(model.left_out[both])))


def replace(installed: Installed, path: str, run: Run, terms: Terms) -> Replaced:
    """Carry the personal models over to a new release.

    Args:
        installed: The device.
        path: The release's file.
        run: The budget, for all tasks together, and the app's progress.
        terms: See above.
    """
    ngrams = CachedRows(installed.store.texts.ngrams)
    with opening(installed, path, run, trust=terms.trust, allow_older=terms.allow_older) as own:
        with run.stage("open"):
            parts = [own, *adapter_parts(installed, own, terms.adapters, terms.trust)]
        began = [part.task.active for part in parts]
        first: dict[str, First] = {}

        def attempt(slots: Sequence[OpenSlot]) -> list[Replaced]:
            return _install(installed, parts, slots, run, ngrams, terms.accept, first)

        replaced = until_committed([part.task for part in parts], attempt, began)
    return _refine(replaced, run, ngrams)


def _install(
    installed: Installed,
    parts: Sequence[Part],
    slots: Sequence[OpenSlot],
    run: Run,
    ngrams: CachedRows,
    accept: Accept,
    first: dict[str, First],
) -> list[Replaced]:
    """Fit, compare, check and install, every task.

    Args:
        installed: The device.
        parts: The tasks' parts, the device's own first.
        slots: Their active slots.
        run: See ``replace``.
        ngrams: See ``Snapshot``.
        accept: See ``Device.replace``.
        first: The texts that an earlier attempt has encoded, by task; written.

    Raises:
        DeviceChangedError: An active model was changed meanwhile.
    """
    prepared: list[Prepared] = []
    encoded: dict[str, dict[str, Vectors]] = {}
    for position, (part, slot) in enumerate(zip(parts, slots, strict=True)):
        adapter, digest = part.task.adapter, part.release.bundle.backbone_digest
        spent = sum(len(one.embeddings) for name, one in first.items() if name != adapter)
        limit = _share(run.budget.passes(bridged=False) - spent, len(parts) - position)
        shared = encoded.setdefault(digest, {})
        evidence = 0 if accept == "always" else MIN_REAL
        one = prepare(part, slot, run, ngrams, limit, first.get(adapter), shared, evidence)
        first[adapter] = one.first
        shared.update(one.first.embeddings)
        prepared.append(one)
        if accept != "always":
            with run.stage("compare"):
                comparison = compare(part.task, slot, one.refit, one.judged)
                refuse_worse(comparison, accept, part.release.bundle.path)
    checked = [check(one, run) for one in prepared]
    run.check("commit")
    moves: list[Move] = []
    for one in prepared:
        old, task, bundle = one.old, one.part.task, one.part.release.bundle
        logits = None
        if old is not None and not one.active.model.is_vendor:
            logits = old.logits, old.vendor
        embeddings = encoded[bundle.backbone_digest]
        data = one.refit.snapshot.data
        change = one.judged.change(data, embeddings)
        moves.append(Move(task, one.active, bundle, change, logits, data))
    with run.stage("commit"):
        installed.install(moves, checked[0][0])
    run.report("commit", 1, 1)
    return [Replaced(one, probes) for one, (_, probes) in zip(prepared, checked, strict=True)]


def _refine(replaced: Sequence[Replaced], run: Run, ngrams: CachedRows) -> Replaced:
    """Spend what is left of the budget on every task in turn."""
    bridged = bool(replaced[0].prepared.part.release.bridges)
    left = run.budget.passes(bridged) - sum(one.encoded for one in replaced)
    done: list[Replaced] = []
    for position, one in enumerate(replaced):
        task, release = one.prepared.part.task, one.prepared.part.release
        # Without a bridge or n-grams the budget has bought the first model.
        refinable = release.instant or not task.store.texts.kept
        if release.static or run.budget.forward_passes == 0 or not refinable:
            done.append(one)
            continue
        start = dataclasses.replace(one.prepared.refit, judged=one.prepared.judged)
        share = _share(left, len(replaced) - position)
        refined = refine(task, run, share, ngrams=ngrams, start=start)
        left -= refined.forward_passes
        done.append(dataclasses.replace(one, refined=refined))
    with run.stage("compare"):
        done = [_compared(one) for one in done]
    adapters = {one.prepared.part.task.adapter: one for one in done[1:]}
    return dataclasses.replace(done[0], adapters=adapters)


def _compared(replaced: Replaced) -> Replaced:
    """What a replacement did, with the verdict on it."""
    prepared, last = replaced.prepared, replaced.last
    model = prepared.judged if last.judged is None else last.judged
    try:
        comparison = compare(prepared.part.task, prepared.active, last, model)
    except (BundleError, DeviceChangedError):  # another replacement has deleted the old release
        return replaced
    return dataclasses.replace(replaced, comparison=comparison)


def _share(left: int, tasks: int) -> int:
    """A task's share of the forward passes that are left for it and those after it."""
    return -(-max(left, 0) // tasks)
