"""The text output of ``fala-replace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fala import Budget, InstantReport, Report
from fala.errors import be, counted
from fala_export.fitting.played import Side
from fala_export.rows.data_set import AllRows
from fala_sim.playground.walk import mean

_TITLES = {
    "wrong": "wrong of 100", "cross_entropy": "log loss", "auc": "AUC", "rmse": "RMSE",
    "rank_correlation": "rank correlation",
}  # fmt: skip
_MODELS = {
    "old_personal": "old", "new_global": "new", "instant": "instant", "fala": "FaLA",
    "paper": "paper",
}  # fmt: skip

_LEGEND = """\
old: the old personal model. new: the vendor's new model. instant: the personal model on the new
backbone, before any forward pass. FaLA: the same after them. There is no backward pass.
"""
_OF_LABELS = """\
Wrong of 100: how many of 100 new texts are decided otherwise than the user would, by all models at
probability 1/2; less is better, as of the log loss. --json also has accuracy, and F1 at a threshold
that each model chooses for the user by the same rule, without a held-out label."""
_OF_RATINGS = """\
RMSE: the root of the mean squared error, in the unit of the ratings; less is better. Rank
correlation: Spearman's, of values and ratings."""


def heading(old: Side, new: Side, rows: AllRows, users: int, budget: Budget) -> str:
    """A walk's settings, before it starts."""
    origin = f"fitted on {counted(len(rows.public), 'public row')}"
    passes = budget.passes(new.bridged)
    heads = [f"{side.name} {'its own' if side.has_head else origin}" for side in (old, new)]
    return (
        f"{old.name} -> {new.name} on {rows.source}: {counted(users, 'user')}, "
        f"at most {counted(passes, 'forward pass')} each\n"
        f"global heads: {'; '.join(heads)}\n"
        f"bridge: {new.bridge}\n"
        f"population prior: {new.prior or 'as the release has it'}\n"
    )


def table(users: Sequence[Mapping[str, Any]]) -> str:
    """The figures of a walk's users, with their mean and a legend."""
    width = max(6, *(len(user["user"]) for user in users))
    metrics = [metric for metric in _TITLES if metric in users[0]]
    models = [*users[0][metrics[0]]]
    metric_width = sum(map(_width, models)) + len(models) - 1
    head = f"{'':{width}} {'':>9} {'':>8} {'seconds':^15}"
    names = f"{'user':{width}} {'documents':>9} {'forwards':>8} {'instant':>7} {'total':>7}"
    for metric in metrics:
        head += f"   {_TITLES[metric]:^{metric_width}}"
        names += "   " + " ".join(f"{_MODELS[model]:>{_width(model)}}" for model in models)
    lines = [head.rstrip(), f"{names}   decision"]
    for user in [*users, {"user": "mean", "decision": "", **mean(users)}]:
        instant = None if user["instant"] is None else user["instant"]["seconds"]
        line = (
            f"{user['user']:{width}} {user['documents']:>9.0f} {user['forward_passes']:>8.0f} "
            f"{_figure(instant, 7)} {user['seconds']['total']:>7.2f}"
        )
        for metric in metrics:
            values = user[metric]
            digits = 1 if metric == "wrong" else 3
            line += "   " + " ".join(_figure(values[m], _width(m), digits) for m in models)
        lines.append(f"{line}   {user['decision']}".rstrip())
    legend = _LEGEND + (_OF_RATINGS if "rmse" in metrics else _OF_LABELS)
    return "\n".join([*lines, "", legend, *_conclusion(users)])


def summary(report: Report) -> str:
    """The result of a replacement, or of its refinement."""
    title = f"{report.old} -> {report.new}" if report.replaced else report.new
    counts = f"{report.examples} ({report.labelled} labelled), {report.counts.representatives} "
    if report.counts.clusters:
        counts += f"representatives of {counted(report.counts.clusters, 'cluster')}"
    else:
        counts += "through the new backbone"
    lines = [
        f"{title}: {report.decision} model",
        f"why              {report.reason}",
        *([f"verdict          {report.verdict}"] if report.verdict else []),
        f"examples         {counts}",
    ]
    if report.instant is not None:
        lines.append(f"instant          {_instant(report.instant)}")
    lines.append(f"forward passes   {report.forward_passes}; backward passes 0")
    if report.stopped:
        lines.append(f"stopped          {report.stopped}")
    if report.thresholds:
        each = report.thresholds.items()
        above = ", ".join(f"{label} above logit {number:.3f}" for label, number in each)
        lines.append(f"thresholds       {above}")
    if report.scores:
        scores = ", ".join(f"{_TITLES[name]} {value:.3f}" for name, value in report.scores.items())
        lines.append(f"scores           {scores}, each example left out")
    if report.counts.agreement is not None:
        lines.append(f"agreement        {report.counts.agreement:.1%} with the old personal model")
    if report.waiting:
        lines.append(
            f"waiting          {counted(report.waiting, 'example')}, for further forward passes"
        )
    if report.counts.scales:
        scales = ", ".join(f"{scale:g}" for scale in report.counts.scales)
        lines.append(f"scales           {scales} of the prior's covariance")
    lines.append(
        "seconds          "
        + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in report.seconds.items())
    )
    return "\n".join(lines)


def _width(model: str) -> int:
    return max(5, len(_MODELS[model]))


def _figure(value: float | None, width: int, digits: int = 3) -> str:
    return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"


def _conclusion(users: Sequence[Mapping[str, Any]]) -> list[str]:
    count = sum(user["decision"] == "personal" for user in users)
    lines = [
        f"The personal model is kept for {count} of {counted(len(users), 'user')}. The others use "
        "the vendor's new model, some with a slope and a bias of their own."
    ]
    verdicts = [user["worse"] for user in users]
    worse, not_worse = verdicts.count(True), verdicts.count(False)
    lines.append(
        f"By the devices' own verdicts, {worse} of {counted(len(users), 'user')} {be(worse)} worse "
        f"off than with the old personal model, {not_worse} {be(not_worse)} not, and for "
        f"{verdicts.count(None)} it is not known yet."
    )
    if "paper" in users[0]:
        costs = mean(users)["paper"]
        lines.append(
            f"paper: {costs['clusters']:.0f} correlation clusters of a user's documents by "
            f"{costs['queries']:.0f} strong queries, {costs['forward_passes']:.0f} forward passes, "
            f"{costs['seconds']:.2f} s, in the mean; the personal matrix is fitted to their old "
            "logits alone, without bridge, words and labels."
        )
    if public := sum(user["public"] for user in users):
        lines.append(
            f"{public} of {sum(user['documents'] for user in users)} documents that the users "
            "learned from lie in the public rows, too, with other people's labels. A head that was "
            "fitted to them knows these texts, so that the old model looks better here than on new "
            "ones."
        )
    return lines


def _instant(instant: InstantReport) -> str:
    text = f"{instant.decision} model after {instant.seconds:.3f} s, no forward pass"
    if instant.losses:
        text += f"; {instant.reason}"
    return text
