"""Replace: prepare, compare, check, install, refine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fala.backbones.external import ExternalEncoder
from fala.base.errors import BudgetError, DeviceChangedError, counted, model_changed
from fala.personal.adapters import Adapters, adapter_parts
from fala.personal.compare import Accept, Sides, refuse_worse
from fala.personal.encode import Encoded
from fala.personal.prepare import Carried, Part, check, opening, prepare
from fala.personal.refine import Refined, refine, report_on
from fala.personal.refit import Refit
from fala.personal.run import Run
from fala.report import MIN_REAL, Changes, Comparison, Counts, InstantReport, Report, Stopped
from fala.slots.admit import Signed
from fala.slots.folder import Prepared, Task
from fala.slots.snapshot import Slot, slot_record
from fala.slots.switching import install_release, opened


@dataclass(frozen=True)
class Terms:
    """On what terms a release is installed; see ``Device.replace``.

    Attributes:
        accept: The model that it must not be proven worse than.
        origin: How its origin is known, and that of the adapters.
        allow_older: Whether an older one is accepted.
        adapters: The further tasks' adapters for it.
    """

    accept: Accept
    origin: Signed
    allow_older: bool
    adapters: Adapters


@dataclass(frozen=True, eq=False)
class Replaced:
    """The result of a replacement for a task.

    Attributes:
        prepared: The first personal model on the new release.
        probes: Texts that the new release was checked on.
        refined: The refinement; None without a budget for it.
        comparison: The final model compared with the old one.
        changes: What it changes for the user.
        adapters: The results for the further tasks, by their adapters' names.
    """

    prepared: Carried
    probes: int
    refined: Refined | None = None
    comparison: Comparison | None = None
    changes: Changes | None = None
    adapters: Mapping[str, Replaced] = field(default_factory=dict)

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


def replace(task: Task, path: Path, run: Run, terms: Terms) -> Replaced:
    """Carry the personal models over to a new release.

    Args:
        task: The device's own task.
        path: The release's file.
        run: The budget, for all tasks together, and the app's progress.
        terms: The terms of the installation.
    """
    with opening(task, path, run, terms.origin, allow_older=terms.allow_older) as first:
        with run.stage("open"):
            # A repository verifies the release alone.
            origin = dataclasses.replace(terms.origin, verified=False)
            parts = [first, *adapter_parts(first, terms.adapters, origin)]
        earlier: dict[str, Carried] = {}
        try:
            replaced = _install(parts, run, terms.accept, earlier)
        except DeviceChangedError:  # someone has learned, or forgotten, meanwhile
            with task.store.turn(), run.silence():
                current = [_again(part) for part in parts]
                replaced = _install(current, run, terms.accept, earlier)
    return _refine(replaced, run)


def replaced_report(old: str, replaced: Replaced, run: Run) -> Report:
    """Report a replacement, for every task, with the refinement that followed it.

    Args:
        old: Name of the release that was replaced.
        replaced: The result of ``replace``.
        run: Its timings.
    """
    new = replaced.prepared.part.release.name
    report = _report(old, new, replaced, run)
    adapters = {
        name: _report(f"{name} on {old}", f"{name} on {new}", result, run)
        for name, result in replaced.adapters.items()
    }
    return dataclasses.replace(report, adapters=adapters)


def _report(old: str, new: str, replaced: Replaced, run: Run) -> Report:
    prepared, refined = replaced.prepared, replaced.refined
    part, first = prepared.part, prepared.model
    stopped = None if refined is None else refined.stopped
    if refined is None and not part.release.static and run.budget.forward_passes != 0:
        bought = len(prepared.choice.texts)
        stopped = Stopped.TIME if prepared.encoded < bought else Stopped.BUDGET
    instant = None
    if part.instant and not part.release.static and not prepared.encoded:
        verdict = first.verdict
        instant = InstantReport(
            verdict.decision, verdict.reason, verdict.losses, prepared.seconds,
            Counts(measure=verdict.measure, scales=first.scales, fits=first.works),
        )  # fmt: skip
    counts = Counts(
        clusters=prepared.choice.clusters, queries=prepared.choice.queries,
        probes=replaced.probes, agreement=replaced.agreement(),
        fits=first.works + (() if refined is None else refined.works),
    )  # fmt: skip
    return report_on(
        old, new, replaced.last, run, counts, forward_passes=replaced.passes,
        comparison=replaced.comparison, changes=replaced.changes,
        bridged=len(first.rows.ids) - len(first.rows.encoded()), stopped=stopped, instant=instant,
    )  # fmt: skip


def _again(part: Part) -> Part:
    """The same part, beside the task as it is now.

    Raises:
        DeviceChangedError: Another release is active.
    """
    task = part.before.task
    snapshot = opened(task)
    if not snapshot.is_of_release(part.before):
        raise model_changed(task.folder.path)
    return dataclasses.replace(part, before=snapshot)


def _install(
    parts: Sequence[Part], run: Run, accept: Accept, earlier: dict[str, Carried]
) -> list[Replaced]:
    """Fit, compare, check and install, every task.

    Args:
        parts: The tasks' parts, the device's own first.
        run: The budget, for all tasks together, and the app's progress.
        accept: Which models may be installed.
        earlier: Results of an earlier attempt, by adapter; these are added.

    Raises:
        DeviceChangedError: An active model was changed meanwhile.
    """
    prepared: list[Carried] = []
    encoded: dict[str, Encoded] = {}
    for position, part in enumerate(parts):
        adapter = part.before.task.name
        spent = sum(len(first.embeddings) for name, first in earlier.items() if name != adapter)
        limit = _share(run.budget.passes(bridged=False) - spent, len(parts) - position)
        shared = encoded.setdefault(part.release.bundle.backbone_digest, {})
        first = prepare(
            part, run, limit, earlier=earlier.get(adapter), shared=shared,
            evidence=0 if accept == "always" else MIN_REAL,
        )  # fmt: skip
        _check_learned(first)
        earlier[adapter] = first
        shared.update(first.embeddings)
        prepared.append(first)
        if accept != "always":
            with run.stage("compare"):
                sides = Sides(part.before.active, first.model, part.release.bundle.digest)
                comparison = sides.compare()
                refuse_worse(comparison, accept, part.release.bundle.path)
    probes = [check(first, run) for first in prepared]
    run.check("commit")
    with run.stage("commit"):
        install_release([_installed(first, encoded) for first in prepared])
    run.report("commit", 1, 1)
    return [Replaced(first, count) for first, count in zip(prepared, probes, strict=True)]


def _check_learned(prepared: Carried) -> None:
    """Refuse a model that has learned nothing, of an encoder of the app, in place of one that has.

    The vectors of items come later, so that a device of items is not refused.

    Raises:
        BudgetError: No example has an embedding or n-grams on the new backbone.
    """
    release, model = prepared.part.release, prepared.model
    learned = prepared.part.before.active.decision == "personal"
    backbone = release.backbone.loaded if learned and release.own and model.fit is None else None
    if isinstance(backbone, ExternalEncoder) and backbone.has_function:
        examples = counted(len(model.rows.pending), "example")
        raise BudgetError(
            f"{release.name} would know nothing of the {examples} of this device: "
            f"{model.verdict.reason}. Nothing was installed; give the replacement forward passes, "
            "where the device keeps texts"
        )


def _installed(first: Carried, encoded: Mapping[str, Encoded]) -> Prepared:
    """Return what a task gets: the release, with the first model on it."""
    before, release, fit = first.part.before, first.part.release, first.model
    inherited = first.inherited
    record = slot_record(
        before.active.record.name, release.bundle, fit.model, fit.loss,
        fit.record(fit.rows.reading.data), None if inherited is None else inherited.teachers,
    )  # fmt: skip
    return Prepared(
        before, Slot(record, release, fit.model), encoded[release.bundle.backbone_digest],
        {} if inherited is None else inherited.by_model(),
    )  # fmt: skip


def _refine(replaced: Sequence[Replaced], run: Run) -> Replaced:
    """Spend the rest of the budget on every task in turn."""
    remaining = run.budget.passes(bool(replaced[0].prepared.part.bridges))
    remaining -= sum(result.passes for result in replaced)
    results: list[Replaced] = []
    for position, result in enumerate(replaced):
        part = result.prepared.part
        # Without a bridge or n-grams the budget has bought the first model.
        refinable = part.instant or not part.before.task.store.texts.kept
        if refinable and not part.release.static and run.budget.forward_passes != 0:
            share = _share(remaining, len(replaced) - position)
            refined = refine(part.before.task, run, share, result.prepared.model)
            remaining -= refined.forward_passes
            result = dataclasses.replace(result, refined=refined)
        results.append(result)
    with run.stage("compare"):
        parts = [result.prepared.part for result in results]
        sides = [
            Sides(part.before.active, result.last, part.release.bundle.digest)
            for part, result in zip(parts, results, strict=True)
        ]
        own, *further = (
            dataclasses.replace(result, comparison=side.compare(), changes=side.changes())
            for result, side in zip(results, sides, strict=True)
        )
    adapters = {result.prepared.part.before.task.name: result for result in further}
    return dataclasses.replace(own, adapters=adapters)


def _share(passes: int, tasks: int) -> int:
    """A task's share of the forward passes for it and the tasks after it."""
    return -(-max(passes, 0) // tasks)
