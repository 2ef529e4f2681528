"""The reports of operations on a device, built once after the last commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from fala.base.errors import counted
from fala.base.plain import Plain
from fala.model.labels import HeadLabel
from fala.report.comparison import Changes, changes_in_words, comparison_in_words
from fala.solver.decision import Comparison, Decision, Judgement
from fala.solver.minimum import FitCost
from fala.store.texts import NOT_KEPT

#: The models that may be active, as a summary names them.
MODELS: Mapping[Decision, str] = {
    "personal": "the personal model",
    "calibrated": "the recalibrated model",
    "vendor": "the model without personalization",
}


class Stopped(str, Enum):
    """Why no more texts were encoded; a member is also its text.

    Attributes:
        BUDGET: All forward passes of the budget are spent.
        TIME: The seconds of the budget are over.
        CANCELLED: The app's progress function returned False.
        ALL_ENCODED: No text is left to encode.
        SETTLED: The last batch of texts changed the model next to nothing.
        NO_LABEL: There is neither a label nor a text that waits to be encoded.
        NOT_KEPT: The device keeps no texts, so none can be encoded again.
        MODEL_CHANGED: Another release has become active meanwhile.
    """

    BUDGET = "the budget is spent"
    TIME = "the time is over"
    CANCELLED = "cancelled"
    ALL_ENCODED = "all texts are encoded"
    SETTLED = "the last texts changed next to nothing"
    NO_LABEL = "there is no label to fit to"
    NOT_KEPT = NOT_KEPT
    MODEL_CHANGED = "another model is active now"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Counts(Plain):
    """The detailed costs of an operation, for benchmarks.

    Attributes:
        representatives: Number of examples whose texts passed through the new backbone.
        clusters: Number of clusters that texts were chosen from; 0 over a bridge.
        queries: Number of strong queries of the clustering.
        probes: Number of the device's own texts that the new release was run on before it was
            installed.
        agreement: Share of examples on which the fitted model, each left out, decides as the old
            personal model does; None if there is nothing to compare.
        measure: The kind of loss in ``Report.losses``; empty if there are too few labels to compare
            models.
        scales: The prior scales of the blocks, the slope and the bias, from the release; empty if
            nothing was fitted.
        fits: The costs of each fit, in sizes and counts.
        peak_memory: The process's high-water mark in bytes after each stage; empty if the operating
            system does not report it.
    """

    representatives: int = 0
    clusters: int = 0
    queries: int = 0
    probes: int = 0
    agreement: float | None = None
    measure: str = ""
    scales: tuple[float, ...] = ()
    fits: tuple[FitCost, ...] = ()
    peak_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class InstantReport(Plain):
    """The personal model that was installed before any forward pass.

    Attributes:
        decision: Which model was chosen.
        reason: Why it was chosen, as a sentence.
        losses: Leave-one-out loss of each model that was compared.
        seconds: Wall time from reading the store to the checked model, in seconds.
        counts: The detailed costs.
    """

    decision: Decision
    reason: str
    losses: Mapping[str, float]
    seconds: float
    counts: Counts


@dataclass(frozen=True)
class Report(Plain):
    """The result and the cost of a replacement, or of its refinement.

    Attributes:
        old: The release that was replaced, by product, version and backbone, as far as the vendor
            gives them: ``comments v2 (glove)``. For a refinement, the active release.
        new: The new release, in the same form.
        decision: Which model is active: ``"personal"``; or, if that would be worse,
            ``"calibrated"``, the recalibrated vendor model with the user's slope and bias, or
            ``"vendor"``, the model without personalization.
        reason: Why the model was chosen, as a sentence.
        examples: Number of examples whose input on the new backbone is real or estimated.
        labelled: Number of those that have a label.
        waiting: Number of examples that have no input before the new backbone has encoded them.
        forward_passes: Number of texts through the new backbone whose embeddings are kept; 0 for a
            table of vectors. There are no backward passes, by construction.
        losses: Leave-one-out loss of each model that was compared (see ``decision``).
        comparison: The comparison of the new model with the one before the replacement, on the same
            examples; None if there is no model to compare with.
        changes: What changes for this user, on the labelled examples; None if no model was fitted
            before or now.
        bridged: Number of examples whose input was estimated over a bridge in the first model.
        scores: For ratings, ``"rmse"`` and ``"rank_correlation"`` (Spearman's) of the active model
            on the user's labels, each left out; empty for labels.
        stopped: Why no more texts were encoded; None if none were to be.
        seconds: Wall time in seconds by stage, and as ``"total"``.
        instant: The model that was installed before any forward pass; None without a bridge or
            n-gram features.
        adapters: The report of every further task, by its adapter's name; texts that were encoded
            for one of these tasks are counted there.
        replaced: Whether a release was installed; False for a refinement alone.
        counts: The detailed costs.
    """

    old: str
    new: str
    decision: Decision
    reason: str
    examples: int = 0
    labelled: int = 0
    waiting: int = 0
    forward_passes: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    comparison: Comparison | None = None
    changes: Changes | None = None
    bridged: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    stopped: Stopped | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    instant: InstantReport | None = None
    adapters: Mapping[str, Report] = field(default_factory=dict)
    replaced: bool = True
    counts: Counts = field(default_factory=Counts)

    _derived = "worse", "old_loss", "summary"

    @property
    def old_loss(self) -> float | None:
        """Loss of the previous model, on the examples of ``comparison``; None without one."""
        return None if self.comparison is None else self.comparison.old

    @property
    def worse(self) -> bool | None:
        """Whether the model is worse for this user than before; None while that is unknown."""
        return None if self.comparison is None else self.comparison.worse

    @property
    def judgement(self) -> Judgement:
        """Whether the user is better or worse off, as a word."""
        return "unknown" if self.comparison is None else self.comparison.judgement

    @property
    def verdict(self) -> str:
        """Whether the user is worse off, as a clause; empty without a comparison."""
        if self.comparison is None:
            return ""
        before = self.old if self.old != self.new else "the model before the replacement"
        return comparison_in_words(self.comparison, before, self.new)

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        if not self.replaced:
            result = f"{self.new} was refined: {self.stopped or self.reason}."
        elif self.decision == "personal":
            result = f"The personal model was carried over from {self.old} to {self.new}."
        else:
            model = MODELS[self.decision]
            result = f"{self.old} was replaced by {self.new}, with {model}: {self.reason}."
        if self.comparison is None:
            return f"{result} There is no earlier model to compare it with."
        advice = "; Device.rollback goes back to the old model" if self.worse else ""
        return f"{result} {changes_in_words(self.changes)}. {self.verdict}{advice}."


@dataclass(frozen=True)
class Preview(Plain):
    """The estimated worth of a replacement to this user, and its cost; nothing was changed.

    Attributes:
        old: The active release; see ``Report``.
        new: The new release.
        decision: Which model would be installed first; see ``Report``.
        comparison: The comparison of the first model with the active one, on examples that the new
            backbone has encoded for it.
        changes: What the first model would change for this user; see ``Report``.
        passes_to_know: Estimated number of forward passes after which ``worse`` is known; None if
            that needs more labels than the user has given.
        seconds: Estimated time of the replacement on this machine, in seconds.
        megabytes: Size of the release's file, which is downloaded, in 10^6 bytes.
        disk_megabytes: Growth of the device's folder in 10^6 bytes; below 0 if it would shrink.
        forward_passes: Number of texts that would pass through the new backbone, at most.
    """

    old: str
    new: str
    decision: Decision
    comparison: Comparison
    changes: Changes | None
    passes_to_know: int | None
    seconds: float
    megabytes: float
    disk_megabytes: float
    forward_passes: int

    _derived = "worse", "summary"

    @property
    def worse(self) -> bool | None:
        """Whether the user would be worse off; None while that is unknown."""
        return self.comparison.worse

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        cost = (
            f"{self.new} takes about {self.seconds:.1f} s, "
            f"{counted(self.forward_passes, 'forward pass')} and {self.megabytes:.1f} MB"
        )
        verdict = comparison_in_words(self.comparison, self.old, self.new)
        if self.worse is None and self.passes_to_know is not None:
            verdict += f"; about {counted(self.passes_to_know, 'forward pass')} should decide it"
        elif self.worse is None:
            verdict += "; more labels are needed to decide it"
        return f"{verdict}. {changes_in_words(self.changes)}. {cost}."


@dataclass(frozen=True)
class LearnReport(Plain):
    """The result of learning.

    Attributes:
        examples: Number of examples in the store.
        labelled: Number of those that have a label.
        fitted: Number of examples that the personal model was fitted to; 0 if there was nothing to
            fit.
        decision: Which model is active.
        reason: Why it is active, as a sentence.
        waiting: Number of examples whose texts are not encoded yet, for example after a
            cancellation; ``refine`` encodes them.
        exact: Whether everything was fitted again; False if the examples were added to the last fit
            (``Device.fit`` then fits everything).
        scales: The prior scales of the fit.
        loss: Leave-one-out loss of the last exact fit, in nats per labelled example.
        scores: For ratings, ``"rmse"`` and ``"rank_correlation"`` of the last exact fit.
    """

    examples: int
    labelled: int
    fitted: int
    decision: Decision
    reason: str
    waiting: int = 0
    exact: bool = True
    scales: tuple[float, ...] = ()
    loss: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        model = MODELS[self.decision].capitalize()
        fitted = f", fitted to {self.fitted} of them" if self.fitted else f": {self.reason}"
        waiting = "No text waits to be encoded"
        if self.waiting:
            waiting = f"The texts of {counted(self.waiting, 'example')} wait for refine"
        return (
            f"The device keeps {counted(self.examples, 'example')}, {self.labelled} with a label. "
            f"{model} is active{fitted}. {waiting}."
        )


@dataclass(frozen=True)
class Forgotten(Plain):
    """What ``Device.forget`` has deleted.

    Attributes:
        count: Number of examples that were deleted.
        overwritten: Whether no byte of anything ever deleted is left in the folder. It is False
            while another process reads the store, or if the disk is full.
    """

    count: int
    overwritten: bool

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        first = f"Deleted {counted(self.count, 'example')}"
        if self.count:
            first += ", and fitted the models to the others"
        if self.overwritten:
            return f"{first}. No byte of what was ever deleted is left in the folder."
        return f"{first}. Some bytes cannot be overwritten now; forget([]) tries again."


@dataclass(frozen=True)
class RollbackReport(Plain):
    """What ``Device.rollback`` has done.

    Attributes:
        old: The release that was active, by product, version and backbone.
        new: The release that is active now.
        decision: Which model is active.
        examples: Number of examples in the store.
        labelled: Number of those that have a label.
        refitted: Whether the model was fitted to examples or labels that are newer than it.
        on_trial: Whether the release is on trial, as after a second rollback.
    """

    old: str
    new: str
    decision: Decision
    examples: int
    labelled: int
    refitted: bool
    on_trial: bool

    _derived = ("summary",)

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        fitted = "fitted again to newer examples" if self.refitted else "as it was"
        trial = "The release is on trial again, and labels stay" if self.on_trial else "Labels stay"
        return (
            f"The device went from {self.old} back to {self.new}. "
            f"{MODELS[self.decision].capitalize()} is active, {fitted}. {trial}: "
            f"{self.labelled} of {counted(self.examples, 'example')} have one."
        )


@dataclass(frozen=True)
class Status(Plain):
    """The state of a device, or of one of its further tasks; see ``Device.status``.

    Attributes:
        release: The active release, by product, version and backbone; for a further task, its
            adapter's.
        product: The product of the release; None if the vendor names none.
        version: The release's number among the product's releases; None if the vendor does not
            count.
        task: ``"classification"`` or ``"matching"``.
        labels: The labels, integers or strings, in the order of the probabilities.
        positive: The label by which ``rank`` orders; None for tags and for a rating.
        examples: Number of examples that the task has.
        labelled: Number of those that have a label.
        waiting: Number of examples that the model cannot use before ``refine`` has encoded their
            texts.
        decision: Which model is active.
        on_trial: Whether the active release is still on trial; see ``Device.replace``.
        fell_back: Why the device fell back from its last release, which failed its trial; None if
            it did not.
        can_roll_back: Whether an earlier model is kept.
        previous: The release that a rollback makes active; None if there is none, or it is damaged.
        rolled_back: Whether the previous release is newer than the active one, because the user has
            rolled it back; ``Device.update`` skips it.
        adapters: The further tasks, by the names of their adapters.
    """

    release: str
    product: str | None
    version: int | None
    task: str
    labels: tuple[HeadLabel, ...]
    positive: HeadLabel | None
    examples: int
    labelled: int
    waiting: int
    decision: Decision
    on_trial: bool
    fell_back: str | None
    can_roll_back: bool
    previous: str | None
    rolled_back: bool
    adapters: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The report in a few sentences."""
        trial = ", on trial" if self.on_trial else ""
        sentences = [
            f"{self.release} is active{trial}, with {MODELS[self.decision]}",
            f"The device keeps {counted(self.examples, 'example')}, {self.labelled} with a label, "
            f"and {self.waiting} that wait for refine",
        ]
        if self.rolled_back:
            sentences.append(f"{self.previous or 'The release after it'} was rolled back")
        elif self.fell_back is not None:
            sentences.append(f"The last release failed its trial: {self.fell_back}")
        elif self.can_roll_back:
            sentences.append(f"A rollback goes to {self.previous or 'a release that is damaged'}")
        return "".join(f"{sentence}. " for sentence in sentences).rstrip()
