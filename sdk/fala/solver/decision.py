"""The one decision: which model is active, and whether it is worse for this user than the last.

Models are compared by their losses on the user's labelled examples, each left out.

- **Which** (``decide``): the vendor's own, the recalibrated one, or the personal one at the
  release's mixing weight. The personal one is expected; another takes its place if its mean loss is
  lower by a standard error of the difference.
- **Worse or better** (``Comparison``): the carried model against the old one, by a one-sided 95 %
  interval, and by the correlation of the two vendor models where labels do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fala.base.errors import be, counted
from fala.base.plain import Plain
from fala.model.links import LABELS, Link, PerTag
from fala.model.losses import Floats

#: Labelled examples, and examples of each label, that are needed to judge a model.
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
    "calibrated": "the vendor's with the user's own slope and bias",
    "vendor": "the vendor's own",
}
# A head that knows nothing has no direction: its bias alone is fitted.
_NO_DIRECTION = "the shares of the labels alone"


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

    @classmethod
    def of(cls, losses: Floats, others: Floats) -> Difference:
        """The difference of two models' losses of the same examples, (n,)."""
        difference = losses - others
        error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
        return cls(float(difference.mean()), error, len(difference))

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
        """Half the width of the two-sided 90 % interval, by Student's t.

        The quantile is within .009 from 5 degrees of freedom on, .002 from 8: the Cornish-Fisher
        expansion about the normal one (Abramowitz and Stegun, 26.7.5).
        """
        z, freedom = NORMAL_95, self.examples - 1
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return (z + first / freedom + second / freedom**2) * self.error


@dataclass(frozen=True)
class Verdict:
    """The decision on a fit.

    Attributes:
        decision: The model to activate.
        reason: Why, in words.
        trust: Its share between the calibrated model and the full fit; of tags one each.
        measure: The kind of loss; empty where labels are too few to judge by.
        losses: Mean loss in nats, each example left out, by candidate; empty likewise.
        scores: Of a rating, ``"rmse"`` and ``"rank_correlation"`` of the chosen model, each
            example left out; empty of labels.
    """

    decision: Decision
    reason: str
    trust: PerTag = 0.0
    measure: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


def decide(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats | None,
    link: Link = LABELS,
    trust: float = 1.0,
) -> Verdict:
    """Choose the active model by leave-one-out logits.

    The candidates are the vendor's own model, the calibrated one, which ranks as the vendor's does,
    and the personal one: the release's share of the way from there to the full fit, which public
    annotators chose for this number of labels. It is expected; another replaces it if its loss is
    lower by a standard error of the difference; of both the one with the least loss. Few labels
    prove little: the lowest loss alone is no better on people who are in no table, and leaves more
    of them with wrong decisions (``docs/tried.md``).

    Of tags each is calibrated first by the same rule, as a user differs from others in some tags;
    one with too few labels to judge is personal. Then all of them together are compared.

    Rows over a bridge count, too: they raise the losses of all models, and make the full fit look
    worse by .002 nats at most.

    If labels are too few to judge, the model is the expected one; without any label it is the full
    fit, to the old logits.

    Args:
        labels: Labels of the n labelled examples, as class shares or numbers, (n, C).
        full: Logits (n, C) of the full fit, each left out.
        calibrated: Those of the vendor's direction with the user's own slope and bias.
        vendor: The vendor's own logits; None of a head that knows nothing: it would decide by a
            coin, and is no candidate.
        link: The meaning of the logits.
        trust: The expected share of the full fit.
    """
    count, logits = labels.shape
    tags = link.kind == "tags"
    parts = [slice(tag, tag + 1) for tag in range(logits)] if tags else [slice(None)]
    of_part = LABELS if tags else link
    judged = [part for part in parts if can_judge(labels[:, part], of_part)]

    def losses_of(models: Mapping[Decision, Floats], part: slice) -> dict[Decision, Floats]:
        return {name: of_part.losses(labels[:, part], z[:, part]) for name, z in models.items()}

    # Without labels old logits are followed, which were judged when they were made.
    shares = np.full(logits, trust if count else 1.0)
    personal = calibrated + shares * (full - calibrated)
    models: dict[Decision, Floats] = {"personal": personal, "calibrated": calibrated}
    if tags:
        for part in judged:
            if _best(losses_of(models, part), _WORDS)[0] == "calibrated":
                shares[part], personal[:, part] = 0.0, calibrated[:, part]
    if not shares.any():
        del models["personal"]
    if vendor is not None:
        models["vendor"] = vendor
    if judged:
        of_parts = [losses_of(models, part) for part in judged]
        every = {name: np.sum([each[name] for each in of_parts], axis=0) for name in models}
        losses = {str(name): float(loss.mean()) for name, loss in every.items()}
        words = _WORDS if vendor is not None else {**_WORDS, "calibrated": _NO_DIRECTION}
        decision, why = _best(every, words)
        means = ", ".join(f"{words[name]} {loss:.3f}" for name, loss in losses.items())
        measure = f"{link.measure} of labels"
        on = f"the {len(judged)} with labels to judge by" if tags else f"{count} examples"
        reason = f"{measure} on {on}, each left out: {means}{why}"
    else:
        decision, losses, measure = next(iter(models)), {}, ""
        why = "; what is personal has its expected share"
        reason = f"{counted(count, 'label')} {be(count)} too few to judge by"
        reason += why if count else ": the model follows the old logits"
    shares *= decision == "personal"
    if tags:
        number = int(np.count_nonzero(shares))
        reason = f"{number} of {counted(logits, 'tag')} {be(number)} personal; {reason}"
    share: PerTag = tuple(shares.tolist()) if tags else float(shares[0])
    scores = link.scores(labels, models[decision])
    return Verdict(decision, reason, share, measure, losses, scores)


def _best(losses: Mapping[Decision, Floats], words: Mapping[str, str]) -> tuple[Decision, str]:
    """The first model, unless another is lower by a standard error, and what the least says."""
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
        real: Whether both backbones have encoded all of them. Estimated embeddings contain less
            than real ones, and many of them have the same error.
    """

    value: float
    examples: int
    real: bool = False

    @classmethod
    def of(cls, first: Floats, second: Floats, *, real: bool) -> Correlation | None:
        """The correlation of numbers (n, C); None where one of them are all the same."""
        # Exactly: the mean of equal numbers may differ from them in the last digit.
        if not (len(first) and np.ptp(first, axis=0).any() and np.ptp(second, axis=0).any()):
            return None
        first, second = (numbers - numbers.mean(axis=0) for numbers in (first, second))
        norm = float(np.linalg.norm(first) * np.linalg.norm(second))
        return cls(float((first * second).sum() / norm), len(first), real) if norm else None

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


def can_judge(labels: Floats, link: Link = LABELS) -> bool:
    """Whether labels, as class shares or numbers (n, C), are enough to judge a model by."""
    return len(labels) >= MIN_LABELLED and link.varied(labels, MIN_OF_A_LABEL)
