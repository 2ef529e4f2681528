"""The one decision: which model is active, and whether it is worse for this user than the last.

Models are compared by their losses on the user's labelled examples, each left out.

- ``decide`` chooses the vendor's own model, the recalibrated one, or the personal one at the
  release's mixing weight. The personal model is expected; another one takes its place if its mean
  loss is lower by a standard error of the difference.
- ``Comparison`` tells whether the carried model is worse or better than the old one, by a one-sided
  95 % interval, and where the labels do not tell, by the correlation of the two vendor models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fala.base.errors import be, counted
from fala.base.plain import Plain
from fala.base.products import Floats
from fala.model.links import LABELS, Link, PerTag

#: The least number of labelled examples, and of examples of each of two labels, for a comparison.
MIN_LABELLED, MIN_OF_A_LABEL = 10, 3
#: A rise of the cross-entropy that a user would notice, in nats.
MATTERS = 0.02
#: The 95 % quantile of the normal distribution.
NORMAL_95 = 1.6449
#: Encoded examples needed before two releases that do not agree count as unrelated.
MIN_REAL = 20

# Differences below this are printed as 0.
_SHOWN = 0.0005
# The largest correlation, for Fisher's z.
_LARGEST = 1 - 1e-12

#: The active model: the personal one, the vendor's with the user's own slope and bias, or the
#: vendor's own.
Decision: TypeAlias = Literal["personal", "calibrated", "vendor"]

#: Whether a model is better or worse for a user than another.
Judgement: TypeAlias = Literal["better", "no_worse", "worse", "unknown"]

_WORDS: Mapping[str, str] = {
    "personal": "the personal model",
    "calibrated": "the recalibrated model",
    "vendor": "the model without personalization",
}
# A head that knows nothing has no direction, so only its bias is fitted.
_NO_DIRECTION = "the shares of the labels alone"


@dataclass(frozen=True)
class Difference(Plain):
    """How much larger one model's losses are than another's, by pairs of the same example.

    Attributes:
        mean: The mean difference, in nats; above 0 the first model is worse.
        error: The standard error of the mean.
        examples: The number of pairs, at least two.
    """

    mean: float
    error: float
    examples: int

    @classmethod
    def of(cls, losses: Floats, others: Floats) -> Difference:
        """Return the difference of two models' losses of the same examples, (n,)."""
        difference = losses - others
        error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
        return cls(float(difference.mean()), error, len(difference))

    @property
    def worse(self) -> bool:
        """Whether the first model is worse beyond noise.

        That is so if 0 is below a one-sided 95 % interval, unless the difference is printed as 0.
        """
        return self.mean > max(self.margin, _SHOWN)

    @property
    def better(self) -> bool:
        """Whether the first model is better beyond noise."""
        return -self.mean > max(self.margin, _SHOWN)

    @property
    def deviations(self) -> float:
        """The mean in units of its standard error."""
        return self.mean / max(self.error, _SHOWN / 2)

    @property
    def margin(self) -> float:
        """Half the width of the two-sided 90 % interval, by Student's t.

        Its quantile is the Cornish-Fisher expansion about the normal one (Abramowitz and Stegun,
        26.7.5), which is within 0.009 from 5 degrees of freedom on, and within 0.002 from 8 on.
        """
        z, freedom = NORMAL_95, self.examples - 1
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return (z + first / freedom + second / freedom**2) * self.error


@dataclass(frozen=True)
class Verdict:
    """The decision on a fit.

    Attributes:
        decision: The model to activate.
        reason: The reason for the decision, in words.
        mixing: The mixing weight: the share of the way from the recalibrated model to the full fit;
            one share per tag for tags.
        measure: The kind of loss; empty if there are too few labels to compare models.
        losses: The mean leave-one-out loss of each candidate, in nats; empty likewise.
        scores: For ratings, the leave-one-out ``"rmse"`` and ``"rank_correlation"`` of the chosen
            model; empty for labels.
    """

    decision: Decision
    reason: str
    mixing: PerTag = 0.0
    measure: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


def decide(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats | None,
    link: Link = LABELS,
    mixing: float = 1.0,
) -> Verdict:
    """Choose the active model by leave-one-out logits.

    There are three candidates: the vendor's own model, the recalibrated one, which ranks as the
    vendor's does, and the personal one. The personal model lies between the recalibrated model and
    the full fit, at the mixing weight that simulated users chose for this number of labels. It is
    the expected choice. Another candidate replaces it if its loss is lower by a standard error of
    the difference; if both others do, the one with the least loss is chosen. A few labels prove
    little: choosing by the lowest loss alone is no better on people who are in no table, and leaves
    more of them with wrong decisions (``device_sim/results/README.md``).

    Tags are first recalibrated one by one, by the same rule, because a user differs from others in
    some tags only. A tag with too few labels to compare is personal. Then all tags are compared
    together.

    Rows that were mapped over a bridge count as well. They raise the losses of all models, and make
    the full fit look worse by at most 0.002 nats.

    If there are too few labels to compare, the expected model is chosen. Without any label it is
    the full fit, which follows the old logits.

    Args:
        labels: Labels of the n labelled examples, as class shares or numbers, (n, C).
        full: Leave-one-out logits of the full fit, (n, C).
        calibrated: Leave-one-out logits of the vendor's direction with the user's slope and bias.
        vendor: The vendor's own logits. None if its head knows nothing: such a head would decide by
            a coin, so it is no candidate.
        link: The meaning of the logits.
        mixing: The expected mixing weight, a share of the full fit.
    """
    count, logits = labels.shape
    tags = link.kind == "tags"
    parts = [slice(tag, tag + 1) for tag in range(logits)] if tags else [slice(None)]
    of_part = LABELS if tags else link
    compared = [part for part in parts if can_compare(labels[:, part], of_part)]

    def losses_of(models: Mapping[Decision, Floats], part: slice) -> dict[Decision, Floats]:
        return {name: of_part.losses(labels[:, part], z[:, part]) for name, z in models.items()}

    # Without labels the fit follows old logits, whose model was chosen when they were made.
    shares = np.full(logits, mixing if count else 1.0)
    personal = calibrated + shares * (full - calibrated)
    models: dict[Decision, Floats] = {"personal": personal, "calibrated": calibrated}
    if tags:
        for part in compared:
            if _best(losses_of(models, part), _WORDS)[0] == "calibrated":
                shares[part], personal[:, part] = 0.0, calibrated[:, part]
    if not shares.any():
        del models["personal"]
    if vendor is not None:
        models["vendor"] = vendor
    if compared:
        of_parts = [losses_of(models, part) for part in compared]
        every = {name: np.sum([each[name] for each in of_parts], axis=0) for name in models}
        losses = {str(name): float(loss.mean()) for name, loss in every.items()}
        words = _WORDS if vendor is not None else {**_WORDS, "calibrated": _NO_DIRECTION}
        decision, why = _best(every, words)
        means = ", ".join(f"{words[name]} {loss:.3f}" for name, loss in losses.items())
        measure = f"{link.measure} of labels"
        on = f"the {len(compared)} with enough labels" if tags else f"{count} examples"
        reason = f"{measure} on {on}, each left out: {means}{why}"
    else:
        decision, losses, measure = next(iter(models)), {}, ""
        why = "; what is personal has its expected share"
        reason = f"{counted(count, 'label')} {be(count)} too few to compare models by"
        reason += why if count else ": the model follows the old logits"
    shares *= decision == "personal"
    if tags:
        number = int(np.count_nonzero(shares))
        reason = f"{number} of {counted(logits, 'tag')} {be(number)} personal; {reason}"
    share: PerTag = tuple(shares.tolist()) if tags else float(shares[0])
    scores = link.scores(labels, models[decision])
    return Verdict(decision, reason, share, measure, losses, scores)


def _best(losses: Mapping[Decision, Floats], words: Mapping[str, str]) -> tuple[Decision, str]:
    """Return the model to choose, and what its loss, or the least loss, says about it.

    It is the first model, unless the loss of another is lower by a standard error.
    """
    expected = next(iter(losses))
    gains = {name: Difference.of(losses[expected], loss) for name, loss in losses.items()}
    lower = [name for name, gain in gains.items() if gain.mean > gain.error]
    best = max(lower or gains, key=lambda name: gains[name].mean)
    if best == expected:
        return expected, ""
    gain = gains[best]
    why = (
        f"; that of {words[best]} is lower than that of {words[expected]} by {gain.mean:.3f} ± "
        f"{gain.error:.3f}, {'more than' if lower else 'within'} a standard error"
    )
    return best if lower else expected, why


@dataclass(frozen=True)
class Correlation(Plain):
    """The correlation of two releases' vendor models on the same examples.

    Attributes:
        value: Pearson's correlation of their logits.
        examples: The number of examples.
        real: Whether both backbones have encoded all examples. Estimated embeddings contain less
            than real ones, and many of them have the same error.
    """

    value: float
    examples: int
    real: bool = False

    @classmethod
    def of(cls, first: Floats, second: Floats, *, real: bool) -> Correlation | None:
        """Return the correlation of numbers (n, C), or None if either side is constant."""
        # This is exact, while the mean of equal numbers may differ from them in the last digit.
        if not (len(first) and np.ptp(first, axis=0).any() and np.ptp(second, axis=0).any()):
            return None
        first, second = (numbers - numbers.mean(axis=0) for numbers in (first, second))
        norm = float(np.linalg.norm(first) * np.linalg.norm(second))
        return cls(float((first * second).sum() / norm), len(first), real) if norm else None

    @property
    def contradicts(self) -> bool:
        """Whether the correlation is below 0 by more than a standard error of Fisher's z.

        Fewer than 10 examples prove nothing. On 86 people who are in no published figure
        (MD-Agreement and MultiPICo, 20 labels or more, from word vectors to MiniLM), it is True for
        every head whose sign is reversed, and for none of the correct heads.
        """
        return self.examples >= MIN_LABELLED and self.deviations < -1

    @property
    def unrelated(self) -> bool:
        """Whether ``MIN_REAL`` examples or more do not show it above 0 by two standard errors.

        Two heads for the same labels agree on real texts. With 20 encoded texts of each of the same
        86 people, a random head was unrelated for 98 % of them, and the vendor's head for none.
        """
        return self.real and self.examples >= MIN_REAL and self.deviations < 2

    @property
    def agrees(self) -> bool:
        """Whether it is above 0 by two standard errors, or there are fewer than 10 examples."""
        return self.examples < MIN_LABELLED or self.deviations >= 2

    @property
    def deviations(self) -> float:
        """Fisher's z in units of its standard error; it needs 4 examples or more."""
        value = min(max(self.value, -_LARGEST), _LARGEST)
        return math.atanh(value) * math.sqrt(self.examples - 3)


@dataclass(frozen=True)
class Comparison(Plain):
    """Losses of three models on the same labelled examples, each left out.

    Only examples that both backbones have encoded count, because in use every text has its real
    embedding, and an estimated one reflects the bridge more than the model. Half of the encoded
    texts are random.

    Attributes:
        labelled: The number of these examples.
        old: The mean loss of the old personal model, in nats; None without an example.
        vendor: The mean loss of the new model alone, without personalization.
        carried: The mean loss of the personal model on the new backbone.
        to_old: How much worse the carried model is than the old one; None if there are too few
            labels to compare.
        to_vendor: How much worse the carried model is than the new model alone.
        to_old_of_all: How much worse the carried model is than the old one on all labelled
            examples, including those with an estimated embedding; None if the two releases agree
            (``releases``), or all labels together are too few to compare.
        old_with_labels: The correlation of the old vendor model with these labels; None likewise.
        releases: The correlation of the old and the new vendor model on the user's examples,
            labelled or not; None without an example.
        measure: The kind of loss. For ratings it is half the squared error divided by the square of
            the noise that the new release states.
        scores: For ratings, the ``"rmse"`` and ``"rank_correlation"`` of ``"old"``, ``"vendor"``
            and ``"carried"``; empty for labels.
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

        Without enough labels it does if it contradicts the old vendor model or is unrelated to it;
        see ``Correlation``. Otherwise the labels decide, by the number of standard errors by which
        the carried model's loss is higher on all of them. A second number is added to it: by how
        many standard errors the releases' correlation is below that of two related heads, which is
        at least one. It counts as far as the old head is known to agree with this user: in full
        from two standard errors on, and not at all if that head is no better than chance.
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

        True if its loss is higher beyond noise, and False if the labels rule out that it is higher
        by ``MATTERS``. Otherwise True if the new vendor model disagrees (``disagrees``), or None,
        which means that the comparison is inconclusive. ``accept="better-than-old"`` refuses a
        release if this is True.
        """
        if self.to_old is not None and self.to_old.worse:
            return True
        if self.to_old is not None and self.to_old.mean + self.to_old.margin < MATTERS:
            return False
        return True if self.disagrees else None

    @property
    def judgement(self) -> Judgement:
        """The judgement of ``worse`` in a word; "better" means better beyond noise."""
        if self.worse is None:
            return "unknown"
        if self.worse:
            return "worse"
        return "better" if self.to_old is not None and self.to_old.better else "no_worse"


def can_compare(labels: Floats, link: Link = LABELS) -> bool:
    """Return whether labels, as class shares or numbers (n, C), suffice to compare models."""
    return len(labels) >= MIN_LABELLED and link.varied(labels, MIN_OF_A_LABEL)
