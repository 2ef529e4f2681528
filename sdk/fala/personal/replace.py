"""Replace a release: prepare, compare, check, install, refine."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fala.backbones.external import ExternalEncoder
from fala.base.errors import BudgetError, DeviceChangedError, counted, model_changed
from fala.personal.adapters import Adapters, adapters_for
from fala.personal.compare import Accept, Sides, refuse_worse
from fala.personal.encode import Encoded
from fala.personal.prepare import Carried, check, opening, prepare
from fala.personal.refine import Refined, refine, report_on
from fala.personal.refit import Refit
from fala.personal.run import Run
from fala.report import MIN_REAL, Changes, Comparison, Counts, InstantReport, Report, Stopped
from fala.slots.admit import Origin
from fala.slots.folder import Prepared, Snapshot, Task
from fala.slots.release import Release
from fala.slots.slot import Slot, slot_record
from fala.slots.switching import install_release, opened


@dataclass(frozen=True)
class Terms:
    """The terms on which a release is installed; see ``Device.replace``.

    Attributes:
        accept: The model that the new model must not be proven worse than.
        origin: The origin that the release and the adapters must have.
        allow_older: Whether an older release is accepted.
        adapters: The adapters of the further tasks for the release.
    """

    accept: Accept
    origin: Origin
    allow_older: bool
    adapters: Adapters


@dataclass(frozen=True, eq=False)
class Replaced:
    """The result of a replacement for a task.

    Attributes:
        first: The first personal model on the new release.
        probes: Number of texts that the new release was checked on.
        sides: The first model beside the old one, if they were compared.
        refined: The refinement; None without a budget for it.
        comparison: The comparison of the final model with the old one.
        changes: What the final model changes for the user.
        adapters: The results for the further tasks, by their adapters' names.
    """

    first: Carried
    probes: int
    sides: Sides | None = None
    refined: Refined | None = None
    comparison: Comparison | None = None
    changes: Changes | None = None
    adapters: Mapping[str, Replaced] = field(default_factory=dict)

    @property
    def last(self) -> Refit:
        """The last model; the first, with the last rows, if the refinement fitted nothing."""
        first = self.first.model
        if self.refined is None or self.refined.last.fit is not None:
            return first if self.refined is None else self.refined.last
        return dataclasses.replace(first, rows=self.refined.last.rows)

    @property
    def passes(self) -> int:
        """Number of forward passes for this task."""
        refined = 0 if self.refined is None else self.refined.forward_passes
        return self.first.encoded + refined

    def agreement(self) -> float | None:
        """Return the share of examples on which the first fit decides as the old model does.

        Each example is left out of the fit. The share is None if there is no old model to compare
        with, or nothing was fitted.
        """
        old, model = self.first.old, self.first.model
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
        run: The run, with the budget for all tasks together and the app's progress.
        terms: The terms of the installation.
    """
    with opening(task, path, run, terms.origin, allow_older=terms.allow_older) as (before, release):
        with run.stage("open"):
            # A repository verifies the release, but not the adapters.
            origin = task.folder.key() if terms.origin == "repository" else terms.origin
            further = adapters_for(before, release, terms.adapters, origin)
            moves = [(before, release), *further]
        earlier: dict[str, Carried] = {}
        try:
            replaced = _commit(_decide(moves, run, terms.accept, earlier), run)
        except DeviceChangedError:  # the app has learned or forgotten examples meanwhile
            with task.store.turn(), run.silence():
                moves = [(_again(before), release) for before, release in moves]
                replaced = _commit(_decide(moves, run, terms.accept, earlier), run)
    return _refine(replaced, run)


def replaced_report(replaced: Replaced, run: Run) -> Report:
    """Report a replacement for every task, with the refinement that followed it.

    Args:
        replaced: The result of ``replace``.
        run: The run, which has the timings.
    """
    old, new = replaced.first.before.release.name, replaced.first.release.name
    report = _report(old, new, replaced, run)
    adapters = {
        name: _report(f"{name} on {old}", f"{name} on {new}", result, run)
        for name, result in replaced.adapters.items()
    }
    return dataclasses.replace(report, adapters=adapters)


def _report(old: str, new: str, replaced: Replaced, run: Run) -> Report:
    first, refined = replaced.first, replaced.refined
    model, release = first.model, first.release
    stopped = None if refined is None else refined.stopped
    if refined is None and not release.static and run.budget.forward_passes != 0:
        bought = len(first.choice.texts)
        stopped = Stopped.TIME if first.encoded < bought else Stopped.BUDGET
    instant = None
    if model.rows.space.instant and not release.static and not first.encoded:
        verdict = model.verdict
        instant = InstantReport(
            verdict.decision, verdict.reason, verdict.losses, first.seconds,
            Counts(measure=verdict.measure, scales=model.scales, fits=model.works),
        )  # fmt: skip
    counts = Counts(
        clusters=first.choice.clusters, queries=first.choice.queries,
        probes=replaced.probes, agreement=replaced.agreement(),
        fits=model.works + (() if refined is None else refined.works),
    )  # fmt: skip
    return report_on(
        old, new, replaced.last, run, counts, forward_passes=replaced.passes,
        comparison=replaced.comparison, changes=replaced.changes,
        bridged=len(model.rows.ids) - len(model.rows.encoded()), stopped=stopped, instant=instant,
    )  # fmt: skip


def _again(before: Snapshot) -> Snapshot:
    """Return the task as it is now.

    Raises:
        DeviceChangedError: If another release is active.
    """
    snapshot = opened(before.task)
    if not snapshot.is_of_release(before):
        raise model_changed(before.task.folder.path)
    return snapshot


def _decide(
    moves: Sequence[tuple[Snapshot, Release]],
    run: Run,
    accept: Accept,
    earlier: dict[str, Carried],
) -> list[Replaced]:
    """Gather, fit and compare every task, and check the new releases, without changing anything.

    Args:
        moves: The tasks with their releases; the device's own task comes first.
        run: The run, with the budget for all tasks together and the app's progress.
        accept: The models that may be installed.
        earlier: The results of an earlier attempt, by adapter; the new results are added.
    """
    results: list[Replaced] = []
    encoded: dict[str, Encoded] = defaultdict(dict)
    for position, (before, release) in enumerate(moves):
        adapter = before.task.name
        spent = sum(len(first.embeddings) for name, first in earlier.items() if name != adapter)
        limit = _share(run.budget.passes(bridged=False) - spent, len(moves) - position)
        shared = encoded[release.bundle.backbone_digest]
        first = prepare(
            before, release, run, limit, earlier=earlier.get(adapter), shared=shared,
            evidence=0 if accept == "always" else MIN_REAL,
        )  # fmt: skip
        _check_learned(first)
        earlier[adapter] = first
        shared.update(first.embeddings)
        sides = None
        if accept != "always":
            with run.stage("compare"):
                sides = Sides(before.active, first.model, release.bundle.digest)
                refuse_worse(sides.compare(), accept, release.bundle.path)
        results.append(Replaced(first, 0, sides))
    return [dataclasses.replace(each, probes=check(each.first, run)) for each in results]


def _commit(results: list[Replaced], run: Run) -> list[Replaced]:
    """Install what was decided, for all tasks together.

    Raises:
        DeviceChangedError: If an active model was changed meanwhile.
    """
    run.check("commit")
    encoded: dict[str, Encoded] = defaultdict(dict)
    for first in (each.first for each in results):
        encoded[first.release.bundle.backbone_digest].update(first.embeddings)
    with run.stage("commit"):
        install_release([_prepared(each.first, encoded) for each in results])
    run.report("commit", 1, 1)
    return results


def _check_learned(first: Carried) -> None:
    """Refuse a model on an app's encoder that has learned nothing, if the old model has.

    A device of items is not refused, because the vectors of items come later.

    Raises:
        BudgetError: If no example has an embedding or n-grams on the new backbone.
    """
    release, model = first.release, first.model
    learned = first.before.active.decision == "personal"
    backbone = release.backbone.load() if learned and release.own and model.fit is None else None
    if isinstance(backbone, ExternalEncoder) and backbone.function is not None:
        examples = counted(len(model.rows.pending), "example")
        raise BudgetError(
            f"{release.name} would know nothing of the {examples} of this device: "
            f"{model.verdict.reason}. Nothing was installed; allow the replacement some forward "
            "passes, on a device that keeps texts"
        )


def _prepared(first: Carried, encoded: Mapping[str, Encoded]) -> Prepared:
    """Return what a task gets: the release, with the first model on it."""
    before, release, fit = first.before, first.release, first.model
    inherited = fit.rows.space.differences
    record = slot_record(
        before.active.record.name, release.bundle, fit.model, fit.loss,
        fit.record(fit.rows.reading.data), before.active.record.model if inherited else None,
    )  # fmt: skip
    return Prepared(
        before, Slot(record, release, fit.model), encoded[release.bundle.backbone_digest],
        inherited,
    )  # fmt: skip


def _refine(replaced: Sequence[Replaced], run: Run) -> Replaced:
    """Spend the rest of the budget on every task in turn."""
    remaining = run.budget.passes(bool(replaced[0].first.model.rows.space.bridges))
    remaining -= sum(result.passes for result in replaced)
    results: list[Replaced] = []
    for position, result in enumerate(replaced):
        first = result.first
        # Without a bridge or n-grams, the first model has used the budget.
        refinable = first.model.rows.space.instant or not first.task.store.texts.kept()
        if refinable and not first.release.static and run.budget.forward_passes != 0:
            share = _share(remaining, len(replaced) - position)
            refined = refine(first.task, run, share, first.model)
            remaining -= refined.forward_passes
            result = dataclasses.replace(result, refined=refined)
        results.append(result)
    with run.stage("compare"):
        own, *further = (_compared(result) for result in results)
    adapters = {result.first.task.name: result for result in further}
    return dataclasses.replace(own, adapters=adapters)


def _compared(result: Replaced) -> Replaced:
    """Return the result with a comparison of the last model and the old one."""
    first, sides = result.first, result.sides
    if sides is None:
        sides = Sides(first.before.active, result.last, first.release.bundle.digest)
    sides = sides.beside(result.last)
    return dataclasses.replace(result, comparison=sides.compare(), changes=sides.changes())


def _share(passes: int, tasks: int) -> int:
    """Return a task's share of the forward passes for it and the tasks after it."""
    return -(-max(passes, 0) // tasks)
