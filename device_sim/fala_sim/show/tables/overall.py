"""All methods on all data sets: the paper's Table 2, tests of it, and the headline."""

from __future__ import annotations

from dataclasses import replace

from fala_sim.methods.registry import BASELINES, HEADLINE, METHODS, SHIPPED, TRAINED
from fala_sim.metric.statistics import (
    Comparison,
    compare,
    flip_rate,
    holm,
    memory_growth,
    over_users,
    score,
    total_cost,
    total_flops,
)
from fala_sim.metric.value import Value
from fala_sim.records import Record
from fala_sim.show.tables import paper
from fala_sim.show.tables.blends import (
    WORDS,
    Blends,
    best_blends,
    blend_cell,
    own_f1,
    with_decisions,
)
from fala_sim.show.tables.records import (
    BEST,
    DECIDED,
    MB,
    Records,
    by_method,
    by_setting,
    comparable,
    described,
    made,
    mean,
    plain_mean,
    replacements,
    score_cells,
    title,
    without_empty,
)
from fala_sim.show.tables.table import Cell, Table

_MEANS = "Scores: mean over users ± deviation [95 % t interval over users]."


def table_2(records: Records) -> Table:
    """Table 2: every method on every data set, with the paper's scores.

    Raises:
        DataError: If no replacement was run.
    """
    blends = Blends(records)
    runs = with_decisions(blends.decided(blends.of(replacements(records))))
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for setting, own in by_setting(runs):
        methods = dict(by_method(own, list(METHODS)))
        best = _best_baseline(own)
        tests = _tests({name: own for name, own in methods.items() if DECIDED not in name}, best)
        corrected = holm({name: test.p for name, test in tests.items()})
        for name, group in methods.items():
            p: Cell = tests[name].p if name in tests else None
            if name == best:
                p = "best baseline"
            rows.append(
                (
                    setting.data,
                    setting.new,
                    title(name, group),
                    len({record["seed"] for record in group}) or None,
                    *score_cells(group),
                    mean(group, own_f1) if group else None,
                    blend_cell(group),
                    p,
                    corrected.get(name),
                    plain_mean(group, flip_rate("old")),
                    plain_mean(group, flip_rate("vendor")),
                    plain_mean(group, total_cost("forward_passes")),
                    *_paper_2(setting.task, name),
                )
            )
        if tests:
            notes.append(_note(setting.data, title(best, methods[best]), tests))
    return without_empty(Table(
        "table-2",
        "Table 2: all methods",
        f"{described(runs)} {_MEANS} {WORDS} Own threshold: labels are decided where the best F1 "
        "is expected, by the device from labels left out of its fit, by all other methods from "
        "their probabilities of the test examples themselves, without labels; elsewhere at the "
        "logit 0. p: two-sided "
        "sign-flip test of the AUC against the best baseline (of the highest mean AUC on these "
        "very users) over the same users and seeds, and with Holm's correction over all methods of "
        "the data set. Negative flips: share of test examples that were right before and are wrong "
        "after, against the old personal model and against the vendor's new one. "
        f"{paper.DIFFERENCE}",
        (
            "data", "new", "method", "seeds", "AUC", "F1", "accuracy", "F1, own threshold",
            "blended", "p", "p (Holm)",
            "negative flips, old", "negative flips, vendor", "forward passes",
            *(f"paper: {what}, {backbone}" for what in ("AUC", "F1", "accuracy")
              for backbone in paper.BACKBONES),
        ),
        rows,
        tuple(notes),
    ))  # fmt: skip


def comparisons(records: Records) -> Table:
    """FaLA as shipped against every other method, plain and best blended.

    On each data set and on all together.

    Raises:
        DataError: If no replacement was run.
    """
    runs = best_blends(Blends(records).of(replacements(records)))
    rows: list[tuple[Cell, ...]] = []
    parts = [(setting.data, setting.new, own) for setting, own in by_setting(runs)]
    for new in sorted({record["new"] for record in runs}):
        own = [record for record in runs if record["new"] == new]
        if len({record["data"] for record in own}) > 1:
            parts.append(("all", new, own))
    for data, new, own in parts:
        methods = dict(by_method(own))
        ours = methods.pop(SHIPPED, [])
        found = {name: compare(ours, group, score("auc")) for name, group in methods.items()}
        tests = {name: test for name, test in found.items() if test is not None}
        corrected = holm({name: test.p for name, test in tests.items()})
        rows += [
            (data, new, title(name, methods[name]), test.difference, test.above, test.difference.n,
             test.p, corrected[name], test.smallest_p)
            for name, test in tests.items()
        ]  # fmt: skip
    return Table(
        "comparisons",
        "FaLA as shipped against each other method",
        f"{described(runs)} Best blend: of those with words, with the old model, or with both, the "
        f"one with the highest mean AUC on these very users of a data set. {WORDS} Difference in "
        "AUC, FaLA's less the other's: mean over users ± deviation [95 % t interval over users], "
        "over the users and seeds that both have; for how many users FaLA is higher; p of a "
        "two-sided sign-flip test, with Holm's correction over the data set's rows, and the "
        "smallest p that so many users can give.",
        ("data", "new", "against", "difference in AUC", "users above", "users", "p", "p (Holm)",
         "smallest p"),
        rows,
        () if rows else ("No user has an AUC both of FaLA as shipped and of another method.",),
    )  # fmt: skip


def headline(records: Records) -> Table:
    """What a README shows: quality and cost of the methods that matter most.

    Raises:
        DataError: If no replacement was run.
    """
    blends = Blends(records)
    plain = comparable([one for one in replacements(records) if one["method"] in HEADLINE])
    trained = [record for record in plain if record["method"] in TRAINED]
    blended = [one for one in best_blends(blends.of(trained)) if one["method"].endswith(BEST)]
    runs = blends.decided([*plain, *blended])
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for name, group in by_method(own, HEADLINE):
            rows.append(
                (
                    setting.data,
                    title(name, group),
                    *(_interval_only(cell) for cell in score_cells(group, ("auc", "f1"))),
                    _interval_only(mean(group, own_f1) if group else None),
                    plain_mean(group, total_cost("forward_passes")),
                    plain_mean(group, total_flops),
                    plain_mean(group, total_cost("seconds")),
                    plain_mean(group, memory_growth, MB),
                )
            )
    return Table(
        "headline",
        "What a replacement keeps, and what it costs",
        f"{described(runs)} AUC and F1: mean over users [95 % t interval over users], F1 "
        "at the logit 0 and at an own threshold, found without the test examples' labels. Best "
        "blend: with words alone, with the old personal model, or with both, by weights that are "
        "the best in hindsight on these very users where no validation users chose them. "
        "Cost: mean over users of one whole replacement, with whatever chooses, encodes, solves "
        f"and trains. {made(runs)}",
        ("data", "method", "AUC", "F1", "F1, own threshold", "forward passes", "FLOPs", "seconds",
         "memory growth (MB)"),
        rows,
    )  # fmt: skip


def _best_baseline(records: list[Record]) -> str:
    """The baseline of the highest mean AUC, of those that were run for the most users."""
    baselines = [record for record in records if _is_baseline(record["method"])]
    best, highest = "", (0, 0.0)
    for name, group in by_method(comparable(baselines)):
        value = over_users(group, score("auc")).value()
        if value is not None and (value.n, value.mean) > highest:
            best, highest = name, (value.n, value.mean)
    return best


def _is_baseline(method: str) -> bool:
    """Whether a method, or the one that a blend is of, is a baseline; one elsewhere's is."""
    plain = method.partition("+")[0]
    return plain in BASELINES or plain not in METHODS


def _tests(methods: dict[str, list[Record]], best: str) -> dict[str, Comparison]:
    tests = {
        name: compare(group, methods[best], score("auc"))
        for name, group in methods.items()
        if best and name != best
    }
    return {name: test for name, test in tests.items() if test is not None}


def _note(data: str, best: str, tests: dict[str, Comparison]) -> str:
    users = min(test.difference.n for test in tests.values())
    smallest = max(test.smallest_p for test in tests.values())
    word = "user" if users == 1 else "users"
    return (
        f"{data}: against {best}. With {users} {word} the smallest p possible is {smallest:.4g}, "
        f"before Holm's correction over {len(tests)} methods."
    )


def _paper_2(task: str, method: str) -> list[Cell]:
    return [
        paper.reported("2", task, backbone, metric, method)
        for metric in ("auc", "f1", "accuracy")
        for backbone in paper.BACKBONES
    ]


def _interval_only(cell: Cell) -> Cell:
    return replace(cell, deviation=None) if isinstance(cell, Value) else cell
