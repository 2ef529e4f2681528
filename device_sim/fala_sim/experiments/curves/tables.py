"""Learning curves, users whom a device hardly knows yet, and chains of replacements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fala import DataError
from fala_sim.experiments.replacement import blends
from fala_sim.frame import exploded
from fala_sim.metric.statistics import SPLIT, describe, user_values
from fala_sim.report.groups import METRICS, described, grouped, mean, of, parts, title
from fala_sim.report.registry import table
from fala_sim.report.table import Cell, Row, Table

if TYPE_CHECKING:
    import pandas as pd

#: Train examples of a user whom a device hardly knows.
COLD = ("0", "5", "10", "20")

#: What a user may lose in AUC and hardly notice.
SMALL_LOSS = 0.005

#: Two ways to add up the same AUC may differ so much.
_ROUNDING = 1e-9

_NO_GAINS = "Not run: no user has an AUC of a method and of the vendor's model."


@table("curves", "Learning curves", "curves", "curve")
def curves(records: pd.DataFrame) -> Table:
    """AUC by the number of examples that the device had.

    AUC by the number of train examples that the device had when the new backbone came: mean over
    users ± deviation [95 % t interval over users]. Users with fewer examples than a column says
    are not in it.
    """
    runs = of(records, "curve")
    rows: list[Row] = [
        {"data": setting.data, "new": setting.new, "method": title(name, group)}
        | {
            f"{step} examples": mean(group[group["variant"] == step], "scores.auc")
            for step in sorted(runs["variant"].unique(), key=size)
        }
        for setting, name, group in grouped(runs)
    ]
    return Table.of(rows, described(runs))


@table("cold", "Cold users: against the vendor's model", "curves", "curve", reads=("replacement",))
def cold(records: pd.DataFrame) -> Table:
    """Users of whom the device knows little.

    Each user's AUC less the AUC of the vendor's new model as it is, which a user loses nothing by
    staying with. Share below: users who are worse off, by how much on average and at most;
    difference: mean over all users ± deviation [95 % t interval over users].
    """
    runs = of(records, "curve")
    rows: list[Row] = [
        {
            **about,
            "examples": int(step),
            "users": len(gains),
            **_losses(gains),
            "difference in AUC": describe(gains),
        }
        for about, step, gains in _gains(runs, records, COLD)
    ]
    return Table.of(rows, described(runs), () if rows else (_NO_GAINS,))


@table("twenty", "At twenty labelled examples: against the vendor's model", "curves", "curve",
       reads=("replacement", "search"))  # fmt: skip
def twenty(records: pd.DataFrame) -> Table:
    """Users of whom the device knows twenty labels.

    {blends.WORDS} Each user's AUC less the AUC of the vendor's new model as it is, where the device
    had twenty labelled examples when it came. Above and below: shares of the users; the others are
    as with the vendor's. Below by more than {SMALL_LOSS}: how many users. Difference: mean over
    users ± deviation [95 % t interval over users].

    Raises:
        DataError: If no learning curve has twenty examples.
    """
    runs = of(records, "curve")
    runs = runs[runs["variant"] == "20"]
    if runs.empty:
        raise DataError("no learning curve has a step of twenty examples: no user has so many")
    rows: list[Row] = [
        {
            **about,
            "users": len(gains),
            "share above": (gains > _ROUNDING).mean(),
            "share below": (gains < -_ROUNDING).mean(),
            f"below by more than {SMALL_LOSS}": (gains < -SMALL_LOSS).sum(),
            "largest loss": max(0.0, -gains.min()),
            "difference in AUC": describe(gains),
        }
        for about, _, gains in _gains(blends.with_blends(runs, records), records, ("20",))
    ]
    return Table.of(rows, described(runs), () if rows else (_NO_GAINS,))


@table("chains", "Chains of replacements", "chains", "chain")
def chains(records: pd.DataFrame) -> Table:
    """AUC after each of several replacements in turn.

    One device through several backbones in turn, by step: 0 is what it learnt first. Scores of the
    personal model, and AUC of the vendor's model of the same backbone: mean over users ± deviation
    [95 % t interval over users]. Decisions: for how many users the device carried the personal
    model over, or fell back to the vendor's.
    """
    runs = of(records, "chain")
    rows: list[Row] = [
        {
            "data": setting.data,
            "method": title(name, group),
            "step": number,
            "backbone": " or ".join(here["steps.backbone"].unique()),
            **{
                metric_title: mean(here, f"steps.scores.{metric}")
                for metric, metric_title in METRICS.items()
            },
            "vendor's AUC": mean(here, "steps.vendor.auc"),
            "decisions": ", ".join(
                f"{decision} {count}"
                for decision, count in here["steps.decision"].value_counts(sort=False).items()
            )
            or None,
        }
        for setting, name, group in grouped(steps(runs))
        for number, here in parts(group, "step")
    ]
    return Table.of(rows, described(runs))


def size(variant: str) -> float:
    """The number of examples that a learning curve's variant stands for; "all" comes last."""
    return math.inf if variant == "all" else int(variant)


def steps(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each ``step`` of some chains, counted from 0."""
    rows = exploded(runs.rename_axis("chain").reset_index(), "steps")
    rows["step"] = rows.groupby("chain").cumcount()
    return rows


def _with_gains(runs: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """With each AUC's ``gain`` above the vendor's model: of ours, the one in its own release."""
    columns = ["new", *SPLIT]
    vendor = of(records, "replacement", "curve")
    vendor = vendor[vendor["method"] == "global"].dropna(subset="scores.auc")
    vendor = vendor.drop_duplicates(columns, keep="last")[[*columns, "scores.auc"]]
    runs = runs.merge(vendor, "left", columns, suffixes=("", "_vendor"))
    reference = runs["scores.auc_vendor"]
    if "vendor.auc" in runs:
        reference = runs["vendor.auc"].fillna(reference)
    return runs.assign(gain=runs["scores.auc"] - reference)


def _gains(
    runs: pd.DataFrame, records: pd.DataFrame, steps: Sequence[str]
) -> Iterator[tuple[Row, str, NDArray[np.float64]]]:
    """What a row begins with, a step, and how far users' AUC is above the vendor's there."""
    for setting, name, group in grouped(_with_gains(runs, records)):
        about = {"data": setting.data, "new": setting.new, "method": title(name, group)}
        for step in steps if name != "global" else ():
            gains = user_values(group[group["variant"] == step], "gain")
            if len(gains):
                yield about, step, gains


def _losses(gains: NDArray[np.float64]) -> dict[str, Cell]:
    """How many users lose, and what."""
    losses = -gains[gains < -_ROUNDING]
    return {
        "share below": len(losses) / len(gains),
        "mean loss below": losses.mean() if len(losses) else None,
        "largest loss": losses.max() if len(losses) else None,
    }
