"""The check: is the personal model better than the vendor's, on examples that it was not fitted to?

And the threshold at which its labels are decided. Of tags each is judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fala.model.links import LABELS, Labels, Link, PerTag, Tags
from fala.model.losses import Floats, probabilities

#: Labelled examples, and of each label, below which labels do not judge a model.
MIN_LABELLED, MIN_OF_A_LABEL = 10, 3


#: How far a personal model goes from the calibrated one to the full fit, as a rule, and labels from
#: which on it may go all the way.
HALF, MANY = 0.5, 100

# Of a positive example: how far few labels leave the threshold at 1/2.
_HELD = 0.5

#: Which model answers: the personal one, the vendor's with the user's own slope and bias, or the
#: vendor's own.
Decision: TypeAlias = Literal["personal", "calibrated", "vendor"]


@dataclass(frozen=True)
class Verdict:
    """What the labels say of a fit.

    Attributes:
        decision: Which model is to answer.
        reason: Why, in words.
        trust: How far it goes from the calibrated model to the full fit; of tags one each.
        measure: What the losses are; empty where labels are too few to judge by.
        losses: Mean loss in nats, each example left out, by candidate; empty likewise.
        threshold: Logit above which the second of two labels is decided; of tags one each.
        scores: Of a rating, ``"rmse"`` and ``"rank_correlation"`` of the chosen model, each
            example left out; empty of labels.
    """

    decision: Decision
    reason: str
    trust: PerTag = 0.0
    measure: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    threshold: PerTag = 0.0
    scores: Mapping[str, float] = field(default_factory=dict)


_WORDS = {
    "personal": "the personal model",
    "calibrated": "the vendor's with the user's own slope and bias",
    "vendor": "the vendor's own",
}


def judge(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats,
    positive: int = -1,
    link: Link = LABELS,
) -> Verdict:
    """Choose what answers, by logits of examples that are each left out.

    Half way from the calibrated model to the full fit where that is better than the calibrated
    model; all the way where, of ``MANY`` labels or more, the full fit is better by a standard error
    of the difference; else the calibrated one, which ranks as the vendor's does. Leave-one-out of
    few labels proves little: on 80 people who are in no published figure, the full fit left 28 and
    38 of 100 more than .005 AUC below the vendor's own model, this 7 to 15.

    Rows over a bridge judge too, as they are: they raise the losses of all candidates, and make
    the model half way look worse by .002 nats at most. Stricter rules had a lower AUC and a higher
    loss in the mean; looser ones put more people below (``docs/tried.md``).

    Where labels are too few to judge, nothing contradicts the Gaussian, and half way it is; the
    threshold is held near a probability of 1/2.

    Each tag is judged by itself, as a head of two labels is: a user differs from others in some
    tags, and of rare ones there are too few to judge. The decision is ``"personal"`` where that of
    one tag is.

    Args:
        labels: Labels of the n labelled examples, as class shares or numbers, (n, C).
        full: Logits (n, C) of the full fit, each left out.
        calibrated: Those of the vendor's direction with the user's own slope and bias.
        vendor: The vendor's own logits.
        positive: Of two labels, the one whose F1 the threshold is for.
        link: What the logits mean.
    """
    if isinstance(link, Tags):
        columns = zip(labels.T, full.T, calibrated.T, vendor.T, strict=True)
        return _joined([judge(*(one[:, None] for one in column)) for column in columns], link)
    half = calibrated + HALF * (full - calibrated)
    binary = isinstance(link, Labels) and half.shape[1] == 1
    if not can_judge(labels, link):
        why = "labels are too few to judge by; what is personal is held near the vendor's model"
        threshold = _threshold_of_few(labels, half, positive) if binary else 0.0
        return Verdict(
            "personal", f"{len(labels)} {why}", HALF, threshold=threshold,
            scores=link.scores(labels, half),
        )  # fmt: skip
    by_example = [link.losses(labels, z) for z in (full, half, calibrated)]
    losses = [float(loss.mean()) for loss in by_example]
    gain = by_example[1] - by_example[0]
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    trust, z = 0.0, calibrated
    if losses[1] < losses[2]:
        trust, z = HALF, half
        if len(labels) >= MANY and float(gain.mean()) > error:
            trust, z = 1.0, full
    by_candidate: dict[str, float] = {
        "personal": losses[0] if trust == 1 else losses[1],
        "calibrated": losses[2],
        "vendor": float(link.losses(labels, vendor).mean()),
    }
    threshold = f1_threshold(z, positive) if binary else 0.0
    decision: Decision = "personal" if trust else "calibrated"
    measure = f"{link.measure} of labels"
    reason = f"{measure} on {len(labels)} examples, each left out: {_in_words(by_candidate)}"
    scores = link.scores(labels, z)
    return Verdict(decision, reason, trust, measure, by_candidate, threshold, scores)


def _joined(tags: Sequence[Verdict], link: Tags) -> Verdict:
    """The verdict on all tags together; the losses are sums over those that can be judged."""
    judged = [verdict for verdict in tags if verdict.losses]
    losses = {name: sum(verdict.losses[name] for verdict in judged) for name in _WORDS if judged}
    personal = sum(bool(verdict.trust) for verdict in tags)
    measure = f"{link.measure} of labels" if judged else ""
    reason = f"{len(tags)} tags: {tags[0].reason}"
    if judged:
        reason = (
            f"{measure} on the {len(judged)} of {len(tags)} tags with labels to judge by, each "
            f"example left out: {_in_words(losses)}; {personal} of {len(tags)} tags are personal"
        )
    return Verdict(
        "personal" if personal else "calibrated", reason,
        tuple(np.hstack([verdict.trust for verdict in tags]).tolist()), measure, losses,
        tuple(np.hstack([verdict.threshold for verdict in tags]).tolist()),
    )  # fmt: skip


def _in_words(losses: Mapping[str, float]) -> str:
    return ", ".join(f"{_WORDS[name]} {loss:.3f}" for name, loss in losses.items())


def can_judge(labels: Floats, link: Link = LABELS) -> bool:
    """Whether labels, as class shares or numbers (n, C), are enough to judge a model by."""
    return len(labels) >= MIN_LABELLED and link.varied(labels, MIN_OF_A_LABEL)


def f1_threshold(logits: Floats, positive: int = -1, held: float = 0.0) -> float:
    """The logit above which to decide for the second of two labels, so that F1 is best.

    The threshold that maximizes F1 of calibrated probabilities is half the F1 that it reaches
    (Lipton, Elkan and Naryanaswamy, 2014). Here both are expectations under the probabilities
    themselves.

    Args:
        logits: Of n > 0 examples, shape (n, 1), each left out of the fit.
        positive: 0 where F1 is the first label's, else the second's.
        held: How far the expected F1 is held at 1, which is a probability of 1/2: between 0, not
            at all, and 1.
    """
    sign = -1.0 if positive == 0 else 1.0
    expected = np.sort(probabilities(sign * logits)[:, 0])[::-1]
    decided = np.arange(1, len(expected) + 1)
    best = float((2 * np.cumsum(expected) / (decided + expected.sum())).max())
    best = max(best, np.finfo(np.float64).tiny)  # probabilities so small that they are 0
    best = (1 - held) * best + held
    return sign * float(np.log(best / (2 - best)))


def _threshold_of_few(labels: Floats, logits: Floats, positive: int) -> float:
    """``f1_threshold`` where labels are too few to judge by, held near a probability of 1/2.

    The F1 that few examples expect is a guess, and more so the fewer of them are positive. It
    counts as these, beside ``_HELD`` of one whose F1 is 1: of no positive example the threshold
    stays at 1/2, whatever the probabilities. On 35 people who are in no published figure F1 at 5
    labels was .529 for .469 at 1/2, accuracy .752 for .766 (``docs/tried.md``).
    """
    count = float((labels if positive else 1 - labels).sum())
    return f1_threshold(logits, positive, _HELD / (count + _HELD)) if count else 0.0
