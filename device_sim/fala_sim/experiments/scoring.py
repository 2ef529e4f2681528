"""Figures of a model's logits on a user's test examples, alone and blended, for records.

The old personal model costs nothing beside a transformer, so any method may keep it and blend its
logit with the new one's. Records have the figures at several weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fala_sim.methods.fala_shipped import Replaced
from fala_sim.methods.frozen import shipped_scores, vendor_scores
from fala_sim.methods.method import Scores
from fala_sim.methods.unfitted import OldWords
from fala_sim.metric.quality import Figures, figures_of, flips, positions
from fala_sim.situation import Logits, Situation

#: Weights of the old personal model's logit.
WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7)


def blend(logits: Logits, before: Logits, weight: float) -> Logits:
    """Blend logits (n, C) with the old personal model's ``before`` (n, C), of this weight."""
    return (1 - weight) * logits + weight * before


def trial_figures(situation: Situation, logits: Logits) -> dict[str, Any]:
    """Figures of one setting of a search: ``scores``, and ``blends`` by weight."""
    before = situation.old_logits(situation.user.test)
    blends = {str(weight): _figures(situation, blend(logits, before, weight)) for weight in WEIGHTS}
    return {"scores": _figures(situation, logits), "blends": blends}


def outcome(
    situation: Situation, scores: Scores, logits: Logits, *, words: bool = False
) -> dict[str, Any]:
    """Figures and flips of a replacement, alone and blended.

    Args:
        situation: Its user's test examples are scored.
        scores: The model after the replacement.
        logits: The model's, of the test examples, shape (n, C).
        words: Whether the model has words; true of a device. Flips are then counted from the
            vendor's model with words, and ``device`` are those from the device's old model.

    Returns:
        ``scores`` and ``flips``; the same in ``blended``, with equal weights; and ``blends``,
        figures with their flips by weight. A device also has ``report``, and ``vendor``, the
        figures of the shipped release's vendor model. Only classes have flips.
    """
    test = situation.user.test
    before = situation.old_logits(test)
    vendor = (shipped_scores if words else vendor_scores)(situation)(test)
    on_device = words and situation.exclusive
    installed = {"device": OldWords().fit(situation, {})(test)} if on_device else {}

    def turned(now: Logits) -> dict[str, Any]:
        if not situation.exclusive:
            return {}
        truth = positions(situation.user.test_labels, situation.labels)
        models = {"old": before, "vendor": vendor, **installed}
        return {name: flips(now, model, truth) for name, model in models.items()}

    def both(now: Logits) -> dict[str, Any]:
        return {"scores": _figures(situation, now), "flips": turned(now)}

    blends: dict[str, Any] = {}
    for weight in WEIGHTS:
        mixed = blend(logits, before, weight)
        blends[str(weight)] = _figures(situation, mixed) | {"flips": turned(mixed)}
    content = both(logits) | {"blended": both(blend(logits, before, 0.5)), "blends": blends}
    if isinstance(scores, Replaced):
        content["report"] = scores.report.to_dict()
        content["vendor"] = _figures(situation, vendor)
    return content


def truth(situation: Situation) -> dict[str, Any]:
    """Fields of a record about a user's test examples, so that logits can be blended later.

    Args:
        situation: The user's.

    Returns:
        ``old_logits``, and ``truth``: positions of the labels among all, or a rating's numbers;
        for tags, lists of 0 and 1.
    """
    head, labels = situation.new.head, situation.user.test_labels
    if situation.exclusive:
        targets: list[Any] = positions(labels, head.labels).tolist()
    else:
        targets = rounded(head.label_shares(labels))
    return {"old_logits": rounded(situation.old_logits(situation.user.test)), "truth": targets}


def rounded(logits: Logits) -> list[Any]:
    """Logits as a record stores them: n numbers, or n lists of C."""
    values: list[Any] = np.round(logits[:, 0] if logits.shape[1] == 1 else logits, 4).tolist()
    return values


def _figures(situation: Situation, logits: Logits) -> Figures:
    return figures_of(situation.new.head, logits, situation.user.test_labels)
