"""Fits the personal model to all that a device knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fala.model.heads import PersonalModel
from fala.replacement.fitting import Fitted, Fitting
from fala.replacement.installed import Installed
from fala.replacement.memory import Memory, differences_of, kept_view, knowledge_of, recall_now
from fala.replacement.representing import Report
from fala.solver.evidence import Evidence
from fala.solver.personal import personal_fit


@dataclass(frozen=True)
class LearnReport:
    """What a device knows after learning.

    Attributes:
        examples: Examples in the store.
        labelled: How many of them have a label.
        fitted: Examples that the personal matrix was fitted to; 0 where there was nothing to fit.
        lambda_: The penalty that leave-one-out chose; None where nothing was fitted.
        loss: Leave-one-out loss at that penalty, in nats by example for labels.
    """

    examples: int
    labelled: int
    fitted: int
    lambda_: float | None
    loss: float | None


def fit_known(installed: Installed) -> LearnReport:
    """Fit the personal model to all labels, and to what older logits say, and keep it."""
    everything = installed.store.examples()
    labelled = sum(row.label is not None for row in everything)
    crossed = installed.now.view is not None or bool(installed.now.bundle.bridges())
    fitted, count = _blend(installed) if crossed else _matrix(installed)
    if fitted is None:
        return LearnReport(len(everything), labelled, 0, None, None)
    installed.keep(fitted)
    return LearnReport(len(everything), labelled, count, fitted.lambda_, fitted.loss)


def _blend(installed: Installed) -> tuple[Fitted | None, int]:
    """After a replacement over a bridge: the views together."""
    now = installed.now
    recalled = recall_now(Memory(installed.store), now, installed.earlier())
    if not recalled.telling.any():
        return None, 0
    name = now.bundle.manifest.name
    fitting = Fitting(now.model.head, now.bundle.prior(), kept_view(now), Report(name, name))
    return fitting.fit(recalled), int(recalled.telling.sum())


def _matrix(installed: Installed) -> tuple[Fitted | None, int]:
    """On one backbone alone: the personal matrix."""
    now, head = installed.now, installed.now.model.head
    ids, knowledge = knowledge_of(Memory(installed.store), now)
    logits = np.full(knowledge.labels.shape, np.nan)
    differences = differences_of(installed.store, now)
    for position, row in enumerate(ids):
        if row in differences:
            logits[position] = knowledge.vendor_logits[position] + differences[row]
    known = knowledge.labelled | np.logical_not(np.isnan(logits).any(axis=1))
    if not known.any():
        return None, 0
    solved = personal_fit(
        head,
        Evidence.of(
            head.features(knowledge.inputs[known]),
            logits=logits[known],
            labels=knowledge.labels[known],
        ),
    )
    model = PersonalModel(head, solved.theta, solved.bias)
    return Fitted(model, lambda_=solved.lambda_, loss=solved.loss), int(known.sum())
