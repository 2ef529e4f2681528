"""Figures of a model's logits on a user's test examples, for records."""

from __future__ import annotations

from typing import Any

import numpy as np

from fala_sim.methods.fala_shipped import ShippedModel
from fala_sim.methods.frozen import shipped_scores, vendor_scores
from fala_sim.methods.method import Scores
from fala_sim.methods.quality import Figures, figures_of, flips, positions
from fala_sim.methods.situation import Situation
from fala_sim.methods.unfitted import OldWords
from fala_sim.prepare.measured import LogitArray


def outcome(
    situation: Situation, scores: Scores, logits: LogitArray, *, words: bool = False
) -> dict[str, Any]:
    """Return figures and flips of a replacement.

    Args:
        situation: The situation of the user, whose test examples are scored.
        scores: The model after the replacement.
        logits: The model's logits of the test examples, shape (n, C).
        words: Whether the model has lexical features, as a device has. Flips are then counted from
            the vendor's model with lexical features, and ``device`` has the flips from the device's
            old model.

    Returns:
        ``scores`` and ``flips``. A device also has ``report``, and ``vendor``, the figures of the
        shipped release's vendor model. Only classes have flips.
    """
    test = situation.user.test
    vendor = (shipped_scores if words else vendor_scores)(situation)(test)
    content: dict[str, Any] = {"scores": scores_of(situation, logits), "flips": {}}
    if situation.exclusive:
        models = {"old": situation.old_logits(test), "vendor": vendor}
        if words:
            models["device"] = OldWords().fit(situation, {})(test)
        truth = positions(situation.user.test_labels, situation.labels)
        content["flips"] = {name: flips(logits, model, truth) for name, model in models.items()}
    if isinstance(scores, ShippedModel):
        content["report"] = scores.report.to_dict()
        content["vendor"] = scores_of(situation, vendor)
    return content


def truth(situation: Situation) -> dict[str, Any]:
    """Return fields of a record about a user's test examples, for later blends of logits.

    Args:
        situation: The situation of the user.

    Returns:
        ``old_logits``, and ``truth``: positions of the labels among all, or a rating's numbers; for
        tags, lists of 0 and 1.
    """
    head, labels = situation.new.head, situation.user.test_labels
    if situation.exclusive:
        targets: list[Any] = positions(labels, head.labels).tolist()
    else:
        targets = rounded_logits(head.label_shares(labels))
    return {
        "old_logits": rounded_logits(situation.old_logits(situation.user.test)),
        "truth": targets,
    }


def rounded_logits(logits: LogitArray) -> list[Any]:
    """Return logits as a record stores them: n numbers, or n lists of C."""
    values: list[Any] = np.round(logits[:, 0] if logits.shape[1] == 1 else logits, 4).tolist()
    return values


def scores_of(situation: Situation, logits: LogitArray) -> Figures:
    """Return the figures of logits (n, C) of the user's test examples."""
    return figures_of(situation.new.head, logits, situation.user.test_labels)
