"""Simulate users: each learns with an old release, replaces it, and is scored.

Each simulated user has a real device in a temporary folder. The device is created with the old
release, learns the user's train rows, is replaced within the budget, and is scored on the test
rows. If the new release has a bridge, the device is scored twice: before any forward pass, and
after the budget is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fala import Budget, Bundle, Device, Report
from fala.base.files import temporary_folder
from fala.model.heads import Head, Vectors
from fala.model.labels import HeadLabel, Label, equal_labels, natural_positive
from fala.model.links import LABELS
from fala_export.people.score import averaged, error_rate, logit_scores
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import shown_labels

#: Figures for labels, which a user notices first, and for ratings.
FIGURES = (
    "error_rate", "negative_flips", "positive_flips", "cross_entropy", "auc", "f1", "macro_f1",
    "accuracy", "rmse", "rank_correlation",
)  # fmt: skip
MODELS = ("old_personal", "new_global", "instant", "fala")


@dataclass(frozen=True)
class Side:
    """The old or the new release of a simulated replacement.

    Attributes:
        name: The backbone's name.
        release: The release file.
        head: The release's head.
        embeddings: Embeddings of all test texts, and of the public texts if needed, by text.
        has_head: Whether the bundle's own head is for these labels and is used.
        bridged: Whether the release has a bridge from the old backbone.
        bridge: The origin of the bridge, or the reason why there is none, in words.
        scales: The origin of the scales (prior variances), or the reason why there are none.
    """

    name: str
    release: Path
    head: Head
    embeddings: Mapping[str, Vectors]
    has_head: bool
    bridged: bool = False
    bridge: str = ""
    scales: str = ""


def fits(head: Head, rows: Rows) -> bool:
    """Return whether a head is for the rows' task and labels; a rating's name does not matter."""
    names = head.labels if rows.link.kind == "rating" else rows.labels
    same = head.task == rows.task and equal_labels(head.labels, names)
    return same and head.link.continues(rows.link, head.labels, names)


def misfit(bundle: Bundle, rows: Rows) -> str:
    """Describe a bundle whose head is for other labels than the rows'; return "" if it fits."""
    head = bundle.head()
    if head is None or fits(head, rows):
        return ""
    return (
        f"{bundle.path}: its head is for {head.described}, and the rows are for "
        f"{rows.task} with {rows.link.described([shown_labels(rows.labels)])}"
    )


def run_user(
    user: str,
    rows: Rows,
    old: Side,
    new: Side,
    budget: Budget,
    positive: HeadLabel | None = None,
) -> dict[str, Any]:
    """Simulate one user's device, from the old release to the new one.

    Args:
        user: The user's name.
        rows: The data.
        old: The old release.
        new: The new release.
        budget: The budget of the replacement.
        positive: The label whose F1 is computed; if None, the conventional positive label is used,
            see ``score_decisions``.

    Returns:
        The figures that ``fala-replace --json`` prints for one user.
    """
    train, test = rows.users[user].train, rows.users[user].test
    examples = test.examples.tolist()
    old_inputs = old.head.inputs(examples, old.embeddings), old.head.ngrams(examples)
    new_inputs = new.head.inputs(examples, new.embeddings), new.head.ngrams(examples)
    if positive is None and rows.link == LABELS:
        positive = natural_positive(rows.labels)
    scored = partial(score_decisions, new.head, test.row_labels, positive)
    figures: dict[str, dict[str, float | None] | None] = dict.fromkeys(MODELS)
    with (
        temporary_folder() as folder,
        Device.create(folder / "device", old.release, positive=positive) as device,
    ):
        device.learn(train.examples.tolist(), train.row_labels)
        before = device.model.logits(*old_inputs)
        figures["old_personal"] = scored(before)
        if new.bridged or new.head.lexical is not None:
            first = device.replace(new.release, Budget(0))
            if first.instant is not None:  # Word vectors encode all texts before any forward pass.
                figures["instant"] = scored(device.model.logits(*new_inputs), before)
            more = Budget(budget.passes(new.bridged), budget.seconds)
            reports = [first, device.refine(more)]
        else:
            reports = [device.replace(new.release, budget)]
        figures["fala"] = scored(device.model.logits(*new_inputs), before)
    figures["new_global"] = scored(new.head.vendor_model().logits(*new_inputs), before)
    costs = _costs(reports)
    public = set(rows.public.examples)
    overlap = sum(example in public for example in train.examples)
    counts = {"documents": len(train), "public": overlap}
    return {"user": user, **_by_figure(figures), **counts, **costs}


def score_decisions(
    head: Head,
    labels: Sequence[Label],
    positive: HeadLabel | None,
    logits: Vectors,
    before: Vectors | None = None,
) -> dict[str, float | None]:
    """Score a model's decisions, which are those of ``Device.predict``, and its probabilities.

    Args:
        head: A head with the labels.
        labels: The true labels, n of them.
        positive: The label whose F1 is computed. If None, macro-F1 (the mean over the labels) is
            computed for labels that exclude one another.
        logits: A model's logits (n, C).
        before: The old personal model's logits (n, C), from which decisions may flip.

    Returns:
        For labels that exclude one another: ``error_rate``, in percent; and, with ``before``,
        ``negative_flips`` and ``positive_flips``, the percentage of decisions that were right
        before and are wrong now, and the reverse. For such labels and for tags (means over the
        tags): ``cross_entropy``, ``auc``, ``f1`` or ``macro_f1``, and ``accuracy``. For a rating:
        ``rmse`` and ``rank_correlation``.
    """
    link, z, truth = head.link, logits.astype(np.float64), head.label_shares(labels)
    if link.kind == "rating":
        return {"rmse": None, "rank_correlation": None, **logit_scores(link, truth, z)}
    chosen = range(len(head.names)) if positive is None else [head.names.index(str(positive))]
    figures = logit_scores(link, truth, z, chosen)
    figures["cross_entropy"] = float(link.losses(truth, z).mean())
    if link.kind == "labels":
        figures["error_rate"] = error_rate(figures["accuracy"])
        if positive is None:
            figures["macro_f1"] = figures.pop("f1")
        figures |= {"negative_flips": None, "positive_flips": None}
        if before is not None:
            now, then = (link.classes(model) == link.classes(truth) for model in (logits, before))
            figures["negative_flips"] = 100 * float((then & ~now).mean())
            figures["positive_flips"] = 100 * float((now & ~then).mean())
    return figures


def mean(users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the figures over users, without undefined ones."""
    instants = [{"seconds": user["instant"]["seconds"]} for user in users if user["instant"]]
    return {
        **{
            figure: averaged(user[figure] for user in users)
            for figure in FIGURES
            if figure in users[0]
        },
        **averaged(
            {name: user[name] for name in ("documents", "forward_passes")} for user in users
        ),
        "instant": averaged(instants) if instants else None,
        "seconds": averaged({"total": user["seconds"]["total"]} for user in users),
    }


def _costs(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the decision and costs of a replacement, from the reports of its stages."""
    first = reports[0]
    # A refinement that fitted nothing has no decision.
    last = next((report for report in reversed(reports) if report.counts.fits), first)
    seconds: dict[str, float] = {}
    for report in reports:
        for stage, elapsed in report.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + elapsed
    return {
        "forward_passes": sum(report.forward_passes for report in reports),
        "decision": last.decision,
        "reason": last.reason,
        "worse": reports[-1].worse,
        "stopped": None if last.stopped is None else last.stopped.value,
        "instant": None if first.instant is None else first.instant.to_dict(),
        "seconds": seconds,
    }


def _by_figure(figures: Mapping[str, Mapping[str, float | None] | None]) -> dict[str, Any]:
    return {
        figure: {
            model: None if scores is None else scores[figure] for model, scores in figures.items()
        }
        for figure in FIGURES
        if figure in (figures["fala"] or {})
    }
