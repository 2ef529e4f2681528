"""Tables of tasks on one backbone: adapters and their baselines (Houlsby et al., 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fala_sim.report.groups import having, measured, of, parts, seeds_of
from fala_sim.report.statistics import describe
from fala_sim.report.table import NOT_RUN, PAPER, Cell, Table, TableRow
from fala_sim.report.value import UserMean
from studies.houlsby import reported
from studies.houlsby.study import STUDY

if TYPE_CHECKING:
    import pandas as pd

#: Metrics of a benchmark, with titles.
SCORES = {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"}
#: Number of tasks whose parameters are counted together (the paper's nine of GLUE).
TASKS = 9
#: The deviation of the initial weights in all other tables.
USUAL = "0.01"

_FULL, _ADAPTERS = ("full", ""), ("adapters", "64")
_TITLES = {
    "full": "full fine-tuning",
    "adapters": "adapters of size {}",
    "top-k": "top {} layers",
    "norms": "norms alone",
}
_TRAINED, _SHARE, _TOGETHER = "parameters trained", "share of the model", f"{TASKS} tasks (models)"
_INTERVALS = "± a standard deviation, [95% t interval] over seeds of the training."
_MEASURED = (
    "Figures are measured on the held-out rows (CoLA: the official development set; MRPC: the "
    "test pairs), with the int8 graph that ships. Rate and epoch are those with the highest "
    "accuracy on validation rows."
)


@STUDY.table(
    "adapters",
    "Adapters against full fine-tuning",
    "adapter",
    caption=(
        f"{_MEASURED} {_INTERVALS} Nine tasks: the parameters that nine tasks need together, in "
        "models. The paper: BERT-large on GLUE's own test rows, Matthews' coefficient for CoLA "
        "and F1 for MRPC, the best of a sweep. The slides: a reproduction with BERT-base, "
        "accuracy on development rows."
    ),
)
def adapters(records: pd.DataFrame) -> Table:
    """Compare adapters of two sizes with full fine-tuning, and with no training."""
    runs = of(records, "adapter")
    rows: list[TableRow] = []
    for data, part in parts(runs, "data"):
        for name, scores in (
            ("the majority's label", "majority"),
            ("a head on the backbone, which stays as it is", "frozen"),
        ):
            # The exporter no longer measures Matthews' coefficient of the head that it starts from.
            first = having(part, *(f"{scores}.{score}" for score in SCORES)).iloc[0]
            row = {title: first[f"{scores}.{score}"] for score, title in SCORES.items()}
            rows.append({"data": data, "method": name, _TRAINED: None, _SHARE: None,
                         _TOGETHER: None, **row})  # fmt: skip
        groups = by_trial(part)
        for trial in dict.fromkeys((_FULL, _ADAPTERS, *groups)):
            group = groups.get(trial, part.iloc[:0])
            rows.append(
                {
                    **_trial_row(data, trial, group, groups.get(_FULL)),
                    f"{PAPER} BERT-large": reported.SCORES.get(("paper", *trial, data)),
                    f"{PAPER} slides, accuracy": reported.SCORES.get(("slides", *trial, data)),
                    "seconds": group["seconds"].mean(),
                }
            )
        if best := reported.SCORES.get(("paper", "adapters", "best", data)):
            rows.append(
                {
                    "data": data,
                    "method": f"{PAPER} the best of sizes 8, 64 and 256",
                    _SHARE: reported.BEST_SHARE,
                    _TOGETHER: 1 + (TASKS - 1) * reported.BEST_SHARE,
                    f"{PAPER} BERT-large": best,
                }
            )
    # Trainings whose best epoch was the start learnt nothing.
    idle = runs[runs["history.best_step"] == 0]
    notes = [
        f"{run['data']}, {trial_title(run['method'], run['variant'])}, seed {run['seed']}: no "
        "epoch was better on the validation rows than the head that it began with."
        for run in idle.to_dict("records")
    ]
    return Table.of(rows, described_trainings(runs), notes, measured=measured(runs))


@STUDY.table(
    "adapter-search",
    "Learning rates",
    "adapter-search",
    caption=(
        "The accuracy of the best epoch on the validation rows, for adapters of size 64 and for "
        "full fine-tuning. The trainings in all other tables use the best rate for their method "
        "and data set; if several rates are equally good, they use the exporter's own or the "
        "smaller one."
    ),
)
def adapter_search(records: pd.DataFrame) -> Table:
    """Show the learning rates that were tried."""
    runs = of(records, "adapter-search")
    # If several rates are equally good, the trainings use the usual or the smaller one.
    runs = runs.assign(other=runs["variant"] != "usual").sort_values(
        ["data", "method", "accuracy", "other", "recipe.learning_rate"],
        ascending=[True, True, False, True, True],
    )
    best = ~runs.duplicated(["data", "method"])
    runs = runs.assign(best=best.map({True: "best", False: None})).sort_values(
        ["data", "method", "recipe.learning_rate"]
    )
    rows: list[TableRow] = [
        {
            "data": run["data"],
            "method": run["method"],
            "learning rate": run["recipe.learning_rate"],
            "accuracy on validation rows": run["accuracy"],
            "": run["best"],
        }
        for run in runs.to_dict("records")
    ]
    return Table.of(rows, described_trainings(runs), measured=measured(runs))


@STUDY.table(
    "adapter-sizes",
    "Performance by trained parameters",
    "adapter",
    "adapter-size",
    caption=(
        f"{_MEASURED} {_INTERVALS} In the paper, the mean validation accuracies of eight tasks "
        "are 0.862, 0.858 and 0.857 at sizes 8, 64 and 256 (BERT-large); training fewer top "
        "layers costs much, and training norms alone costs more."
    ),
)
def adapter_sizes(records: pd.DataFrame) -> Table:
    """Show performance by trained parameters: the paper's Figure 4."""
    runs = of(records, "adapter", "adapter-size")
    rows: list[TableRow] = []
    for data, part in parts(runs, "data"):
        groups = by_trial(part)
        for trial, group in groups.items():
            row = _trial_row(data, trial, group, groups.get(_FULL))
            del row[_TOGETHER]
            rows.append({**row, "seeds": len(group)})
    return Table.of(rows, described_trainings(runs), measured=measured(runs))


@STUDY.table(
    "adapter-ablation",
    "Adapters without some layers'",
    "adapter-span",
    caption=(
        f"{_INTERVALS} In the paper (BERT-base, MNLI and CoLA, validation rows), no single layer "
        "costs more than 2 points. All layers together cost 37 (MNLI) and 69 (CoLA), down to the "
        "majority's label, and the lower layers (0 to 4 on MNLI) hardly matter."
    ),
)
def adapter_ablation(records: pd.DataFrame) -> Table:
    """Show adapters without those of some layers, not trained anew: the paper's Figure 6."""
    runs = of(records, "adapter-span")
    rows: list[TableRow] = []
    for data, part in parts(runs, "data"):
        complete, metric = part[part["last"] < 0], reported.METRIC.get(data, "f1")
        rows += [
            {
                "data": data,
                "left out": span_title(*span),
                **_scores(group),
                "change of accuracy": difference(group, complete),
                "change of the paper's metric": difference(group, complete, metric),
                "share of label 1": group["positive"].mean(),
                "seeds": len(group),
            }
            # (0, -1), which leaves none out, comes first.
            for (_, *span), group in parts(
                part.assign(any=part["last"] >= 0), ["any", "first", "last"]
            )
        ]
        majority = {title: part[f"majority.{name}"].iloc[0] for name, title in SCORES.items()}
        rows.append({"data": data, "left out": "the majority's label", **majority})
    data = (
        f"{described_trainings(runs)} Adapters of size {runs['of'].iloc[0]} of which those of a "
        "span of layers, and the norms behind them, are not fed to the graph; layers count from 0."
    )
    return Table.of(rows, data, measured=measured(runs))


@STUDY.table(
    "adapter-init",
    "Adapters by the scale of their first weights",
    "adapter-init",
    reads=("adapter",),
    caption=(
        f"Adapters of size 64. {_MEASURED} {_INTERVALS} In the paper (BERT-base, MNLI and CoLA), "
        "results are the same below a deviation of 0.01 and worse above it, most of all on CoLA."
    ),
)
def adapter_init(records: pd.DataFrame) -> Table:
    """Show adapters by the scale of their initial weights: the paper's Figure 6, right."""
    runs = of(records, "adapter-init", "adapter")
    usual = (runs["method"] + runs["variant"] == "".join(_ADAPTERS)) & (runs["kind"] == "adapter")
    runs = runs.assign(variant=runs["variant"].mask(usual, USUAL))
    runs = runs[usual | (runs["kind"] == "adapter-init")]
    runs = runs.assign(deviation=runs["variant"].astype(float))
    rows: list[TableRow] = [
        {
            "data": data,
            "deviation": scale,
            **_scores(group),
            f"accuracy against {USUAL}": difference(group, part[part["variant"] == USUAL]),
            "seeds": len(group),
        }
        for data, part in parts(runs, "data")
        for scale, group in parts(part, "deviation")
    ]
    return Table.of(rows, described_trainings(runs), measured=measured(runs))


def by_trial(runs: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Return runs by method and variant, by the number of trained parameters."""
    groups = parts(runs, ["method", "variant"], sort=False)
    return dict(sorted(groups, key=lambda item: item[1]["parameters.trained"].iloc[0]))


def trial_title(method: str, variant: str) -> str:
    """Return the title of a method."""
    return _TITLES.get(method, method).format(variant)


def span_title(first: int, last: int) -> str:
    """Return the title of a span of layers."""
    if last < first:
        return "nothing"
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def difference(
    runs: pd.DataFrame, reference: pd.DataFrame | None, metric: str = "accuracy"
) -> UserMean | None:
    """Return the difference from another trial's score over common seeds; None for itself."""
    if reference is None or runs.index.equals(reference.index):
        return None
    score = f"scores.{metric}"
    both = runs.merge(reference, on="seed", suffixes=("", "_other"))
    values = (both[score] - both[f"{score}_other"]).tolist()
    return describe(values) if values else None


def described_trainings(runs: pd.DataFrame) -> str:
    """Describe the data, backbone and seeds of runs, for captions."""
    words = [
        f"{run['data']} on {run['new']} ({run['public']:.0f} rows to train on, {run['train']:.0f} "
        f"to validate, {run['test']:.0f} held out)"
        for run in runs.sort_values("data", kind="stable")
        .drop_duplicates("data")
        .to_dict("records")
    ]
    return f"Data: {', '.join(words)}; {seeds_of(runs)}."


def _trial_row(
    data: str, trial: tuple[str, str], runs: pd.DataFrame, full: pd.DataFrame | None
) -> dict[str, Cell]:
    """Return a trial's trained parameters, their share, what nine tasks need, and its scores."""
    trained: Cell = NOT_RUN
    share: Cell = None
    together: Cell = None
    if not runs.empty:
        trained = int(runs["parameters.trained"].iloc[0])
        share = trained / int(runs["parameters.all"].iloc[0])
        together = 1 + (TASKS - 1) * share
    return {
        "data": data, "method": trial_title(*trial),
        _TRAINED: trained, _SHARE: share, _TOGETHER: together,
        **_scores(runs), "accuracy against full": difference(runs, full),
    }  # fmt: skip


def _scores(runs: pd.DataFrame) -> dict[str, Cell]:
    """Return each score over seeds."""
    return {
        title: NOT_RUN if runs.empty else describe(runs[f"scores.{name}"].tolist())
        for name, title in SCORES.items()
    }
