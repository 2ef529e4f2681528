"""Tables of an app's own encoder that is replaced: FaLA beside what the app would do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.experiments.own import jobs
from fala_sim.experiments.own.family import KIND, OWN
from fala_sim.experiments.own.ways import WAYS
from fala_sim.experiments.registry import table
from fala_sim.report.groups import interval_only, mean_cell, measured, of, parts, plain_mean
from fala_sim.report.statistics import paired_test
from fala_sim.report.table import Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

#: The way with which others are compared: what an app would do instead.
BASELINE = "own-logistic-cv"


@table(
    "own",
    "An app without a vendor replaces its encoder",
    KIND,
    family=OWN,
    caption=(
        f'A device has at most {jobs.TEXTS} of a user\'s texts, and the column "labels" says how '
        "many of them have a label. Error rate: how often a model disagrees with the person on "
        "unseen texts, in percent. Values are means over users [95 % t interval over users]. "
        "Less: the difference from LogisticRegression with C chosen by cross-validation on the "
        "same labels and new embeddings, for the same users. Flips: the percentage of new texts "
        "that the old personal model decided right and this model decides wrong. Passes: the "
        'number of texts that the new encoder embeds. A method without "other people" in its '
        "name has seen the labels of this user alone."
    ),
)
def own_table(records: pd.DataFrame) -> Table:
    """Compare FaLA with what an app without a vendor would do instead to replace its encoder."""
    runs = of(records, KIND)
    runs = runs.assign(negative=100 * runs["flips.old.negative"] / runs["test"])
    rows: list[TableRow] = []
    for data, old, new, part in _groups(runs):
        by_size = dict(parts(part, "labels"))
        for labels in (size for size in jobs.SIZES if size in by_size):
            groups = dict(parts(by_size[labels], "method"))
            for name, (way, _) in WAYS.items():
                if name not in groups:
                    continue
                group, other = groups[name], groups.get(BASELINE)
                less = None if other is None else paired_test(group, other, "scores.error_rate")
                row: dict[str, Cell] = {
                    "data": data,
                    "old": old,
                    "new": new,
                    "labels": labels,
                    "method": way,
                    "error rate (%)": interval_only(mean_cell(group, "scores.error_rate")),
                    "less": interval_only(less.difference) if less and name != BASELINE else None,
                    "log loss": plain_mean(group, "scores.loss"),
                    "AUC": plain_mean(group, "scores.auc"),
                    "flips": plain_mean(group, "negative"),
                    "passes": plain_mean(group, "passes"),
                    "people": group[["data", "user"]].drop_duplicates().shape[0],
                }
                rows.append(row)
    sets = ", ".join(f"{old} → {new}" for (old, new), _ in parts(runs, ["old", "new"]))
    return Table.of(rows, f"{sets}.", measured=measured(runs))


def _groups(runs: pd.DataFrame) -> list[tuple[str, str, str, pd.DataFrame]]:
    """Return the runs of each pair of encoders: of all data sets together, and of each."""
    groups: list[tuple[str, str, str, pd.DataFrame]] = []
    for (old, new), pair in parts(runs, ["old", "new"]):
        if pair["data"].nunique() > 1:
            groups.append(("all", old, new, pair))
        groups += [(data, old, new, part) for data, part in parts(pair, "data")]
    return groups
