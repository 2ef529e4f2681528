"""Judge a fit: is the personal model better than the vendor's, on examples that are left out?

Each tag is judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from fala.base.errors import be, counted
from fala.model.links import LABELS, Link, PerTag
from fala.model.losses import Floats

#: Labelled examples, and examples of each label, that are needed to judge a model.
MIN_LABELLED, MIN_OF_A_LABEL = 10, 3

#: A rise of the cross-entropy that a user would notice, in nats.
MATTERS = 0.02
#: The 95 % quantile of the normal distribution.
NORMAL_95 = 1.6449

#: The share of a model half way between the calibrated one and the full fit.
HALF = 0.5

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
        scores: Of a rating, ``"rmse"`` and ``"rank_correlation"`` of the chosen model, each
            example left out; empty of labels.
    """

    decision: Decision
    reason: str
    trust: PerTag = 0.0
    measure: str = ""
    losses: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


_WORDS = {
    "personal": "the personal model",
    "calibrated": "the vendor's with the user's own slope and bias",
    "vendor": "the vendor's own",
}
# A head that knows nothing has no direction: its bias alone is fitted.
_NO_DIRECTION = "the shares of the labels alone"


def judge(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats | None,
    link: Link = LABELS,
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
        vendor: The vendor's own logits; None of a head that knows nothing: it would decide by a
            coin, and is no candidate.
        link: The meaning of the logits.
        trust: The expected share of the full fit.
    """
    tags = link.kind == "tags"
    parts = [
        (
            labels[:, part],
            full[:, part],
            calibrated[:, part],
            None if vendor is None else vendor[:, part],
        )
        for part in ([slice(tag, tag + 1) for tag in range(labels.shape[1])] if tags else [...])
    ]
    verdicts = [_personal(*part, trust, LABELS if tags else link) for part in parts]
    verdict = _join(verdicts, link) if tags else verdicts[0]
    if not verdict.losses or vendor is None:
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
    return replace(
        verdict, decision="vendor", reason=f"{reason}more than a standard error",
        trust=(0.0,) * len(parts) if tags else 0.0, scores=link.scores(labels, vendor),
    )  # fmt: skip


def _personal(
    labels: Floats,
    full: Floats,
    calibrated: Floats,
    vendor: Floats | None,
    expected: float,
    link: Link,
) -> Verdict:
    """The verdict between the calibrated model, half way, and the full fit; see ``judge``."""
    shares = sorted({0.0, HALF, 1.0, expected})
    logits = {share: calibrated + share * (full - calibrated) for share in shares}
    if not can_judge(labels, link):
        trust, reason = expected, "; what is personal has its expected share"
        if not len(labels):  # the old logits were judged when they were made
            trust, reason = 1.0, ": the model follows the old logits"
        few = f"{counted(len(labels), 'label')} {be(len(labels))} too few to judge by"
        scores = link.scores(labels, logits[trust])
        return Verdict(_decision(trust), few + reason, trust, scores=scores)
    losses = {share: link.losses(labels, z) for share, z in logits.items()}
    means = {share: float(loss.mean()) for share, loss in losses.items()}
    better = [share for share in shares if np.greater(*_gain(losses[expected], losses[share]))]
    trust = min(better, key=lambda share: means[share], default=expected)
    by_candidate = {"personal": means[trust or HALF], "calibrated": means[0.0]}
    if vendor is not None:
        by_candidate["vendor"] = float(link.losses(labels, vendor).mean())
    measure = f"{link.measure} of labels"
    reason = f"{measure} on {len(labels)} examples, each left out: {_in_words(by_candidate)}"
    scores = link.scores(labels, logits[trust])
    return Verdict(_decision(trust), reason, trust, measure, by_candidate, scores)


def _decision(trust: float) -> Decision:
    return "personal" if trust else "calibrated"


def _gain(losses: Floats, lower: Floats) -> tuple[float, float]:
    """The mean by which other losses of the same examples are lower, and its standard error."""
    gains = losses - lower
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def _join(tags: Sequence[Verdict], link: Link) -> Verdict:
    """The verdict on all tags together; the losses are sums over those that can be judged."""
    judged = [verdict for verdict in tags if verdict.losses]
    names = judged[0].losses if judged else ()
    losses = {name: sum(verdict.losses[name] for verdict in judged) for name in names}
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
    )  # fmt: skip


def _in_words(losses: Mapping[str, float]) -> str:
    words = _WORDS if "vendor" in losses else {**_WORDS, "calibrated": _NO_DIRECTION}
    return ", ".join(f"{words[name]} {loss:.3f}" for name, loss in losses.items())


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
