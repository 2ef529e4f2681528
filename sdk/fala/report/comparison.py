"""How two models differ for a user, in words, and what a replacement changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fala.base.errors import be, counted
from fala.base.plain import Plain
from fala.solver.decision import Comparison, Difference


def comparison_in_words(comparison: Comparison, old: str, new: str = "it") -> str:
    """Say whether a user is worse off, without a full stop.

    Args:
        comparison: The comparison.
        old: The name of the old model.
        new: The name of the new model.
    """
    to_old = comparison.to_old
    if to_old is None and not comparison.worse:
        return (
            f"{_inconclusive(old)}: {counted(comparison.labelled, 'label')} of encoded texts "
            f"{be(comparison.labelled)} too few to compare the models"
        )
    if to_old is None or (comparison.worse and not to_old.worse):
        return _disagreement(comparison, old, new)
    losses = losses_in_words(comparison, to_old, comparison.old)
    if comparison.worse is None:
        return f"{_inconclusive(old)}: {losses}"
    word = comparison.judgement.replace("_", " ")
    return f"It is {word} for this user than {old}: {losses}"


def _inconclusive(old: str) -> str:
    return f"The comparison with {old} is inconclusive for this user"


def losses_in_words(comparison: Comparison, difference: Difference, before: float | None) -> str:
    """Describe the carried model's loss beside another model's loss."""
    return (
        f"{comparison.measure} of {comparison.labelled} labels, each left out, "
        f"{comparison.carried:.3f} against {before:.3f}, a difference of {difference.mean:+.3f} ± "
        f"{difference.margin:.3f}"
    )


def _disagreement(comparison: Comparison, old: str, new: str) -> str:
    """Say how the new vendor model disagrees with the old one; see ``Comparison.disagrees``."""
    releases, labels = comparison.releases, comparison.to_old_of_all
    if releases is None:
        return ""
    relation = "contradicts" if releases.contradicts else "does not agree with"
    words = (
        f"{new} {relation} {old}: their vendor models' logits of {releases.examples} of this "
        f"user's examples have a correlation of {releases.value:.2f}"
    )
    if labels is None:
        return f"{words}, and there are too few labels to compare the models"
    if comparison.old_with_labels is not None:
        words += (
            ", the old model's logits have one with the labels of "
            f"{comparison.old_with_labels.value:.2f}"
        )
    return (
        f"{words}, and {comparison.measure} of all {labels.examples} labels, each left out, has a "
        f"difference of {labels.mean:+.3f} ± {labels.margin:.3f}"
    )


@dataclass(frozen=True)
class Changes(Plain):
    """What a replacement changes for a user: decisions on the labelled examples, each left out.

    Every model decides as ``Device.predict`` does, from the left-out logits of ``Comparison``. An
    example counts if both models have an input for it, real or estimated. A decision on tags is
    wrong if the set differs from the user's.

    Attributes:
        examples: Number of examples that count.
        estimated: Number of those that have only an estimated embedding on one of the backbones.
        measure: ``"error rate"``, in percent; for ratings ``"rmse"``, in their unit.
        old: The measure of the old personal model.
        vendor: The measure of the new model alone; None if there is no vendor.
        new: The measure of FaLA's result: the new personal model, or the model that was chosen
            instead.
        negative_flips: Ids of the examples that were right before and are wrong now; see
            ``Device.examples``. None for ratings, which are neither right nor wrong.
        positive_flips: Ids of the examples that were wrong before and are right now; None for
            ratings.
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
        """Number of negative flips; None for ratings."""
        return None if self.negative_flips is None else len(self.negative_flips)

    @property
    def wrong_before_right_now(self) -> int | None:
        """Number of positive flips; None for ratings."""
        return None if self.positive_flips is None else len(self.positive_flips)

    @property
    def summary(self) -> str:
        """The comparison in a sentence."""
        return f"{changes_in_words(self)}."


def changes_in_words(changes: Changes | None) -> str:
    """Say what changes for a user, without a full stop."""
    if changes is None:
        return "What changes for the user is not known: no labelled example can be compared"
    rated = changes.measure == "rmse"
    measure, unit, digits = ("RMSE", "", 3) if rated else (changes.measure, " %", 1)
    models = {
        "the old personal model": changes.old, "the new model alone": changes.vendor,
        "FaLA": changes.new,
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
            f"; {changes.right_before_wrong_now} were right before and are wrong now, and "
            f"{changes.wrong_before_right_now} were wrong before and are right now"
        )
    if changes.estimated:
        words += f"; {changes.estimated} of them have only an estimated embedding"
    return words


@dataclass(frozen=True, eq=False)
class SideBySide(Plain):
    """The decisions of a device's two models on the same n examples.

    Attributes:
        old: The previous release, by product, version and backbone.
        new: The active release.
        before: The previous model's decisions, (n,), as ``Device.predict`` returns them.
        now: The active model's decisions, (n,).
        proba_before: The previous model's probabilities, (n, number of its labels), as
            ``Device.predict_proba`` returns them; None for a rating.
        proba_now: The active model's probabilities, (n, number of labels); None for a rating.
        differ: Whether the two models decide differently, (n,); for ratings, whether they differ by
            more than a tenth of the range.
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
            f"{counted(len(self.differ), 'example')} differently from {self.old}."
        )
