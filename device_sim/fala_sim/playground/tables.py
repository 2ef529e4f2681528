"""The text output of ``fala-replace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fala import Budget, InstantReport, Report
from fala.base.errors import be, counted
from fala.model.labels import HeadLabel
from fala_export.people.interval import interval
from fala_export.people.simulate import Side, mean
from fala_export.rows.row_files import left_out_in_words
from fala_export.rows.table import Rows
from fala_sim.playground.walk import changes, conclusion

_TITLES = {
    "error_rate": "error rate (%)", "negative_flips": "right before, wrong now (%)",
    "positive_flips": "wrong before, right now (%)", "cross_entropy": "log loss", "auc": "AUC",
    "f1": "F1", "macro_f1": "macro-F1", "rmse": "RMSE", "rank_correlation": "rank correlation",
}  # fmt: skip
#: Figures that are shown in percent.
_PERCENT = ("error_rate", "negative_flips", "positive_flips")
#: The columns of the models, each with the two lines of its heading.
_COLUMNS = {
    "old_personal": ("old", "personal"), "new_global": ("new", "alone"),
    "instant": ("FaLA, no", "forward pass"), "fala": ("", "FaLA"),
}  # fmt: skip
#: The model that is active after a decision.
_ACTIVE = {
    "personal": "personal model", "calibrated": "recalibrated model",
    "vendor": "model without personalization",
}  # fmt: skip
#: The models with which FaLA is compared, as columns and sentences name them.
_OTHERS = {"new_global": "new model alone", "old_personal": "old personal model"}

_LEGEND = """\
Old personal: the old personal model. New alone: the model of the new release without
personalization. FaLA, no forward pass: the new personal model before any forward pass. FaLA: the
new personal model after the forward passes. No backward pass is needed.
"""
_OF_LABELS = """\
Error rate: how often a model disagrees with the user on unseen texts. Every model decides as
Device.predict does: for the most probable label, which of two labels has a probability above 1/2.
Right before, wrong now (negative flips): the texts that the old personal model decides right and
this model decides wrong; wrong before, right now (positive flips): the other way round. Lower is
better for the first two figures and the log loss."""
_OF_ONE_LABEL = """\
F1 is of the label {positive}, by the same decisions; --positive names another label."""
_MACRO = """\
Macro-F1: the mean of the labels' F1, by the same decisions; --positive LABEL shows one label's."""
_OF_RATINGS = """\
RMSE: the root of the mean squared error, in the unit of the ratings; lower is better. Rank
correlation: Spearman's, between values and ratings."""


def heading(
    old: Side, new: Side, rows: Rows, users: int, budget: Budget, left_out: Mapping[str, int]
) -> str:
    """Return the settings of a simulation, which are printed before it starts."""
    origin = f"fitted on {counted(len(rows.public), 'public row')}"
    passes = budget.passes(new.bridged)
    heads = [f"{side.name} {'its own' if side.has_head else origin}" for side in (old, new)]
    return (
        f"{old.name} -> {new.name} on {rows.source}: {counted(users, 'user')}, "
        f"at most {counted(passes, 'forward pass')} each\n"
        f"rows left out: {left_out_in_words(left_out)}\n"
        f"vendor's heads: {'; '.join(heads)}\n"
        f"bridge: {new.bridge}\n"
        f"prior variances: {new.scales or 'as the release has them'}\n"
    )


def walk_table(users: Sequence[Mapping[str, Any]], positive: HeadLabel | None) -> str:
    """Return the users' figures, their means, FaLA's differences from other models, and a legend.

    Args:
        users: Results of ``run_user``.
        positive: The label whose F1 is shown; None for macro-F1.
    """
    width = max(4, *(len(user["user"]) for user in users))
    metrics = [metric for metric in _TITLES if metric in users[0]]
    means, first = mean(users), metrics[0]
    above, below = (
        " ".join(f"{heading[line]:>{_width(model)}}" for model, heading in _COLUMNS.items())
        for line in (0, 1)
    )
    flips = "negative_flips" in metrics
    flipped = [f"  {words:>9}" * flips for words in ("right", "before,", "wrong now")]
    lines = [
        f"{'':{width}} {_TITLES[first]:^{len(below)}}{flipped[0]}  {'':16}  {'seconds':^13}",
        f"{'':{width}} {above}{flipped[1]}  {'':8} {'forward':>7}  {'first':>6}",
        f"{'user':{width}} {below}{flipped[2]}  examples {'passes':>7}  {'model':>6} {'total':>6}"
        "  decision",
    ]
    for user in [*users, {"user": "mean", "decision": "", **means}]:
        instant = None if user["instant"] is None else user["instant"]["seconds"]
        flipped_now = f"  {_figure(user['negative_flips']['fala'], 9, 1)}" if flips else ""
        lines.append(
            f"{user['user']:{width}} {_figures(user[first], first)}{flipped_now}"
            f"  {user['documents']:>8.0f} {user['forward_passes']:>7.0f}"
            f"  {_figure(instant, 6)} {user['seconds']['total']:>6.2f}  {user['decision']}"
        )
    titles = {**_TITLES, "f1": f"F1 of {positive}"}
    heads = f"means of {counted(len(users), 'user')}", "difference (95 % interval)"
    wide = max(*map(len, heads), *(len(titles[metric]) for metric in metrics))
    lines += ["", f"{'':{wide}} {above}", f"{heads[0]:{wide}} {below}"]
    lines += [f"{titles[metric]:{wide}} {_figures(means[metric], metric)}" for metric in metrics]
    lines += [
        "",
        f"{heads[1]:{wide}}" + "".join(f"  FaLA minus {_OTHERS[other]:<20}" for other in _OTHERS),
    ]
    lines += [
        f"{titles[metric]:{wide}}"
        + "".join(f"  {_change(users, metric, other):<31}" for other in _OTHERS)
        for metric in metrics
    ]
    lines = [line.rstrip() for line in lines]
    legend = [_LEGEND + (_OF_RATINGS if "rmse" in metrics else _OF_LABELS)]
    if "f1" in metrics:
        legend.append(_OF_ONE_LABEL.format(positive=positive))
    elif "macro_f1" in metrics:
        legend.append(_MACRO)
    return "\n".join([*lines, "", *legend, *_remarks(users), _conclusion(conclusion(users))])


def summary(report: Report) -> str:
    """Return the result of a replacement, or of its refinement, in words."""
    title = f"{report.old} -> {report.new}" if report.replaced else report.new
    counts = f"{report.examples} ({report.labelled} labelled), {report.counts.representatives} "
    counts += "encoded by the new backbone"
    if report.counts.clusters:
        counts += f", from {counted(report.counts.clusters, 'cluster')}"
    lines = [
        f"{title}: {_ACTIVE[report.decision]}",
        f"reason           {report.reason}",
        *([f"verdict          {report.verdict}"] if report.verdict else []),
        *([f"changes          {report.changes}"] if report.changes else []),
        f"examples         {counts}",
    ]
    if report.instant is not None:
        lines.append(f"first model      {_instant(report.instant)}")
    lines.append(f"forward passes   {report.forward_passes}; backward passes 0")
    if report.stopped:
        lines.append(f"stopped          {report.stopped}")
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
        lines.append(f"prior variances  {scales}")
    lines.append(
        "seconds          "
        + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in report.seconds.items())
    )
    return "\n".join(lines)


def _width(model: str) -> int:
    return max(5, *map(len, _COLUMNS[model]))


def _figures(values: Mapping[str, float | None], metric: str) -> str:
    digits = 1 if metric in _PERCENT else 3
    return " ".join(_figure(value, _width(model), digits) for model, value in values.items())


def _change(users: Sequence[Mapping[str, Any]], metric: str, other: str) -> str:
    """Return FaLA's figure minus another model's, as a mean over users with its interval."""
    gains = changes(users, metric, other)
    if not gains:
        return "-"
    digits, bounds = 1 if metric in _PERCENT else 3, interval(gains)
    words = "too few users"
    if bounds is not None:
        words = " to ".join(f"{bound:+.{digits}f}" for bound in bounds)
    count = f", n = {len(gains)}" if len(gains) < len(users) else ""
    return f"{sum(gains) / len(gains):+.{digits}f} ({words}{count})"


def _figure(value: float | None, width: int, digits: int = 3) -> str:
    return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"


def _conclusion(result: Mapping[str, Any]) -> str:
    """Return a line that says whether FaLA is better than the new model alone and the old model."""
    is_rate = result["figure"] == "error_rate"
    digits, unit = (1, " %") if is_rate else (3, "")
    figure = "error rate" if is_rate else "RMSE"
    sentences = [f"FaLA has an {figure} of {result['fala']:.{digits}f}{unit}."]
    for model, name in _OTHERS.items():
        value, difference, interval, verdict = result[model].values()
        numbers = f"{value:.{digits}f}{unit}; difference {difference:+.{digits}f}, "
        if interval is None:
            numbers += "too few users for an interval"
        else:
            low, high = interval
            numbers += f"95 % interval over users {low:+.{digits}f} to {high:+.{digits}f}"
        if verdict == "inconclusive":
            sentences.append(f"The comparison with the {name} is inconclusive ({numbers}).")
        else:
            sentences.append(f"It is {verdict} than the {name} ({numbers}).")
    return " ".join(sentences)


def _remarks(users: Sequence[Mapping[str, Any]]) -> list[str]:
    decisions = [user["decision"] for user in users]
    personal, recalibrated, alone = map(decisions.count, ("personal", "calibrated", "vendor"))
    others = (
        f" It uses the recalibrated model for {recalibrated}, and the new model alone for {alone}."
    )
    lines = [
        f"FaLA keeps the personal model for {personal} of {counted(len(users), 'user')}."
        + others * (personal < len(users))
    ]
    verdicts = [user["worse"] for user in users]
    worse, not_worse = verdicts.count(True), verdicts.count(False)
    lines.append(
        f"By the devices' own verdicts, {worse} of {counted(len(users), 'user')} {be(worse)} worse "
        f"off than with the old personal model, {not_worse} {be(not_worse)} not, and for "
        f"{verdicts.count(None)} the comparison is inconclusive."
    )
    if public := sum(user["public"] for user in users):
        lines.append(
            f"{public} of {sum(user['documents'] for user in users)} examples that the devices "
            "learned from are also in the public rows, with other people's labels. A head that was "
            "fitted to them knows these texts, so the old personal model looks better here than it "
            "would on new texts."
        )
    return lines


def _instant(instant: InstantReport) -> str:
    text = f"{_ACTIVE[instant.decision]} after {instant.seconds:.3f} s, before any forward pass"
    if instant.losses:
        text += f"; {instant.reason}"
    return text
