"""Replace: prepare, compare, check, install, refine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fala.bundle.signature import Trust
from fala.model.heads import Vectors
from fala.personal.adapters import Adapters, adapter_parts
from fala.personal.compare import Accept, compare, compare_or_none, refuse_worse
from fala.personal.prepare import Part, Prepared, check, opening, prepare
from fala.personal.refine import Refined, refine
from fala.personal.refit import Refit, until_committed
from fala.personal.run import Run
from fala.report import MIN_REAL, Comparison
from fala.slots.folder import Folder
from fala.slots.installing import Move, install_release
from fala.slots.open_slot import OpenSlot


@dataclass(frozen=True)
class Terms:
    """On what terms a release is installed; see ``Device.replace``.

    Attributes:
        accept: The model that it must not be proven worse than.
        trust: The key that must have signed it.
        allow_older: Whether an older one is accepted.
        signed: Whether a signature of it was verified already: an update's.
        adapters: The further tasks' adapters for it.
        prompt: Whether a prompt is tried with the rest of the budget.
    """

    accept: Accept = "always"
    trust: Trust | None = None
    allow_older: bool = False
    signed: bool = False
    adapters: Adapters = ()
    prompt: bool = False


@dataclass(frozen=True, eq=False)
class Replaced:
    """The result of a replacement for a task.

    Attributes:
        prepared: The first personal model on the new release.
        probes: Texts that the new release was checked on.
        refined: The refinement; None without a budget for it.
        comparison: The final model compared with the old one; None if that is deleted.
        adapters: The results for the further tasks, by their adapters' names.
        passes_left: The rest of the budget, in forward passes.
    """

    prepared: Prepared
    probes: int
    refined: Refined | None = None
    comparison: Comparison | None = None
    adapters: Mapping[str, Replaced] = field(default_factory=dict)
    passes_left: int = 0

    @property
    def last(self) -> Refit:
        """The last model; where a refinement had nothing to fit to, the first with its rows."""
        first = self.prepared.model
        if self.refined is None or self.refined.last.fit is not None:
            return first if self.refined is None else self.refined.last
        return dataclasses.replace(first, rows=self.refined.last.rows)

    @property
    def passes(self) -> int:
        """Forward passes for this task."""
        refined = 0 if self.refined is None else self.refined.forward_passes
        return self.prepared.encoded + refined

    def agreement(self) -> float | None:
        """Share of examples on which the first fit, each left out, decides as the old model does.

        None where there is no old model to compare with, or nothing was fitted.
        """
        old, model = self.prepared.old, self.prepared.model
        ids = model.rows.ids
        if old is None or model.fit is None:
            return None
        both = [position for position, row in enumerate(ids) if row in old.logits]
        if not both:
            return None
        before = np.stack([old.logits[ids[position]] for position in both])
        classes = model.rows.space.head.link.classes
        return float(np.mean(classes(before) == classes(model.left_out[both])))


def replace(folder: Folder, path: Path, run: Run, terms: Terms) -> Replaced:
    """Carry the personal models over to a new release.

    Args:
        folder: The device's folder.
        path: The release's file.
        run: The budget, for all tasks together, and the app's progress.
        terms: See above.
    """
    with opening(
        folder, path, run,
        trust=terms.trust, allow_older=terms.allow_older, signed=terms.signed,
    ) as first:  # fmt: skip
        with run.stage("open"):
            parts = [first, *adapter_parts(folder, first, terms.adapters, terms.trust)]
        initial = [part.task.active for part in parts]
        earlier: dict[str, Prepared] = {}

        def attempt(slots: Sequence[OpenSlot]) -> list[Replaced]:
            return _install(folder, parts, slots, run, terms.accept, earlier)

        replaced = until_committed([part.task for part in parts], attempt, initial)
    return _refine(replaced, run)


def _install(
    folder: Folder,
    parts: Sequence[Part],
    slots: Sequence[OpenSlot],
    run: Run,
    accept: Accept,
    earlier: dict[str, Prepared],
) -> list[Replaced]:
    """Fit, compare, check and install, every task.

    Args:
        folder: The device's folder.
        parts: The tasks' parts, the device's own first.
        slots: Their active slots.
        run: See ``replace``.
        accept: See ``Device.replace``.
        earlier: Results of earlier attempts, by adapter; this one is added.

    Raises:
        DeviceChangedError: An active model was changed meanwhile.
    """
    prepared: list[Prepared] = []
    encoded: dict[str, dict[str, Vectors]] = {}
    for position, (part, slot) in enumerate(zip(parts, slots, strict=True)):
        adapter = part.task.adapter
        spent = sum(len(first.embeddings) for name, first in earlier.items() if name != adapter)
        limit = _share(run.budget.passes(bridged=False) - spent, len(parts) - position)
        shared = encoded.setdefault(part.bundle.backbone_digest, {})
        first = prepare(
            part, slot, run, limit, earlier=earlier.get(adapter), shared=shared,
            evidence=0 if accept == "always" else MIN_REAL,
        )  # fmt: skip
        earlier[adapter] = first
        shared.update(first.embeddings)
        prepared.append(first)
        if accept != "always":
            with run.stage("compare"):
                refuse_worse(compare(part.task, slot, first.model), accept, part.bundle.path)
    probes = [check(first, run) for first in prepared]
    run.check("commit")
    moves: list[Move] = []
    for first in prepared:
        old, bundle, model = first.old, first.part.bundle, first.model
        logits = None
        if old is not None and not first.active.model.is_vendor:
            logits = old.logits, old.vendor
        change = model.change(encoded[bundle.backbone_digest])
        data = model.rows.snapshot.data
        moves.append(Move(first.part.task, first.active, bundle, change, logits, data))
    with run.stage("commit"):
        install_release(folder, moves, parts[0].backbone)
    run.report("commit", 1, 1)
    return [Replaced(first, count) for first, count in zip(prepared, probes, strict=True)]


def _refine(replaced: Sequence[Replaced], run: Run) -> Replaced:
    """Spend the rest of the budget on every task in turn."""
    remaining = run.budget.passes(bool(replaced[0].prepared.part.bridges))
    remaining -= sum(result.passes for result in replaced)
    results: list[Replaced] = []
    for position, result in enumerate(replaced):
        part = result.prepared.part
        # Without a bridge or n-grams the budget has bought the first model.
        refinable = part.instant or not part.task.store.texts.kept
        if refinable and not part.static and run.budget.forward_passes != 0:
            share = _share(remaining, len(replaced) - position)
            refined = refine(part.task, run, share, result.prepared.model)
            remaining -= refined.forward_passes
            result = dataclasses.replace(result, refined=refined)
        results.append(result)

    def compared(result: Replaced) -> Replaced:
        task, active = result.prepared.part.task, result.prepared.active
        return dataclasses.replace(result, comparison=compare_or_none(task, active, result.last))

    with run.stage("compare"):
        own, *further = map(compared, results)
    adapters = {result.prepared.part.task.adapter: result for result in further}
    return dataclasses.replace(own, adapters=adapters, passes_left=max(0, remaining))


def _share(passes: int, tasks: int) -> int:
    """A task's share of the forward passes for it and the tasks after it."""
    return -(-max(passes, 0) // tasks)
