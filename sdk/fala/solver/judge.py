"""Judge a fit: is the personal model better than the vendor's, on examples that are left out?

With the decision threshold. Each tag is judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from fala.errors import be, counted
from fala.model.links import LABELS, Link, PerTag
from fala.model.losses import Floats, probabilities

#: Labelled examples, and examples of each label, that are needed to judge a model.
MIN_LABELLED, MIN_OF_A_LABEL = 10, 3

#: A rise of the cross-entropy that a user would notice, in nats.
MATTERS = 0.02
#: The 95 % quantile of the normal distribution.
NORMAL_95 = 1.6449

#: The share of a model half way between the calibrated one and the full fit.
HALF = 0.5

# Weight of the public examples' F1, in positive examples of the user.
_PUBLIC = 5.0
# The same of an F1 of 1, a threshold at a probability of 1/2, without public examples, if labels
# are too few to judge by.
_HELD = 0.5

#: The active model: the personal one, the vendor's with the user's own slope and bias, or the
#: vendor's own.
Decision: TypeAlias = Literal["personal", "calibrated", "vendor"]


@dataclass(frozen=True)
class Verdict:
    """The verdict of the labels on a fit.

    Attributes:
        decision: The model to activate.
        reason: Why, in words.
        trust: Its share between the calibrated model and the full fit; of tags one each.
        measure: The kind of loss; empty where labels are too few to judge by.
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
    public: Floats | None = None,
    trust: float = 1.0,
) -> Verdict:
    """Choose the active model by leave-one-out logits.

    Four models are compared: the vendor's own, the calibrated one, which ranks as the vendor's
    does, half way from there to the full fit, and the full fit. The expected one has the release's
    share of the full fit, which public annotators chose for this number of labels. Another one
    replaces it if its loss is lower by a standard error of the difference; of several the one with
    the least loss. Few labels prove little: the lowest of the four losses is no better on people
    who are in no table, and leaves more of them with wrong decisions (``docs/tried.md``).

    Rows over a bridge count, too: they raise the losses of all models, and make the full fit look
    worse by .002 nats at most.

    If labels are too few to judge, the model is the expected one; without any label it is the full
    fit, to the old logits.

    Each tag is judged by itself, like a head of two labels: a user differs from others in some
    tags, and rare tags have too few labels to judge. The decision is ``"personal"`` if that of one
    tag is. The vendor's own model is compared with the models of all tags together.

    Args:
        labels: Labels of the n labelled examples, as class shares or numbers, (n, C).
        full: Logits (n, C) of the full fit, each left out.
        calibrated: Those of the vendor's direction with the user's own slope and bias.
        vendor: The vendor's own logits.
        positive: Of two labels, the one whose F1 the threshold is for.
        link: The meaning of the logits.
        public: The calibrated model's logits of public examples, (m, C); None if the release
            has none.
        trust: The expected share of the full fit.
    """
    tags = link.kind == "tags"
    single, positive = (LABELS, -1) if tags else (link, positive)
    parts = [
        (labels[:, part], full[:, part], calibrated[:, part], vendor[:, part],
         None if public is None else public[:, part])
        for part in ([slice(tag, tag + 1) for tag in range(labels.shape[1])] if tags else [...])
    ]  # fmt: skip
    verdicts = [_personal(*part, trust, positive, single) for part in parts]
    verdict = _join(verdicts, link) if tags else verdicts[0]
    if not verdict.losses:
        return verdict
    chosen = calibrated + np.asarray(verdict.trust) * (full - calibrated)
    judged = [bool(each.losses) for each in verdicts] if tags else [True] * labels.shape[1]
    own, theirs = (link.losses(labels[:, judged], z[:, judged]) for z in (chosen, vendor))
    gain, error = _gain(own, theirs)
    if gain <= 0:
        return verdict
    reason = (
        f"{verdict.reason}; the last is lower than that of {_WORDS[verdict.decision]} by "
        f"{gain:.3f} ± {error:.3f}, "
    )
    if gain <= error:
        return replace(verdict, reason=f"{reason}within a standard error")
    thresholds = [
        _threshold(part[0], part[3], positive, single, part[4], judged=bool(each.losses))
        for part, each in zip(parts, verdicts, strict=True)
    ]
    return replace(
        verdict, decision="vendor", reason=f"{reason}more than a standard error",
        trust=(0.0,) * len(parts) if tags else 0.0,
        threshold=tuple(thresholds) if tags else thresholds[0], scores=link.scores(labels, vendor),
    )  # fmt: skip


def _personal(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats,
    public: Floats | None,
    expected: float,
    positive: int,
    link: Link,
) -> Verdict:
    """The verdict between the calibrated model, half way, and the full fit; see ``judge``."""
    shares = sorted({0.0, HALF, 1.0, expected})
    logits = {share: calibrated + share * (full - calibrated) for share in shares}
    if not can_judge(labels, link):
        trust, reason = expected, "; what is personal has its expected share"
        if not len(labels):  # the old logits were judged when they were made
            trust, reason = 1.0, ": the model follows the old logits"
        z = logits[trust]
        threshold = _threshold(labels, z, positive, link, public, judged=False)
        few = f"{counted(len(labels), 'label')} {be(len(labels))} too few to judge by"
        decision = _decision(trust)
        return Verdict(
            decision, few + reason, trust, threshold=threshold, scores=link.scores(labels, z)
        )
    losses = {share: link.losses(labels, z) for share, z in logits.items()}
    means = {share: float(loss.mean()) for share, loss in losses.items()}
    better = [share for share in shares if np.greater(*_gain(losses[expected], losses[share]))]
    trust = min(better, key=lambda share: means[share], default=expected)
    by_candidate = {
        "personal": means[trust or HALF],
        "calibrated": means[0.0],
        "vendor": float(link.losses(labels, vendor).mean()),
    }
    z = logits[trust]
    threshold = _threshold(labels, z, positive, link, public, judged=True)
    measure = f"{link.measure} of labels"
    reason = f"{measure} on {len(labels)} examples, each left out: {_in_words(by_candidate)}"
    scores = link.scores(labels, z)
    return Verdict(_decision(trust), reason, trust, measure, by_candidate, threshold, scores)


def _decision(trust: float) -> Decision:
    return "personal" if trust else "calibrated"


def _gain(losses: Floats, lower: Floats) -> tuple[float, float]:
    """The mean by which other losses of the same examples are lower, and its standard error."""
    gains = losses - lower
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def _join(tags: Sequence[Verdict], link: Link) -> Verdict:
    """The verdict on all tags together; the losses are sums over those that can be judged."""
    judged = [verdict for verdict in tags if verdict.losses]
    losses = {name: sum(verdict.losses[name] for verdict in judged) for name in _WORDS if judged}
    personal = sum(bool(verdict.trust) for verdict in tags)
    if judged and personal:  # of some tags it is the calibrated one
        losses["personal"] = sum(verdict.losses[verdict.decision] for verdict in judged)
    measure = f"{link.measure} of labels" if judged else ""
    number = counted(len(tags), "tag")
    reason = f"{number}: {tags[0].reason}"
    if judged:
        reason = (
            f"{personal} of {number} {be(personal)} personal; {measure} on the {len(judged)} with "
            f"labels to judge by, each example left out: {_in_words(losses)}"
        )
    return Verdict(
        "personal" if personal else "calibrated", reason,
        tuple(np.hstack([verdict.trust for verdict in tags]).tolist()), measure, losses,
        tuple(np.hstack([verdict.threshold for verdict in tags]).tolist()),
    )  # fmt: skip


def _in_words(losses: Mapping[str, float]) -> str:
    return ", ".join(f"{_WORDS[name]} {loss:.3f}" for name, loss in losses.items())


def student95(freedom: int) -> float:
    """The 95 % quantile of Student's t, within .009 from 5 degrees of freedom on, .002 from 8.

    The Cornish-Fisher expansion about the normal quantile (Abramowitz and Stegun, 26.7.5).
    """
    z = NORMAL_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def can_judge(labels: Floats, link: Link = LABELS) -> bool:
    """Whether labels, as class shares or numbers (n, C), are enough to judge a model by."""
    return len(labels) >= MIN_LABELLED and link.varied(labels, MIN_OF_A_LABEL)


def expected_f1(logits: Floats) -> float:
    """The F1 of the best threshold, expected by the probabilities; without examples 0.

    Args:
        logits: Of n examples, shape (n,).
    """
    positive = np.sort(probabilities(logits[:, None])[:, 0])[::-1]
    f1 = 2 * np.cumsum(positive) / (np.arange(1, len(positive) + 1) + positive.sum())
    return float(f1.max(initial=0.0))


def f1_threshold(
    logits: Floats, positive: int = -1, others: float = 0.0, others_f1: float = 1.0
) -> float:
    """The logit above which to decide for the second of two labels, to maximize F1.

    The threshold that maximizes F1 of calibrated probabilities is half the F1 that it reaches
    (Lipton, Elkan and Naryanaswamy, 2014). Here both are expectations under the probabilities
    themselves.

    Args:
        logits: Of n examples, shape (n, 1), each left out of the fit.
        positive: 0 where F1 is the first label's, else the second's.
        others: The share, from 0 to 1, that other examples have in the expected F1.
        others_f1: Their F1.
    """
    sign = -1.0 if positive == 0 else 1.0
    best = (1 - others) * expected_f1(sign * logits[:, 0]) + others * others_f1
    best = max(best, np.finfo(np.float64).tiny)  # probabilities so small that they are 0
    return sign * float(np.log(best / (2 - best)))


def public_threshold(link: Link, positive: int = -1) -> PerTag:
    """The threshold of a vendor's own model, by the F1 of public examples alone.

    Without a label there is no other F1. On 34 and on 51 people who are in no published figure
    that of the vendor's decisions was .589 and .410, and at a probability of 1/2 .467 and .111
    (``docs/tried.md``).

    Args:
        link: The head's link, with its logits of public examples; without any the threshold is a
            probability of 1/2.
        positive: Of two labels, the one whose F1 the threshold is for.
    """
    public = np.array(link.public_logits).T
    if not public.size:
        return 0.0
    empty = np.empty((0, public.shape[1]))
    return judge(empty, empty, empty, empty, positive, link, public).threshold


def _threshold(
    labels: Floats,
    logits: Floats,
    positive: int,
    link: Link,
    public: Floats | None,
    *,
    judged: bool,
) -> float:
    """``f1_threshold`` of a device, by the F1 of its examples and that of public ones.

    The expectation over few positive examples is uncertain. The F1 of public examples, with the
    user's slope and bias, counts as ``_PUBLIC`` further positive examples. Without public examples,
    few labels give a threshold near a probability of 1/2. On 34 and on 51 people who are in no
    published figure F1 at 5 labels was .591 and .440, near 1/2 .534 and .329, and that of the
    vendor's own model .594 and .433 (``docs/tried.md``).
    """
    if link.kind != "labels" or logits.shape[1] > 1:
        return 0.0
    count = float((labels if positive else 1 - labels).sum())
    if public is not None:
        sign = -1.0 if positive == 0 else 1.0
        share, f1 = _PUBLIC / (count + _PUBLIC), expected_f1(sign * public[:, 0])
    else:
        share, f1 = (0.0 if judged else _HELD / (count + _HELD)), 1.0
    return f1_threshold(logits, positive, share, f1)
