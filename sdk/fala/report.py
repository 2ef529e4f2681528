"""The reports of operations on a device; built once, after the last commit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from html import escape
from typing import Any, ClassVar, Literal

from fala.errors import be, counted
from fala.model.labels import HeadLabel
from fala.solver.forms import Work
from fala.solver.judge import MATTERS, MIN_LABELLED, NORMAL_95, Decision, student95
from fala.store.texts import NOT_KEPT

#: Whether a model is better or worse for a user than another.
Judgement = Literal["better", "no_worse", "worse", "unknown"]

#: Encoded examples needed before two releases that do not agree count as unrelated.
MIN_REAL = 20
#: Differences below this are printed as 0.
_SHOWN = 0.0005
#: The largest correlation, for Fisher's z.
_LARGEST = 1 - 1e-12


class Stopped(str, Enum):
    """Why no more texts were encoded, as a value and in words: a member is its text, too.

    Attributes:
        BUDGET: All forward passes of the budget are spent.
        TIME: Its seconds are over.
        CANCELLED: The app's progress function returned False.
        ALL_ENCODED: No text is left.
        SETTLED: The last batch of texts changed the model next to nothing.
        NO_LABEL: There is neither a label nor a text that waits.
        NOT_KEPT: The device keeps no texts, so that none can be encoded again.
        MODEL_CHANGED: Another release is active meanwhile.
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
class Plain:
    """What all reports have: plain values for JSON, and a table in a notebook."""

    #: Properties that are among the plain values, beside the fields.
    _derived: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        names = (*(each.name for each in fields(self)), *self._derived)
        return {name: plain(getattr(self, name)) for name in names}

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>"
            for name, value in vars(self).items()
        )
        return f"<table>{cells}</table>"


def plain(value: object) -> Any:  # noqa: ANN401 - any of JSON's values
    """A value of a report as JSON has it."""
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


@dataclass(frozen=True)
class Counts(Plain):
    """The detailed costs of an operation, for laboratories.

    Attributes:
        representatives: Examples whose texts passed through the new backbone.
        clusters: Clusters that texts were chosen from; 0 over a bridge.
        queries: Strong queries of the clustering.
        probes: The device's own texts that the new release was run on before it was installed.
        agreement: Share of examples on which the fitted model, each left out, decides as the old
            personal model does; None where there is nothing to compare.
        measure: The kind of loss in ``Report.losses``; empty where labels are too few to judge.
        scales: The scales of the blocks, the slope and the bias, from the release; empty where
            nothing was fitted.
        fits: The costs of each fit, in sizes and counts.
        peak_memory: The process's high-water mark in bytes after each stage; empty where the
            operating system does not report it.
    """

    representatives: int = 0
    clusters: int = 0
    queries: int = 0
    probes: int = 0
    agreement: float | None = None
    measure: str = ""
    scales: tuple[float, ...] = ()
    fits: tuple[Work, ...] = ()
    peak_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class InstantReport(Plain):
    """The personal model that was installed before any forward pass.

    Attributes:
        decision: See ``Report``.
        reason: Why, in words.
        losses: See ``Report``.
        seconds: Wall time from reading the store to the checked model.
        counts: The detailed costs.
    """

    decision: Decision
    reason: str
    losses: Mapping[str, float]
    seconds: float
    counts: Counts


@dataclass(frozen=True)
class Forgotten(Plain):
    """What ``Device.forget`` has deleted.

    Attributes:
        count: How many examples were deleted.
        overwritten: Whether no byte of what was ever deleted is left in the folder. False while
            another process reads the store, or where the disk is full.
    """

    count: int
    overwritten: bool


@dataclass(frozen=True)
class Report(Plain):
    """The result and the cost of a replacement, or of its refinement.

    Attributes:
        old: Name of the backbone that was replaced; for a refinement the active one.
        new: Name of the new one.
        decision: Which model is active: ``"personal"``; or, where that would be worse,
            ``"calibrated"``, the vendor's with the user's slope and bias, or ``"vendor"``, the
            vendor's as it is.
        reason: Why, in words.
        examples: Examples whose input on the new backbone is real or estimated.
        labelled: How many of them have a label.
        waiting: Examples that have no input before the new backbone has encoded them.
        forward_passes: Texts through the new backbone whose embeddings are kept; 0 for a table of
            vectors. There are no backward passes, by construction.
        losses: By candidate (see ``decision``), each example left out.
        comparison: The new model and the one before the replacement, on the same examples; None
            where there is none to compare with.
        bridged: Examples whose input was estimated over a bridge, in the first model.
        scores: Of ratings, ``"rmse"`` and ``"rank_correlation"`` (Spearman's) of the active model
            on the user's labels, each left out; empty of labels.
        stopped: Why no more texts were encoded; None where none were to be.
        seconds: Wall time by stage, and ``"total"``.
        instant: The model that was installed before any forward pass; None without a bridge or
            words.
        adapters: The report of every further task, by its adapter's name; texts that were encoded
            for one of them are counted there.
        replaced: Whether a release was installed; False of a refinement alone.
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
    bridged: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    stopped: Stopped | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    instant: InstantReport | None = None
    adapters: Mapping[str, Report] = field(default_factory=dict)
    replaced: bool = True
    counts: Counts = field(default_factory=Counts)

    _derived = "worse", "old_loss", "sentence"

    @property
    def old_loss(self) -> float | None:
        """Loss of the previous model, on the examples of ``comparison``; None without one."""
        return None if self.comparison is None else self.comparison.old

    @property
    def worse(self) -> bool | None:
        """Whether the model is worse for this user than before; None while that is unknown.

        See ``Comparison.worse``.
        """
        return None if self.comparison is None else self.comparison.worse

    @property
    def judgement(self) -> Judgement:
        """Whether the user is better or worse off, in a word."""
        return "unknown" if self.comparison is None else self.comparison.judgement

    @property
    def verdict(self) -> str:
        """Whether the user is worse off, in words; empty without a comparison."""
        if self.comparison is None:
            return ""
        before = self.old if self.old != self.new else "before the replacement"
        return self.comparison.verdict(before, self.new)

    @property
    def sentence(self) -> str:
        """The result in one sentence, and whether the user is worse off in another."""
        if not self.replaced:
            result = f"{self.new} was refined: {self.stopped or self.reason}."
        elif self.decision == "personal":
            result = f"The personal model was carried over from {self.old} to {self.new}."
        else:
            kind = "as it is" if self.decision == "vendor" else "with the user's slope and bias"
            result = f"The vendor's model on {self.new} is active, {kind}: {self.reason}."
        if self.comparison is None:
            return result
        advice = "; Device.rollback goes back" if self.worse else ""
        return f"{result} {self.verdict}{advice}."


@dataclass(frozen=True)
class Difference(Plain):
    """How much larger one model's losses are than another's, by pairs of the same example.

    Attributes:
        mean: The mean difference, in nats; above 0 the first model is worse.
        error: Its standard error.
        examples: How many pairs there are, two at least.
    """

    mean: float
    error: float
    examples: int

    @property
    def worse(self) -> bool:
        """Whether the first model is worse beyond noise: 0 is below a one-sided 95 % interval.

        A difference that is printed as 0 is none.
        """
        return self.mean > max(self.margin, _SHOWN)

    @property
    def better(self) -> bool:
        """Whether it is better beyond noise."""
        return -self.mean > max(self.margin, _SHOWN)

    @property
    def deviations(self) -> float:
        """The mean by its standard error."""
        return self.mean / max(self.error, _SHOWN / 2)

    @property
    def margin(self) -> float:
        """Half the width of the two-sided 90 % interval, by Student's t."""
        return student95(self.examples - 1) * self.error


@dataclass(frozen=True)
class Correlation(Plain):
    """The correlation of two releases' vendor models on the same examples.

    Attributes:
        value: Pearson's correlation of their logits.
        examples: The number of examples.
        real: Whether both backbones have encoded all of them. Estimated embeddings contain less
            than real ones, and many of them have the same error.
    """

    value: float
    examples: int
    real: bool = False

    @property
    def contradicts(self) -> bool:
        """Whether it is below 0 by more than a standard error of Fisher's z.

        Fewer than 10 examples prove nothing. From word vectors to MiniLM, it is True for heads with
        the sign reversed of all of 86 people who are in no published figure (MD-Agreement and
        MultiPICo, 20 labels or more), and for the correct heads of none.
        """
        return self.examples >= MIN_LABELLED and self.deviations < -1

    @property
    def unrelated(self) -> bool:
        """Whether it is not above 0 by two standard errors, on ``MIN_REAL`` examples or more.

        Two heads for the same labels agree on real texts. Of the same 86 people with 20 encoded
        texts, a random head was unrelated for 98 %, the vendor's for none.
        """
        return self.real and self.examples >= MIN_REAL and self.deviations < 2

    @property
    def agrees(self) -> bool:
        """Whether it is above 0 by two standard errors, or of fewer than 10 examples."""
        return self.examples < MIN_LABELLED or self.deviations >= 2

    @property
    def deviations(self) -> float:
        """Fisher's z by its standard error; of 4 examples or more."""
        value = min(max(self.value, -_LARGEST), _LARGEST)
        return math.atanh(value) * math.sqrt(self.examples - 3)


@dataclass(frozen=True)
class Comparison(Plain):
    """Losses of three models on the same labelled examples, each left out.

    Only examples that both backbones have encoded count: in use every text has its real embedding,
    and an estimated one reflects the bridge more than the model. Half of the encoded texts are
    random.

    Attributes:
        labelled: The number of these examples.
        old: Mean loss in nats of the old personal model; None without an example.
        vendor: Mean loss of the vendor's new model, without a personal part.
        carried: Mean loss of the personal model on the new backbone.
        to_old: How much worse the carried model is than the old one; None where labels are too few
            to judge by.
        to_vendor: How much worse it is than the vendor's new one.
        to_old_of_all: How much worse it is than the old one on all labelled examples, those with an
            estimated embedding included; None where the two releases agree (``releases``), or all
            labels are too few to judge by.
        old_with_labels: The correlation of the old vendor model with these labels; None likewise.
        releases: The correlation of the old and the new vendor model on the user's examples,
            labelled or not; None without one.
        measure: The kind of loss. Of ratings, half the squared error by the square of the noise
            that the new release states.
        scores: Of ratings, ``"rmse"`` and ``"rank_correlation"`` of ``"old"``, ``"vendor"`` and
            ``"carried"``; empty of labels.
    """

    labelled: int = 0
    old: float | None = None
    vendor: float | None = None
    carried: float | None = None
    to_old: Difference | None = None
    to_vendor: Difference | None = None
    to_old_of_all: Difference | None = None
    old_with_labels: Correlation | None = None
    releases: Correlation | None = None
    measure: str = "cross-entropy"
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def disagrees(self) -> bool:
        """Whether the new vendor model speaks against the release.

        Without labels to judge by: whether it contradicts the old one or is unrelated to it; see
        ``Correlation``. Else the labels decide: by how many standard errors the carried model's
        loss is higher, on all of them. To that is added by how many standard errors the releases'
        correlation is below what two related heads have, one at least, as far as the old head is
        known to agree with this user: in full from two standard errors on, and not at all where it
        is no better than chance. ``benchmarks/accepting.py`` counts the errors.
        """
        releases, labels, old = self.releases, self.to_old_of_all, self.old_with_labels
        if releases is None or releases.agrees:
            return False
        if labels is None:
            return releases.contradicts or releases.unrelated
        known = 0.0 if old is None else min(max(old.deviations / 2, 0.0), 1.0)
        return labels.deviations + known * (1 - releases.deviations) > NORMAL_95

    @property
    def worse(self) -> bool | None:
        """Whether the carried model is worse for this user than the old one.

        True if its loss is higher beyond noise; False if the labels rule out that it is higher by
        ``MATTERS``. Else True if the new vendor model disagrees (``disagrees``), and None while it
        is not known. ``accept="better-than-old"`` refuses a release where it is True.
        """
        if self.to_old is not None and self.to_old.worse:
            return True
        if self.to_old is not None and self.to_old.mean + self.to_old.margin < MATTERS:
            return False
        return True if self.disagrees else None

    @property
    def judgement(self) -> Judgement:
        """``worse`` in a word; better is better beyond noise."""
        if self.worse is None:
            return "unknown"
        if self.worse:
            return "worse"
        return "better" if self.to_old is not None and self.to_old.better else "no_worse"

    def verdict(self, old: str, new: str = "it") -> str:
        """The verdict in words, without a full stop.

        Args:
            old: Name of the old model.
            new: Name of the new one.
        """
        unknown = f"Whether it is worse for this user than {old} is not known yet"
        if self.to_old is not None and self.to_old.worse:
            return f"It is worse for this user than {old}: {self.losses_to(self.to_old, self.old)}"
        if self.worse:
            return self._disagreement(old, new)
        if self.to_old is None:
            return (
                f"{unknown}: {counted(self.labelled, 'label')} of encoded texts "
                f"{be(self.labelled)} too few to judge by"
            )
        losses = self.losses_to(self.to_old, self.old)
        if self.worse is None:
            return f"{unknown}: {losses}"
        word = self.judgement.replace("_", " ")
        return f"It is {word} for this user than {old}: {losses}"

    def losses_to(self, difference: Difference, before: float | None) -> str:
        """The carried model's loss against another's, in words."""
        return (
            f"{self.measure} of {self.labelled} labels, each left out, {self.carried:.3f} against "
            f"{before:.3f}, a difference of {difference.mean:+.3f} ± {difference.margin:.3f}"
        )

    def _disagreement(self, old: str, new: str) -> str:
        """How the new vendor model disagrees, in words; see ``verdict``."""
        releases, labels = self.releases, self.to_old_of_all
        if releases is None:
            return ""
        relation = "contradicts" if releases.contradicts else "does not agree with"
        words = (
            f"{new} {relation} {old}: their vendor models' logits of {releases.examples} of this "
            f"user's examples have a correlation of {releases.value:.2f}"
        )
        if labels is None:
            return f"{words}, and labels are too few to judge by"
        if self.old_with_labels is not None:
            words += f", the old one's with the labels one of {self.old_with_labels.value:.2f}"
        return (
            f"{words}, and {self.measure} of all {labels.examples} labels, each left out, has a "
            f"difference of {labels.mean:+.3f} ± {labels.margin:.3f}"
        )


@dataclass(frozen=True)
class AdapterInfo(Plain):
    """A task that an adapter was loaded for.

    Attributes:
        name: The adapter's name.
        task: ``"classification"`` or ``"matching"``.
        labels: The labels, integers or strings, in the order of the probabilities.
        positive: See ``Device.positive``; None of tags and of a rating.
        examples: How many examples the task has.
        labelled: How many of them have a label.
        is_vendor: Whether the vendor's model is active.
    """

    name: str
    task: str
    labels: tuple[HeadLabel, ...]
    positive: HeadLabel | None
    examples: int
    labelled: int
    is_vendor: bool


@dataclass(frozen=True)
class Preview(Plain):
    """The estimated worth of a replacement to this user, and its cost; nothing was changed.

    Attributes:
        old: Name of the active backbone.
        new: Name of the new one.
        decision: Which model would be installed first; see ``Report``.
        comparison: The first model and the active one, on examples that the new backbone has
            encoded for it.
        passes_to_know: Forward passes after which ``worse`` is known, estimated; None where more
            labels are needed than the user has given.
        seconds: Time of the replacement on this machine, estimated.
        megabytes: Size of the release's file, which is downloaded, in 10^6 bytes.
        disk_megabytes: Growth of the device's folder; below 0 if it would shrink.
        forward_passes: Texts that would pass through the new backbone, at most.
    """

    old: str
    new: str
    decision: Decision
    comparison: Comparison
    passes_to_know: int | None
    seconds: float
    megabytes: float
    disk_megabytes: float
    forward_passes: int

    _derived = "worse", "sentence"

    @property
    def worse(self) -> bool | None:
        """Whether the user would be worse off; None while that is unknown."""
        return self.comparison.worse

    @property
    def sentence(self) -> str:
        """Worth and cost in words."""
        cost = (
            f"{self.new} takes about {self.seconds:.1f} s, "
            f"{counted(self.forward_passes, 'forward pass')} and {self.megabytes:.1f} MB"
        )
        verdict = self.comparison.verdict(self.old, self.new)
        if self.worse is None and self.passes_to_know is not None:
            verdict += f"; after about {counted(self.passes_to_know, 'forward pass')} it is"
        elif self.worse is None:
            verdict += "; more labels are needed to know"
        return f"{verdict}. {cost}."


@dataclass(frozen=True)
class LearnReport(Plain):
    """The result of learning.

    Attributes:
        examples: Examples in the store.
        labelled: How many of them have a label.
        fitted: Examples that the personal model was fitted to; 0 where there was nothing to fit.
        decision: Which model is active; see ``Report``.
        reason: Why, in words.
        waiting: Examples whose texts are not encoded yet, as after a cancellation; ``refine``
            encodes them.
        exact: Whether everything was fitted anew; False if the examples were added to the last fit
            (``Device.fit`` then fits everything).
        scales: See ``Counts``.
        loss: Leave-one-out loss in nats by labelled example, of the last exact fit.
        scores: See ``Report``; of the last exact fit.
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
