"""The paper's Tables 3 to 7: the old backbone, and the parts of its method one by one."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from fala import DataError
from fala_sim.experiments import paper
from fala_sim.report.groups import METRICS, by_setting, described, mean_cell, of, parts, score_cells
from fala_sim.report.statistics import over_users, paired_test
from fala_sim.report.table import NOT_RUN, PAPER, Cell, Table, TableRow
from studies.ablation.study import STUDY

if TYPE_CHECKING:
    import pandas as pd

_MEANS = "Scores are means over users ± standard deviation [95 % t interval over users]."

#: Table 4's ways to initialize the matrix.
_WAYS = {
    "random": "Random",
    "full": "Full rank",
    "kmeans": "K-means",
    "fala-k": "FaLA, K examples",
    "fala": "FaLA",
}

_OBJECTIVES = {"ce": "CE", "mse": "MSE", "mse+ce": "MSE + CE"}
_LAMBDAS = {0.0001, 0.001, 0.01, 0.1, 0.0}

#: Table 6's models.
_MODELS = {
    "own-labels": "own labels, no global training",
    "fala": "FaLA (paper), with global training",
}

#: The paper's data, by our tasks.
_TASKS = {"matching": "NR (MIND)", "classification": "HS (Wikipedia Detox)"}
#: Table 5's metric, and Table 6's.
_METRIC_5 = {"matching": "auc", "classification": "accuracy"}
_METRIC_6 = {"matching": "auc", "classification": "f1"}

#: Number of users with a column in Table 7, as in the paper.
_USERS = 5


@STUDY.table(
    "table-3",
    "Table 3: the old backbone, global and personal",
    "ablation",
    caption=(
        f"{_MEANS} p: the two-sided sign-flip test over users, beside the smallest p value that "
        f"is possible with this many users. {paper.DIFFERENCE}"
    ),
)
def table_3(records: pd.DataFrame) -> Table:
    """Show the old backbone, global and personal."""
    runs = _ablations(records, "3")
    rows: list[TableRow] = []
    for setting, setting_runs in by_setting(runs):
        models = {
            which: setting_runs[setting_runs["part"] == f"old-{which}"]
            for which in ("global", "personal")
        }
        for metric, metric_title in METRICS.items():
            test = paired_test(models["personal"], models["global"], f"scores.{metric}")
            rows.append(
                {
                    "data": setting.data,
                    "old backbone": setting.old,
                    "metric": metric_title,
                    **{
                        which: mean_cell(model, f"scores.{metric}")
                        for which, model in models.items()
                    },
                    "p": test.p if test else None,
                    "smallest p": test.smallest_p if test else None,
                }
                | {
                    f"{PAPER} {which}": paper.reported("3", setting.task, "GloVe", metric, which)
                    for which in models
                }
            )
    return Table.of(rows, described(runs))


@STUDY.table(
    "table-4",
    "Table 4: ways to initialize the personal matrix",
    "ablation",
    caption=(f"The paper's FaLA, initialized in five ways. {_MEANS} {paper.DIFFERENCE}"),
)
def table_4(records: pd.DataFrame) -> Table:
    """Compare ways to initialize the personal matrix."""
    runs = _ablations(records, "4")
    rows: list[TableRow] = [
        {
            "data": setting.data,
            "new": setting.new,
            "initialization": way_title,
            **score_cells(setting_runs[setting_runs["part"] == way]),
            **paper.paper_cells("4", setting.task, way),
        }
        for setting, setting_runs in by_setting(runs)
        for way, way_title in _WAYS.items()
    ]
    return Table.of(rows, described(runs))


@STUDY.table(
    "table-5",
    "Table 5: objective terms by lambda",
    "ablation",
    caption=(
        "The paper's FaLA, with the squared error of old logits (MSE), the cross-entropy of "
        f"labels (CE) or both, and lambda as the weight of the penalty. {_MEANS} The paper's "
        "columns are with BERT. It does not name their metric, which by size is AUC for NR and "
        f"accuracy for HS. {paper.DIFFERENCE}"
    ),
)
def table_5(records: pd.DataFrame) -> Table:
    """Compare objective terms by lambda."""
    runs = _ablations(records, "5")
    # The variant names objective and lambda, "mse+ce-0.0001"; lambda may be written with an
    # exponent.
    parts = runs["part"].str.split("-", n=1, expand=True)
    runs = runs.assign(objective=parts[0], strength=parts[1].astype(float))
    rows: list[TableRow] = []
    for setting, setting_runs in by_setting(runs):
        metrics = dict.fromkeys(("auc", _METRIC_5[setting.task]))
        for metric, strength in product(metrics, sorted({*runs["strength"], *_LAMBDAS})):
            group = setting_runs[setting_runs["strength"] == strength]
            rows.append(
                {
                    "data": setting.data,
                    "new": setting.new,
                    "metric": METRICS[metric],
                    "lambda": strength,
                }
                | {
                    name: mean_cell(group[group["objective"] == objective], f"scores.{metric}")
                    for objective, name in _OBJECTIVES.items()
                }
                | {
                    f"{PAPER} {name}": paper.reported(
                        "5", setting.task, "BERT", metric, f"{objective} {strength}"
                    )
                    for objective, name in _OBJECTIVES.items()
                }
            )
    return Table.of(rows, described(runs))


@STUDY.table(
    "table-6",
    "Table 6: no global training",
    "ablation",
    caption=(
        "Our rows without global training have a head fitted to each user's own labels alone, on "
        f"the backbone as it comes, whereas the paper also fine-tunes the backbone. {_MEANS} The "
        "paper's rows stand below ours: they are for other data, other backbones and five users, "
        "± standard deviation over them."
    ),
)
def table_6(records: pd.DataFrame) -> Table:
    """Compare models without global training with FaLA, which has it."""
    runs = _ablations(records, "6")
    rows: list[TableRow] = [
        {
            "data": setting.data,
            "new": setting.new,
            "model": model,
            **score_cells(setting_runs[setting_runs["part"] == part]),
        }
        for setting, setting_runs in by_setting(runs)
        for part, model in _MODELS.items()
    ]
    theirs = {"own-labels": "fine-tuned, no global training", "fala": _MODELS["fala"]}
    for (task, metric), (part, model), backbone in product(
        _METRIC_6.items(), theirs.items(), paper.BACKBONES
    ):
        value = paper.reported("6", task, backbone, metric, part)
        rows.append(
            {
                "data": f"{PAPER} {_TASKS[task]}",
                "new": backbone,
                "model": model,
                METRICS[metric]: value,
            }
        )
    return Table.of(rows, described(runs))


@STUDY.table(
    "table-7",
    "Table 7: clusters by user and top k",
    "ablation",
    caption=(
        "The number of clusters that correlation clustering finds among each user's examples, if "
        "each example has + edges to those of its label among its k nearest neighbours; and the "
        "AUC of the paper's FaLA on their representatives, as a mean over users ± standard "
        "deviation [95 % t interval over users]. The paper's rows, at the k that it found best, "
        "are for five other users."
    ),
)
def table_7(records: pd.DataFrame) -> Table:
    """Show the number of clusters by user and top k."""
    runs = _ablations(records, "7")
    runs = runs.assign(top_k=runs["part"].astype(int))
    columns = [f"user {number}" for number in range(1, _USERS + 1)]
    rows: list[TableRow] = []
    notes: list[str] = []
    for setting, setting_runs in by_setting(runs):
        users = sorted(setting_runs["user"].unique())
        names = ", ".join(f"user {number} is {user}" for number, user in enumerate(users, 1))
        notes.append(f"{setting.data}: {names}.")
        for top_k, group in parts(setting_runs, "top_k"):
            clusters = over_users(group, "clusters")
            counts = [_as_integer(clusters[setting.data, user]) if (setting.data, user) in clusters
                      else NOT_RUN for user in users[:_USERS]]  # fmt: skip
            rows.append(
                {
                    "data": setting.data,
                    "new": setting.new,
                    "top k": top_k,
                    **dict.fromkeys(columns),
                    **dict(zip(columns, counts, strict=False)),
                    **score_cells(group, ("auc",)),
                }
            )
    rows += [
        {
            "data": f"{PAPER} {_TASKS[task]}",
            "new": backbone,
            "top k": paper.reported("7", task, backbone, "top k"),
            **{user: paper.reported("7", task, backbone, "clusters", user) for user in columns},
        }
        for task, backbone in product(_TASKS, paper.BACKBONES)
    ]
    return Table.of(rows, described(runs), notes)


def _ablations(records: pd.DataFrame, number: str) -> pd.DataFrame:
    """Return a table's ablations; ``part`` is their variant without the table's name."""
    runs = of(records, "ablation")
    names = runs["variant"].str.partition("-")
    runs = runs.assign(part=names[2])[names[0] == f"table{number}"]
    if runs.empty:
        raise DataError(
            f"no records of table{number} among the ablations; `fala-sim study ablation "
            f"table-{number} --run` makes them"
        )
    return runs


def _as_integer(count: float) -> Cell:
    """Return a count as a whole number; a mean over seeds stays as it is."""
    return int(count) if count.is_integer() else count
