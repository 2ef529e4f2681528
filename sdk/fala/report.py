"""What an operation on a device did and cost; built once, after its last commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fala.solver.judge import Decision


@dataclass(frozen=True)
class InstantReport:
    """The model that answered before any forward pass.

    Attributes:
        decision: See ``Report``.
        reason: Why, in words.
        losses: See ``Report``.
        scales: See ``Report``.
        threshold: See ``Report``.
        solves: See ``Report``.
        columns: See ``Report``.
        flops: See ``Report``.
        seconds: From reading the store to the checked model, on the wall.
    """

    decision: Decision
    reason: str
    losses: Mapping[str, float]
    scales: tuple[float, ...]
    threshold: float
    solves: int
    columns: int
    flops: float
    seconds: float


@dataclass(frozen=True)
class Report:
    """What a replacement, or its refinement, did and cost.

    Attributes:
        old: Name of the backbone that was replaced; for a refinement the one that answers.
        new: Name of the one that came.
        decision: ``"personal"`` where a personal model answers; where that would be worse,
            ``"calibrated"``, the vendor's own with the user's slope and bias, or ``"vendor"``, the
            vendor's own as it is.
        reason: Why, in words.
        examples: Examples whose input on the new backbone is known or estimated.
        labelled: How many of them have a label.
        waiting: Examples of which nothing is known before the new backbone has seen them.
        representatives: Examples that passed through the new backbone.
        clusters: Clusters that the first of them were chosen from; 0 over a bridge.
        queries: Strong queries that clustering asked.
        forward_passes: Texts through the new backbone whose embeddings are kept; 0 for word
            vectors.
        backward_passes: 0, by construction.
        probes: The device's own texts that the new release had to answer before it was installed.
        scales: The scale of each block's Gaussian, as the release tells it; empty where nothing
            was fitted.
        agreement: Share of examples on which the fitted model, each left out, decides as the old
            personal model does; None where that cannot be told.
        measure: What the losses are; empty where labels are too few to judge.
        losses: By candidate (see ``decision``), each example left out.
        old_loss: That of the model that answered before, on the examples that it was fitted to;
            None where it is not known.
        bridged: Examples whose input was estimated over a bridge, when the device first answered.
        threshold: Logit above which ``Device.decide`` decides for the second of two labels.
        instant: The model that answered before any forward pass; None without a bridge.
        solves: Least squares problems that were solved, and ``columns`` of each at most.
        columns: See ``solves``.
        flops: Floating-point operations of all fits' products and factors.
        stopped: Why no more texts were encoded.
        seconds: Wall time by stage, and ``"total"``.
        peak_memory: The process's high-water mark in bytes after each stage; empty where the
            operating system does not tell.
    """

    old: str
    new: str
    decision: Decision
    reason: str
    examples: int = 0
    labelled: int = 0
    waiting: int = 0
    representatives: int = 0
    clusters: int = 0
    queries: int = 0
    forward_passes: int = 0
    backward_passes: int = 0
    probes: int = 0
    scales: tuple[float, ...] = ()
    agreement: float | None = None
    measure: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    old_loss: float | None = None
    bridged: int = 0
    threshold: float = 0.0
    instant: InstantReport | None = None
    solves: int = 0
    columns: int = 0
    flops: float = 0.0
    stopped: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory: Mapping[str, int] = field(default_factory=dict)

    @property
    def worse(self) -> bool:
        """Whether the labels say that the user is worse off than before: by ``old_loss``."""
        now = self.losses.get(self.decision)
        return now is not None and self.old_loss is not None and now > self.old_loss

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LearnReport:
    """What a device knows after learning.

    Attributes:
        examples: Examples in the store.
        labelled: How many of them have a label.
        fitted: Examples that the personal model was fitted to; 0 where there was nothing to fit.
        decision: Which model answers; see ``Report``.
        reason: Why, in words.
        exact: Whether all was fitted anew; False where the examples were added to the last fit
            (``Device.fit`` does the rest).
        scales: See ``Report``.
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
