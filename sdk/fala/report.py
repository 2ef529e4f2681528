"""What an operation on a device did and cost; built once, after its last commit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fala.solver.judge import MIN_LABELLED, Decision
from fala.solver.newton import Work


@dataclass(frozen=True)
class Counts:
    """What an operation took: for laboratories, and for those who look closely.

    Attributes:
        representatives: Examples whose texts passed through the new backbone.
        clusters: Clusters that texts were chosen from; 0 over a bridge.
        queries: Strong queries that clustering asked.
        probes: The device's own texts that the new release had to answer before it was installed.
        agreement: Share of examples on which the fitted model, each left out, decides as the old
            personal model does; None where there is nothing to compare.
        measure: What ``Report.losses`` are; empty where labels are too few to judge.
        scales: The scale of each block's Gaussian, as the release brings it; empty where nothing
            was fitted.
        fits: What each fit took, in sizes and counts.
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
class InstantReport:
    """The personal model that was installed before any forward pass.

    Attributes:
        decision: See ``Report``.
        reason: Why, in words.
        losses: See ``Report``.
        threshold: See ``Report``.
        seconds: Wall time from reading the store to the checked model.
        counts: What it took.
    """

    decision: Decision
    reason: str
    losses: Mapping[str, float]
    threshold: float
    seconds: float
    counts: Counts


@dataclass(frozen=True)
class PromptReport:
    """An attempt with a prompt of the user's own texts; see ``Device.refine``.

    Attributes:
        taken: Whether the device reads texts with the prompt from now on.
        reason: Why, or why not, in words.
        forward_passes: The pass that compiled the prompt, and the texts that were read with it.
            ``Report.forward_passes`` does not contain them.
        labelled: The labelled examples that judged it. None of their texts is in the prompt.
        old_loss: Mean cross-entropy in nats of the previous model, each left out; None where
            nothing was judged.
        loss: That of the personal model with the prompt, on the same examples.
        difference: How much worse the prompt's model is, pair by pair.
        texts: How many of the user's texts are in the prompt.
    """

    taken: bool
    reason: str
    forward_passes: int = 0
    labelled: int = 0
    old_loss: float | None = None
    loss: float | None = None
    difference: Difference | None = None
    texts: int = 0


@dataclass(frozen=True)
class Report:
    """What a replacement, or its refinement, did and cost.

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
        forward_passes: Texts through the new backbone whose embeddings are kept; 0 for word
            vectors. Backward passes there are none, by construction.
        losses: By candidate (see ``decision``), each example left out.
        old_loss: That of the previous model, on the examples that it was fitted to; None where it
            is not known.
        bridged: Examples whose input was estimated over a bridge, in the first model.
        threshold: Logit above which ``Device.decide`` decides for the second of two labels.
        stopped: Why no more texts were encoded.
        seconds: Wall time by stage, and ``"total"``.
        instant: The model that was installed before any forward pass; None without a bridge or
            words.
        adapters: What a replacement did for every further task, by its adapter's name; texts that
            passed for one of them are counted there.
        prompt: The attempt with a prompt; None where none was asked for.
        counts: What it took, in the laboratory's terms.
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
    old_loss: float | None = None
    bridged: int = 0
    threshold: float = 0.0
    stopped: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    instant: InstantReport | None = None
    adapters: Mapping[str, Report] = field(default_factory=dict)
    prompt: PromptReport | None = None
    counts: Counts = field(default_factory=Counts)

    @property
    def worse(self) -> bool:
        """Whether the losses are higher than before: those of ``decision`` above ``old_loss``."""
        now = self.losses.get(self.decision)
        return now is not None and self.old_loss is not None and now > self.old_loss

    @property
    def sentence(self) -> str:
        """The result in one sentence, with a warning where the losses are higher than before."""
        now = self.losses.get(self.decision)
        if self.worse and now is not None and self.old_loss is not None:
            return (
                f"Worse for this user than {self.old}: cross-entropy of labels, each left out, "
                f"{now:.3f} against {self.old_loss:.3f}; Device.rollback goes back."
            )
        if self.old == self.new:
            return f"{self.new} was refined: {self.stopped or self.reason}."
        if self.decision == "personal":
            return f"The personal model was carried over from {self.old} to {self.new}."
        kind = "as it is" if self.decision == "vendor" else "with the user's slope and bias"
        return f"The vendor's model on {self.new} is active, {kind}: {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        adapters = {name: report.to_dict() for name, report in self.adapters.items()}
        verdict = {"worse": self.worse, "sentence": self.sentence}
        return {**asdict(self), "adapters": adapters, **verdict}


@dataclass(frozen=True)
class Difference:
    """How much larger one model's losses are than another's, by pairs of the same example.

    Attributes:
        mean: The mean difference, in nats; above 0 the first model is worse.
        error: Its standard error.
    """

    mean: float
    error: float

    @property
    def worse(self) -> bool:
        """Whether the first model is worse beyond chance: by more than a standard error."""
        return self.mean > self.error

    @property
    def better(self) -> bool:
        """Whether it is better beyond chance."""
        return -self.mean > self.error


@dataclass(frozen=True)
class Correlation:
    """The correlation of two releases' vendor models on the same examples.

    Attributes:
        value: Pearson's correlation of their logits.
        examples: How many those are.
    """

    value: float
    examples: int

    @property
    def contradicts(self) -> bool:
        """Whether it is below 0 by more than a standard error of Fisher's z.

        Fewer than 10 examples prove nothing. From word vectors to MiniLM the correlation was about
        .5 for five validation users of three sets: of heads with the sign turned this finds 72 to
        85 % by 10 examples and 92 to 100 % by 25; of heads as they are 0 to 5 %, and none.
        """
        if self.examples < MIN_LABELLED:
            return False
        return self.value < -math.tanh(1 / math.sqrt(self.examples - 3))


@dataclass(frozen=True)
class AdapterInfo:
    """A task that an adapter was loaded for.

    Attributes:
        name: The adapter's name.
        task: ``"classification"`` or ``"matching"``.
        labels: The labels' names, in the order of the probabilities.
        positive: Of two labels, the one whose F1 ``decide`` is to be best at.
        threshold: The logit above which ``decide`` decides for the second of two labels.
        examples: How many examples the task has.
        labelled: How many of them have a label.
        is_vendor: Whether the vendor's model is active.
    """

    name: str
    task: str
    labels: tuple[str, ...]
    positive: str
    threshold: float
    examples: int
    labelled: int
    is_vendor: bool


@dataclass(frozen=True)
class Preview:
    """What a replacement would be worth to this user, and cost; nothing was changed for it.

    Attributes:
        old: Name of the active backbone.
        new: Name of the new one.
        decision: Which model would be installed first; see ``Report``.
        labelled: The examples that the losses are of: those with a label that have a real or an
            estimated input on both backbones.
        old_loss: Mean cross-entropy in nats of the active model, each example left out; None
            where there is nothing to compare by.
        vendor_loss: That of the vendor's new model, as everybody gets it.
        carried_loss: That of the personal model on the new backbone.
        to_old: How much worse the carried model is than the old one; None where labels are too few
            to judge by.
        to_vendor: How much worse it is than the vendor's new one.
        releases: The correlation of the old and the new vendor model on the user's examples,
            labelled or not; None where there is none.
        seconds: What the replacement would take on this machine, estimated.
        megabytes: The release's file: what is downloaded, in 10^6 bytes.
        disk_megabytes: How much the device's folder would grow; below 0 where it would shrink.
        forward_passes: Texts that would pass through the new backbone, at most.
    """

    old: str
    new: str
    decision: Decision
    labelled: int
    old_loss: float | None
    vendor_loss: float | None
    carried_loss: float | None
    to_old: Difference | None
    to_vendor: Difference | None
    releases: Correlation | None
    seconds: float
    megabytes: float
    disk_megabytes: float
    forward_passes: int

    @property
    def sentence(self) -> str:
        """Whether it is worth it, in one sentence."""
        cost = (
            f"it takes about {self.seconds:.1f} s, {self.forward_passes} forward passes and "
            f"{self.megabytes:.1f} MB"
        )
        if self.releases is not None and self.releases.contradicts:
            return (
                f"{self.new} contradicts {self.old}: their vendor models' logits of "
                f"{self.releases.examples} of this user's examples have a correlation of "
                f"{self.releases.value:.2f}; {cost}."
            )
        if self.old_loss is None or self.vendor_loss is None or self.carried_loss is None:
            return f"There is no label to judge {self.new} by; {cost}."
        losses = (
            f"cross-entropy of {self.labelled} labels, each left out, {self.carried_loss:.3f} "
            f"against {self.old_loss:.3f} ({self.vendor_loss:.3f} for the vendor's model)"
        )
        if self.to_old is None:
            verdict = f"{self.labelled} labels are too few to judge {self.new} by"
        elif self.to_old.worse:
            verdict = f"{self.new} is worse for this user than {self.old}"
        elif self.to_old.better:
            verdict = f"{self.new} is better for this user than {self.old}"
        else:
            verdict = f"{self.new} is as good for this user as {self.old}, within a standard error"
        return f"{verdict}: {losses}; {cost}."

    def to_dict(self) -> dict[str, Any]:
        """The preview as plain values, for JSON."""
        return {**asdict(self), "sentence": self.sentence}


@dataclass(frozen=True)
class LearnReport:
    """What learning did.

    Attributes:
        examples: Examples in the store.
        labelled: How many of them have a label.
        fitted: Examples that the personal model was fitted to; 0 where there was nothing to fit.
        decision: Which model is active; see ``Report``.
        reason: Why, in words.
        exact: Whether all was fitted anew; False where the examples were added to the last fit
            (``Device.fit`` does the rest).
        scales: See ``Counts``.
        loss: Leave-one-out loss in nats by labelled example, of the last exact fit.
    """

    examples: int
    labelled: int
    fitted: int
    decision: Decision
    reason: str
    exact: bool = True
    scales: tuple[float, ...] = ()
    loss: float | None = None
