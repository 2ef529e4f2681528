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
from fala.personal.prepare import Part, Prepared, check, opening, prepare
from fala.personal.refine import Refined, refine
from fala.personal.refit import Refit, until_committed
from fala.personal.run import Run
from fala.report import MIN_REAL, Comparison
from fala.slots.installed import Installed, Move
from fala.slots.open_slot import OpenSlot
from fala.text.lexicon import CachedRows


@dataclass(frozen=True)
class Terms:
    """On what terms a release is installed; see ``Device.replace``.

    Attributes:
        accept: What it must not be proven worse than.
        trust: The key that must have signed it.
        allow_older: Whether an older one is taken.
        adapters: The further tasks' adapters for it.
        prompt: Whether a prompt is tried with the rest of the budget.
    """

    accept: Accept = "always"
    trust: Trust | None = None
    allow_older: bool = False
    adapters: Adapters = ()
    prompt: bool = False


@dataclass(frozen=True, eq=False)
class Replaced:
    """What a replacement did for a task.

    Attributes:
        prepared: The first personal model on the new release, and all that it was made of.
        probes: Texts that the new release had to answer.
        refined: The refinement; None where there was no budget for it.
        comparison: The model at the end and the old one; None where that is gone.
        adapters: What was done for the further tasks, by their adapters' names.
        passes_left: Forward passes that are left of the budget.
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
        earlier: dict[str, Prepared] = {}

        def attempt(slots: Sequence[OpenSlot]) -> list[Replaced]:
            return _install(installed, parts, slots, run, ngrams, terms.accept, earlier)

        replaced = until_committed([part.task for part in parts], attempt, began)
    return _refine(replaced, run, ngrams)


def _install(
    installed: Installed,
    parts: Sequence[Part],
    slots: Sequence[OpenSlot],
    run: Run,
    ngrams: CachedRows,
    accept: Accept,
    earlier: dict[str, Prepared],
) -> list[Replaced]:
    """Fit, compare, check and install, every task.

    Args:
        installed: The device.
        parts: The tasks' parts, the device's own first.
        slots: Their active slots.
        run: See ``replace``.
        ngrams: See ``Snapshot``.
        accept: See ``Device.replace``.
        earlier: What an earlier attempt has prepared, by task; written.

    Raises:
        DeviceChangedError: An active model was changed meanwhile.
    """
    prepared: list[Prepared] = []
    encoded: dict[str, dict[str, Vectors]] = {}
    for position, (part, slot) in enumerate(zip(parts, slots, strict=True)):
        adapter = part.task.adapter
        spent = sum(len(one.embeddings) for name, one in earlier.items() if name != adapter)
        limit = _share(run.budget.passes(bridged=False) - spent, len(parts) - position)
        shared = encoded.setdefault(part.bundle.backbone_digest, {})
        one = prepare(
            part, slot, run, ngrams, limit, earlier=earlier.get(adapter), shared=shared,
            evidence=0 if accept == "always" else MIN_REAL,
        )  # fmt: skip
        earlier[adapter] = one
        shared.update(one.embeddings)
        prepared.append(one)
        if accept != "always":
            with run.stage("compare"):
                refuse_worse(compare(part.task, slot, one.model), accept, part.bundle.path)
    checked = [check(one, run) for one in prepared]
    run.check("commit")
    moves: list[Move] = []
    for one in prepared:
        old, bundle, model = one.old, one.part.bundle, one.model
        logits = None
        if old is not None and not one.active.model.is_vendor:
            logits = old.logits, old.vendor
        change = model.change(encoded[bundle.backbone_digest])
        data = model.rows.snapshot.data
        moves.append(Move(one.part.task, one.active, bundle, change, logits, data))
    with run.stage("commit"):
        installed.install(moves, checked[0][0])
    run.report("commit", 1, 1)
    return [Replaced(one, probes) for one, (_, probes) in zip(prepared, checked, strict=True)]


def _refine(replaced: Sequence[Replaced], run: Run, ngrams: CachedRows) -> Replaced:
    """Spend what is left of the budget on every task in turn."""
    left = run.budget.passes(bool(replaced[0].prepared.part.bridges))
    left -= sum(one.passes for one in replaced)
    done: list[Replaced] = []
    for position, one in enumerate(replaced):
        part = one.prepared.part
        # Without a bridge or n-grams the budget has bought the first model.
        refinable = part.instant or not part.task.store.texts.kept
        if refinable and not part.static and run.budget.forward_passes != 0:
            share = _share(left, len(replaced) - position)
            refined = refine(part.task, run, share, ngrams=ngrams, start=one.prepared.model)
            left -= refined.forward_passes
            one = dataclasses.replace(one, refined=refined)
        done.append(one)
    with run.stage("compare"):
        own, *further = (dataclasses.replace(one, comparison=_comparison(one)) for one in done)
    adapters = {one.prepared.part.task.adapter: one for one in further}
    return dataclasses.replace(own, adapters=adapters, passes_left=max(0, left))


def _comparison(replaced: Replaced) -> Comparison | None:
    """The model at the end and the old one; None where that is gone."""
    prepared = replaced.prepared
    try:
        return compare(prepared.part.task, prepared.active, replaced.last)
    except (BundleError, DeviceChangedError):  # another replacement has deleted the old release
        return None


def _share(left: int, tasks: int) -> int:
    """A task's share of the forward passes that are left for it and those after it."""
    return -(-max(left, 0) // tasks)
