"""Tables of replacements by all methods: quality, budgets, verdicts and searches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fala import DataError
from fala_sim.data.users import LabelTask
from fala_sim.experiments import paper
from fala_sim.experiments.registry import table
from fala_sim.experiments.replacement import (
    blends,
    comparisons,  # noqa: F401 - it registers the table of comparisons
    cost,  # noqa: F401 - it registers the tables of costs
    flips,
)
from fala_sim.experiments.replacement.blends import MethodRow
from fala_sim.methods.fala_shipped import Everything
from fala_sim.methods.quality import DECIDED
from fala_sim.methods.registry import BASELINES, HEADLINE, METHODS, OURS, VENDOR
from fala_sim.records.frame import joined
from fala_sim.report.groups import (
    MB,
    by_method,
    by_setting,
    comparable,
    described,
    grouped,
    having,
    interval_only,
    mean_cell,
    measured,
    of,
    of_tasks,
    parts,
    plain_mean,
    score_cells,
    shared_by,
    title,
)
from fala_sim.report.statistics import PairedTest, holm, mean_over_users, paired_test
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

#: The budget of forward passes with a row beside the methods.
_BESIDE = "100"


@table(
    "headline",
    "What a replacement keeps, and what it costs",
    "replacement",
    reads=("search",),
    caption=(
        "Error rate: how often a model disagrees with the person on unseen texts, in percent. It "
        f"and the other figures are means over users [95 % t interval over users]. {DECIDED} "
        f"{flips.ABOUT} {blends.ABOUT} Cost: the mean over users of one whole replacement, "
        "including everything that chooses, encodes, solves and trains."
    ),
)
def headline(records: pd.DataFrame) -> Table:
    """Show what a replacement keeps, and what it costs, for the methods that matter most."""
    plain = of_tasks(records, "replacement")
    added = ~plain["method"].isin(METHODS)  # added by a file, in an earlier command
    plain = comparable(plain[plain["method"].isin(HEADLINE) | added])
    runs = flips.with_flips(blends.with_blends(plain, records), records)
    rows: list[TableRow] = [
        {
            "data": setting.data,
            "method": row.title(group),
            **{
                words: interval_only(mean_cell(group, figure))
                for words, figure in flips.FELT_WITH_FLIPS.items()
            },
            "F1": interval_only(mean_cell(group, "scores.f1")),
            "people": group["user"].nunique() or None,
            "forward passes": plain_mean(group, "cost.total.forward_passes"),
            "FLOPs": plain_mean(group, "cost.total.flops"),
            "seconds": plain_mean(group, "cost.total.seconds"),
            "memory growth (MB)": plain_mean(group, "cost.memory_growth", MB),
        }
        for setting, part in by_setting(runs)
        for row, group in blends.by_row(part)
    ]
    return Table.of(rows, described(runs), measured=measured(runs))


@table(
    "2",
    "Table 2: all methods",
    "replacement",
    reads=("search",),
    caption=(
        "Scores are means over users ± standard deviation [95 % t interval over users]. "
        f"{DECIDED} {flips.ABOUT} New model right, wrong now: the same, but compared with the "
        "new model alone or, for a method without lexical features, with the new head alone. "
        f"{blends.ABOUT} p: the two-sided sign-flip test of the AUC against "
        "the best baseline (the one with the highest mean AUC on the same users), over the same "
        "users and seeds, and the same with Holm's correction over all methods of the data set. "
        f"{paper.DIFFERENCE}"
    ),
)
def table_2(records: pd.DataFrame) -> Table:
    """Compare all methods on all data sets, with the paper's scores."""
    blended = blends.with_blends(of_tasks(records, "replacement"), records)
    runs = flips.with_flips(blended, records)
    rows: list[TableRow] = []
    notes: list[str] = []
    for setting, part in by_setting(runs):
        groups = dict(blends.by_row(part))
        best = _best_baseline(part)
        tests = _tests(groups, best)
        corrected = holm({row: test.p for row, test in tests.items()})
        rows += [
            {
                "data": setting.data,
                "new": setting.new,
                "method": row.title(group),
                "seeds": group["seed"].nunique() or None,
                **score_cells(group),
                flips.TITLE: plain_mean(group, flips.COLUMN),
                "new model right, wrong now": plain_mean(group, "flips.vendor.share", 0.01),
                "blended": blends.blend_cell(group),
                "p": "best baseline" if row == best else tests[row].p if row in tests else None,
                "p (Holm)": corrected.get(row),
                "forward passes": plain_mean(group, "cost.total.forward_passes"),
                **paper.paper_cells("2", setting.task, "" if row.blended else row.method),
            }
            for row, group in groups.items()
        ]
        if best is not None and tests:
            notes.append(_note(setting.data, best.title(groups[best]), tests))
    return Table.of(rows, described(runs), notes)


@table(
    "frontier",
    "What a budget of forward passes buys",
    "frontier",
    "replacement",
    caption=(
        "FaLA as shipped by its budget, between the new model alone and FaLA with all examples "
        "through the new backbone. Scores are means over users ± standard deviation [95 "
        f"% t interval over users]. {DECIDED} {flips.ABOUT} Share of the gain: how much of the "
        "way between the two ends the mean has gone, over the users and seeds that all rows have; "
        "it is empty if there is no gain. Cost: the mean over users of one whole replacement."
    ),
)
def frontier_table(records: pd.DataFrame) -> Table:
    """Show what a budget of forward passes buys, and what it costs."""
    runs = of_tasks(records, "frontier")
    replaced = flips.with_flips(of(records, "replacement"), records)
    vendor = next((name for name in VENDOR if name in set(replaced["method"])), VENDOR[-1])
    rows: list[TableRow] = []
    for setting, part in by_setting(flips.with_flips(runs, records)):
        same = replaced[(replaced["data"] == setting.data) & (replaced["new"] == setting.new)]
        low, high = (
            shared_by(same[same["method"] == name], part) for name in (vendor, Everything.name)
        )
        budgets = parts(part.assign(budget=part["variant"].astype(int)), "budget")
        ends = [
            (title(name, group), group) for name, group in ((vendor, low), (Everything.name, high))
        ]
        rows += [
            {
                "data": setting.data,
                "new": setting.new,
                "budget (passes)": budget,
                "AUC": mean_cell(group, "scores.auc"),
                "share of the gain in AUC": _share(low, group, high, "scores.auc"),
                "F1": mean_cell(group, "scores.f1"),
                "share of the gain in F1": _share(low, group, high, "scores.f1"),
                flips.TITLE: plain_mean(group, flips.COLUMN),
                "forward passes": plain_mean(group, "cost.total.forward_passes"),
                "FLOPs": plain_mean(group, "cost.total.flops"),
                "seconds to the first answer": plain_mean(group, "report.instant.seconds"),
                "seconds": plain_mean(group, "cost.total.seconds"),
            }
            for budget, group in (ends[0], *budgets, ends[1])
            if not group.empty
        ]
    return Table.of(rows, described(runs), measured=measured(runs))


@table(
    "verdicts",
    "How often the device's verdict was right",
    "replacement",
    caption=(
        "A replacement is for one user with one seed. Personal: the device found the personal "
        "model better than the new model alone by what it can check, and carried it over. "
        "Recalibrated: it found nothing better than the vendor's model with the user's own slope "
        "and bias, which ranks examples as the vendor's model does. For the personal models, the "
        "table shows how many have an AUC (both labels are held out), and how often the personal "
        "model was better on the held-out examples, by AUC and by cross-entropy."
    ),
)
def verdicts(records: pd.DataFrame) -> Table:
    """Show how often the device's verdict was right.

    Raises:
        DataError: No replacement by FaLA has the vendor's score.
    """
    runs = of_tasks(records, "replacement")
    runs = runs[runs["method"].isin(OURS)]
    needed = ["report.decision", "vendor.loss"]
    runs = having(runs, *needed).dropna(subset=needed)
    if runs.empty:
        raise DataError("no replacement by FaLA has the vendor's scores; run it again")
    rows: list[TableRow] = []
    for setting, name, group in grouped(runs):
        decisions = group["report.decision"]
        personal = group[decisions == "personal"]
        areas = (personal["scores.auc"] - personal["vendor.auc"]).dropna()
        losses = (personal["vendor.loss"] - personal["scores.loss"]).dropna()
        rows.append(
            {
                "data": setting.data,
                "new": setting.new,
                "method": title(name, group),
                "replacements": len(group),
                "personal": len(personal),
                "recalibrated": (decisions == "calibrated").sum(),
                "with an AUC": len(areas),
                "better by AUC": (areas > 0).sum(),
                "share by AUC": (areas > 0).mean(),
                "better by cross-entropy": (losses > 0).sum(),
                "share by cross-entropy": (losses > 0).mean(),
            }
        )
    return Table.of(rows, described(runs))


@table(
    "search",
    "How settings were chosen",
    "search",
    reads=("replacement",),
    caption=(
        "These users are validation users, none of whom is a test user. Every method may try the "
        "same number of settings, and the settings with the best mean AUC are chosen (accuracy "
        "replaces AUC for a user who has none). Chosen: the settings with which the replacements "
        "were run, or will be run."
    ),
)
def search_table(records: pd.DataFrame) -> Table:
    """Show how each method's settings were chosen."""
    runs = of_tasks(records, "search")
    replaced = having(of(records, "replacement"), "settings").dropna(subset="settings")
    rows: list[TableRow] = []
    for setting, name, group in grouped(runs):
        trials = blends.attempts(group)
        trials["words"] = trials["tried.settings"].map(words_table)
        means = trials.groupby(["words", "user"], sort=False)["score"].mean()
        scores = means.groupby("words", sort=False).mean().dropna()
        same = (replaced["data"] == setting.data) & (replaced["new"] == setting.new)
        used = sorted(
            set(replaced[same & (replaced["method"] == name)]["settings"].map(words_table))
        )
        best = [] if scores.empty else [str(scores.idxmax())]
        rows.append(
            {
                "data": setting.data,
                "new": setting.new,
                "method": title(name, group),
                "settings tried": trials["words"].nunique(),
                "validation users": group["user"].nunique(),
                "chosen": "; ".join(used or best) or None,
                "chosen's AUC": scores.reindex(used or best).max(),
                "best AUC": scores.max(),
                "worst AUC": scores.min(),
            }
        )
    return Table.of(rows, described(runs))


@table(
    "ratings",
    "Ratings: what a replacement keeps, and what it costs",
    "replacement",
    "frontier",
    caption=(
        "RMSE and Spearman's rank correlation with the users' held-out ratings are means over "
        "users [95 % t interval over users]. RMSE minus new model alone: the difference from the "
        "new model alone (with lexical features) on the same users, which is below zero if the "
        "method is closer to their ratings. People below: the number of users for whom the "
        "difference is not above zero. Cost: the mean over users of one whole replacement. "
        "Settings are those that validation users chose on the first division. If people take "
        "turns, these validation users are test users in another division, to the advantage of "
        "the methods that have settings."
    ),
)
def ratings(records: pd.DataFrame) -> Table:
    """Show, for ratings (--data scale-ratings), what a replacement keeps and costs."""

    def quality(group: pd.DataFrame, vendor: pd.DataFrame) -> dict[str, Cell]:
        gain = None if group is vendor else paired_test(group, vendor, "scores.rmse")
        return {
            "RMSE": interval_only(mean_cell(group, "scores.rmse")),
            "rank correlation": interval_only(mean_cell(group, "scores.rank_correlation")),
            "RMSE minus new model alone": interval_only(gain.difference) if gain else None,
            "people below": gain.difference.n - gain.above if gain else None,
        }

    return _of_task(records, "rating", quality)


@table(
    "tags",
    "Tags: what a replacement keeps, and what it costs",
    "replacement",
    "frontier",
    caption=(
        "AUC and F1 are means over the tags, and then over users [95 % t interval over users]. An "
        "example has the tags whose probability is above 1/2, as a device's predict decides. AUC "
        "minus new model alone: the difference from the new model alone (with lexical features) "
        "on the same users. Cost: the mean over users of one whole replacement. Settings are those "
        "that validation users chose."
    ),
)
def tags(records: pd.DataFrame) -> Table:
    """Show, for tags (--data hs-brexit-tags), what a replacement keeps and costs."""

    def quality(group: pd.DataFrame, vendor: pd.DataFrame) -> dict[str, Cell]:
        gain = None if group is vendor else paired_test(group, vendor, "scores.auc")
        return {
            "AUC": interval_only(mean_cell(group, "scores.auc")),
            "AUC minus new model alone": interval_only(gain.difference) if gain else None,
            "people above": gain.above if gain else None,
            "F1": interval_only(mean_cell(group, "scores.f1")),
        }

    return _of_task(records, "tags", quality)


def _of_task(
    records: pd.DataFrame,
    task: LabelTask,
    quality: Callable[[pd.DataFrame, pd.DataFrame], Mapping[str, Cell]],
) -> Table:
    """Return rows of all methods on one task, with their costs.

    Args:
        records: The frame.
        task: The task.
        quality: Function that returns the quality cells of a method's runs, from these runs and the
            new model's alone.
    """
    runs = of_tasks(records, "replacement", [task])
    budgets = of_tasks(records, "frontier", [task])
    beside = budgets[budgets["variant"] == _BESIDE]
    rows: list[TableRow] = []
    for setting, part in by_setting(joined(runs, beside)):
        groups = {
            (name, kind): group
            for name, of_method in by_method(part)
            for kind, group in parts(of_method, "kind", sort=False)
        }
        replaced = {name: group for (name, kind), group in groups.items() if kind == "replacement"}
        vendor = next((replaced[name] for name in VENDOR if name in replaced), part.iloc[:0])
        rows += [
            {
                "data": setting.data,
                "method": title(name, group) + f", {_BESIDE} forward passes" * (kind == "frontier"),
                **quality(group, vendor),
                "people": group["user"].nunique(),
                "forward passes": plain_mean(group, "cost.total.forward_passes"),
                "FLOPs": plain_mean(group, "cost.total.flops"),
                "CPU seconds": plain_mean(group, "cost.total.cpu_seconds"),
                "memory growth (MB)": plain_mean(group, "cost.memory_growth", MB),
                "settings": _settings(group),
            }
            for (name, kind), group in groups.items()
        ]
    return Table.of(rows, described(runs), measured=measured(runs))


def _best_baseline(runs: pd.DataFrame) -> MethodRow | None:
    """Return the baseline with the highest mean AUC, among those with the most users."""
    method = runs["method"]
    baselines = runs[method.isin(BASELINES) | ~method.isin(list(METHODS))]
    best, highest = None, (0, 0.0)
    for row, group in blends.by_row(comparable(baselines)):
        value = mean_over_users(group, "scores.auc")
        if value is not None and (value.n, value.mean) > highest:
            best, highest = row, (value.n, value.mean)
    return best


def _tests(
    groups: Mapping[MethodRow, pd.DataFrame], best: MethodRow | None
) -> dict[MethodRow, PairedTest]:
    """Test the AUC of each row's runs against that of the best baseline, if they share users."""
    if best is None:
        return {}
    tests = {
        row: paired_test(group, groups[best], "scores.auc")
        for row, group in groups.items()
        if row != best
    }
    return {row: test for row, test in tests.items() if test is not None}


def _note(data: str, best: str, tests: dict[MethodRow, PairedTest]) -> str:
    users = min(test.difference.n for test in tests.values())
    smallest = max(test.smallest_p for test in tests.values())
    word = "user" if users == 1 else "users"
    return (
        f"{data}: against {best}. With {users} {word} the smallest p possible is {smallest:.4g}, "
        f"before Holm's correction over {len(tests)} methods."
    )


def _share(low: pd.DataFrame, group: pd.DataFrame, high: pd.DataFrame, figure: str) -> Cell:
    """Return the share of the gain from ``low`` to ``high`` that some runs have.

    None is returned without a gain, or if one of the three was not run.
    """
    three = (low, group, high)
    values = [mean_over_users(shared_by(runs, *three), figure) for runs in three]
    means = [value.mean for value in values if value is not None]
    if len(means) < len(three):
        return None
    return (means[1] - means[0]) / (means[2] - means[0]) if means[2] > means[0] else None


def words_table(settings: Mapping[str, object]) -> str:
    """Return settings in words."""
    pairs = (
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in sorted(settings.items())
    )
    return ", ".join(pairs) or "none"


def _settings(runs: pd.DataFrame) -> str | None:
    settings = having(runs, "settings")["settings"]
    texts = {words_table(each) for each in settings if isinstance(each, dict) and each}
    return "; ".join(sorted(texts)) or None
