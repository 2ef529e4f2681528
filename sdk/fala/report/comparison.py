"""How two models differ for a user: losses, decisions, and the releases' own correlation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import be, counted
from fala.report.plain import Plain
from fala.solver.judge import MATTERS, MIN_LABELLED, NORMAL_95, student95

#: Whether a model is better or worse for a user than another.
Judgement = Literal["better", "no_worse", "worse", "unknown"]

#: Encoded examples needed before two releases that do not agree count as unrelated.
MIN_REAL = 20
#: Differences below this are printed as 0.
_SHOWN = 0.0005
#: The largest correlation, for Fisher's z.
_LARGEST = 1 - 1e-12


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
class Changes(Plain):
    """What a replacement changes for a user: decisions on the labelled examples, each left out.

    Every model decides as ``Device.predict`` does, by the left-out logits of ``Comparison``. All
    examples count that both models have an input of, real or estimated. Tags are wrong where the
    set differs from the user's.

    Attributes:
        examples: How many examples count.
        estimated: How many of them have only an estimated embedding on one of the backbones.
        measure: ``"error rate"``, in percent; of ratings ``"rmse"``, in their unit.
        old: The measure of the old personal model.
        vendor: That of the vendor's new model; None where there is no vendor.
        new: That of the new personal model, or of the one that was chosen instead.
        negative_flips: Ids of the examples that were right before and are wrong now; see
            ``Device.examples``. None of ratings, which are neither right nor wrong.
        positive_flips: Ids of those that were wrong before and are right now; None likewise.
    """

    examples: int
    estimated: int
    measure: str
    old: float
    vendor: float | None
    new: float
    negative_flips: tuple[int, ...] | None = None
    positive_flips: tuple[int, ...] | None = None

    _derived = "right_before_wrong_now", "wrong_before_right_now"

    @property
    def right_before_wrong_now(self) -> int | None:
        """Number of negative flips; None of ratings."""
        return None if self.negative_flips is None else len(self.negative_flips)

    @property
    def wrong_before_right_now(self) -> int | None:
        """Number of positive flips; None of ratings."""
        return None if self.positive_flips is None else len(self.positive_flips)

    @property
    def summary(self) -> str:
        """The comparison in a sentence."""
        return f"{changes_in_words(self)}."


def changes_in_words(changes: Changes | None) -> str:
    """What changes for a user, without a full stop."""
    if changes is None:
        return "What changes for the user is not known: no labelled example can be compared"
    rated = changes.measure == "rmse"
    measure, unit, digits = ("RMSE", "", 3) if rated else (changes.measure, " %", 1)
    models = {
        "the old personal model": changes.old, "the vendor's new model": changes.vendor,
        "the user's new model": changes.new,
    }  # fmt: skip
    figures = ", ".join(
        f"{value:.{digits}f}{unit} with {model}"
        for model, value in models.items()
        if value is not None
    )
    words = (
        f"On {counted(changes.examples, 'labelled example')}, each left out, the {measure} is "
        f"{figures}"
    )
    if not rated:
        words += (
            f"; right before and wrong now: {changes.right_before_wrong_now}, wrong before and "
            f"right now: {changes.wrong_before_right_now}"
        )
    if changes.estimated:
        words += f"; examples whose embedding is only estimated: {changes.estimated}"
    return words


@dataclass(frozen=True, eq=False)
class SideBySide(Plain):
    """The decisions of a device's two models on the same n examples.

    Attributes:
        old: The previous release, by product, version and backbone.
        new: The active one.
        before: The previous model's decisions, (n,), as ``Device.predict`` returns them.
        now: The active model's, (n,).
        proba_before: The previous model's probabilities, (n, number of its labels), as
            ``Device.predict_proba`` returns them; None of a rating.
        proba_now: The active model's, (n, number of labels); None of a rating.
        differ: Whether the two decide otherwise, (n,); of ratings, whether they are further apart
            than a tenth of the range.
    """

    old: str
    new: str
    before: NDArray[Any]
    now: NDArray[Any]
    proba_before: NDArray[np.float64] | None
    proba_now: NDArray[np.float64] | None
    differ: NDArray[np.bool_]

    @property
    def summary(self) -> str:
        """The comparison in a sentence."""
        return (
            f"{self.new} decides {int(self.differ.sum())} of "
            f"{counted(len(self.differ), 'example')} otherwise than {self.old}."
        )
