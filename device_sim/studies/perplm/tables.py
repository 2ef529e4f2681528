"""Tables of writers' prompts, each with and without a personal head on top (PerPLM)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fala_sim.methods.quality import label_figures
from fala_sim.records.frame import as_logits
from fala_sim.report.groups import having, interval_only, measured, of, parts, plain_mean, seeds_of
from fala_sim.report.statistics import describe, mean_over_users, paired_differences
from fala_sim.report.table import NOT_RUN, Cell, Table, TableRow
from studies.perplm.prompts import HARD, SOFT, prompt_keys
from studies.perplm.study import STUDY

if TYPE_CHECKING:
    import pandas as pd

#: A training's variants, in order, with their names in rows.
VARIANTS = {
    "": "",
    "mlm": "masked words first",
    "no-mlp": "no MLP",
    "fixed": "backbone fixed",
    "both-ways": "attending to the text",
}
METHODS = {
    "none": "none",
    "user-bias": "a bias of the writer's own",
    "soft-one": "soft, one layer",
    "soft-all": "soft, all layers",
    "hard-static": "hard, static",
    "hard-dynamic": "hard, dynamic",
    "lora": "none; then LoRA on the writer's rows",
    "adapter": "none; then adapters on the writer's rows",
}
_PEERS = ("lora", "adapter")
#: Groups of writers.
_GROUPS = ("known", "new", "elsewhere")

#: AUC with a personal head; for a peer, which learns from the same rows, its own AUC.
_PERSONAL = "personal_auc"

_MEASURED = (
    "Means over writers with their [95% t interval], on documents that were not used in training. "
    "Known writers are in the training. New writers are not; they have the unknown writer's "
    "prompt, or, as a hard prompt, their own texts. As strangers: the known writers also with the "
    "unknown writer's prompt. With a personal head: the device's one fit on the writer's own "
    "rows, around the vendor's head; most rows of a known writer were already used in training. "
    "Differences are paired by writer, against no prompts on the same backbone, trained or fixed "
    "(no prompts on a fixed backbone: against no prompts on a trained one). The last difference "
    "is against no prompts with a personal head, which is FaLA on the vendor's new backbone."
)


@STUDY.table(
    "prompts",
    "Writers' prompts",
    "prompt",
    reads=("prompt-training",),
    caption=_MEASURED,
)
def prompts(records: pd.DataFrame) -> Table:
    """Compare writers' prompts with no prompts, and show a personal head on each."""
    runs = of(records, "prompt")
    trainings = of(records, "prompt-training")
    trials = {(key.method, key.variant) for part in prompt_keys(["prompt"], "", 0) for key in part}
    order = [(method, variant) for variant in VARIANTS for method in METHODS
             if (method, variant) in trials] + [(method, "") for method in _PEERS]  # fmt: skip
    rows: list[TableRow] = []
    for data, group, part in _groups(runs):
        without = (HARD if part["no_hard"].iloc[0] else ()) + (
            _PEERS if group == "elsewhere" else ()
        )
        rows += [
            {
                "data": data,
                "writers": _writers(part, method, variant, group),
                "prompts": _title(METHODS[method], VARIANTS[variant]),
                **_cells(part, method, variant, trainings),
            }
            for method, variant in order
            if method not in without
        ]
    return Table.of(rows, _described(runs), _notes(runs, trainings), measured=measured(runs))


@STUDY.table(
    "lengths",
    "Writers' prompts by their length",
    "prompt-length",
    reads=("prompt", "prompt-training"),
    caption=f"Number of vectors of a soft prompt, and of tokens of a hard prompt. {_MEASURED}",
)
def lengths_table(records: pd.DataFrame) -> Table:
    """Compare writers' prompts by their length."""
    runs = of(records, "prompt", "prompt-length")
    trainings = of(records, "prompt-training")
    trials = runs[(runs["variant"] == "") | (runs["kind"] == "prompt-length")]
    trials = trials[["method", "length", "variant"]].drop_duplicates()
    prompted = (*SOFT, *HARD)
    ordered = sorted(
        trials[trials["method"].isin(prompted)].itertuples(index=False, name=None),
        key=lambda trial: (prompted.index(trial[0]), trial[1]),
    )
    rows: list[TableRow] = [
        {
            "data": data,
            "writers": _writers(part, method, variant, group),
            "prompts": METHODS[method],
            "length": int(length),
            **_cells(part, method, variant, trainings),
        }
        for data, group, part in _groups(runs)
        for method, length, variant in ordered
        if not (method in HARD and part["no_hard"].iloc[0])
    ]
    return Table.of(rows, _described(runs), _notes(runs, trainings), measured=measured(runs))


def _title(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _cells(
    part: pd.DataFrame, method: str, variant: str, trainings: pd.DataFrame
) -> dict[str, Cell]:
    """Return a trial's cells.

    Args:
        part: The writers' runs of one data set and group.
        method: Method of the trial.
        variant: Variant of the trial.
        trainings: All trainings, including the trial's.
    """
    chosen = _of(part, method, variant)
    if chosen.empty:
        return {"numbers trained": NOT_RUN}
    fixed = variant == "fixed" and method != "none"
    # The method without prompts has no difference from itself.
    baseline = _of(part, "none", "fixed" if fixed else "")
    baseline = baseline.iloc[:0] if baseline.index.equals(chosen.index) else baseline
    of_trial = _of(trainings[trainings["data"] == chosen["data"].iloc[0]], method, variant)
    # The AUC with the unknown writer's prompt is shown if it differs from the writer's own.
    strangers = chosen[[
        isinstance(unknown, list) and unknown != logits
        for unknown, logits in zip(chosen["unknown_logits"], chosen["logits"], strict=True)
    ]]  # fmt: skip
    return {
        "numbers trained": None if of_trial.empty else int(of_trial["parameters.trained"].iloc[0]),
        "AUC": _mean(chosen, "scores.auc"),
        "against none": _difference(chosen, baseline, "scores.auc"),
        "pooled AUC": _pooled(chosen),
        "F1": plain_mean(chosen, "scores.f1"),
        "accuracy": plain_mean(chosen, "scores.accuracy"),
        "AUC as strangers": _mean(strangers, "unknown.auc"),
        "AUC with a personal head": None if method in _PEERS else _mean(chosen, _PERSONAL),
        "against none with one": _difference(chosen, baseline, _PERSONAL),
        "seconds": of_trial["seconds"].mean(),
    }


def _mean(runs: pd.DataFrame, figure: str) -> Cell:
    return interval_only(mean_over_users(runs, figure))


def _difference(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> Cell:
    values = paired_differences(first, second, figure)
    return interval_only(describe(values)) if values else None


def _pooled(runs: pd.DataFrame) -> float:
    """Return the AUC of all writers' rows together, averaged over seeds."""
    areas = []
    for _, part in parts(runs, "seed"):
        logits = np.concatenate([as_logits(logits) for logits in part["logits"]])
        areas.append(label_figures(logits, np.concatenate(part["truth"].tolist()))["auc"])
    defined = [area for area in areas if area is not None]
    return sum(defined) / len(defined) if defined else float("nan")


def _of(runs: pd.DataFrame, method: str, variant: str) -> pd.DataFrame:
    return runs[(runs["method"] == method) & (runs["variant"] == variant)]


def _groups(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield the writers' runs by data set and group, with ``_PERSONAL``."""
    auc = runs["scores.auc"]
    if "personal.auc" in runs:
        auc = runs["personal.auc"].where(runs["personal.auc"].notna(), auc)
    runs = runs.assign(**{_PERSONAL: auc})
    for data, of_data in parts(runs, "data"):
        for group in _GROUPS:
            part = of_data[of_data["group"] == group]
            if not part.empty:
                yield data, group, part


def _writers(part: pd.DataFrame, method: str, variant: str, group: str) -> str:
    """Return the number of a trial's writers, or of all writers if the trial was not run."""
    chosen = _of(part, method, variant)
    chosen = part if chosen.empty else chosen
    count = chosen["user"].nunique()
    return (
        f"{count} of {chosen['elsewhere'].iloc[0]}" if group == "elsewhere" else f"{count} {group}"
    )


def _described(runs: pd.DataFrame) -> str:
    first = runs.drop_duplicates("data").sort_values("data")
    words = [
        f"{run['data']} on {run['new']} ({run['extent']}; {run['tokens']:.0f} tokens of a text are "
        "read)"
        for run in first.to_dict("records")
    ]
    return f"Data: {', '.join(words)}; {seeds_of(runs)}."


def _notes(runs: pd.DataFrame, trainings: pd.DataFrame) -> list[str]:
    """Return notes that say why rows are missing, and which trainings learnt nothing."""
    without = runs[runs["no_hard"] != ""]
    notes = [f"{data}: {reason}." for data, reason in
             zip(without["data"], without["no_hard"], strict=True)]  # fmt: skip
    trainings = having(trainings, "history.task.best_step")
    notes += [
        f"{run['data']}, {_title(METHODS[run['method']], run['variant'])}, seed {run['seed']}: no "
        "epoch was better on the validation rows than the head that it began with."
        for run in trainings[trainings["history.task.best_step"] == 0].to_dict("records")
    ]
    return list(dict.fromkeys(notes))
