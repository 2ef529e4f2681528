"""The paper's Tables 3 to 7: the old backbone, and the parts of its method one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from fala import DataError
from fala_sim.metric.statistics import compare, over_users, score
from fala_sim.records import Record
from fala_sim.show.tables import paper
from fala_sim.show.tables.records import (
    METRICS,
    Records,
    by_setting,
    described,
    mean,
    score_cells,
    without_empty,
)
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

_MEANS = "Scores: mean over users ± deviation [95 % t interval over users]."

#: Table 4's ways to initialize the matrix.
_WAYS = {
    "random": "Random",
    "full": "Full rank",
    "kmeans": "K-means",
    "fala-k": "FaLA, K examples",
    "fala": "FaLA",
}

_OBJECTIVES = {"ce": "CE", "mse": "MSE", "mse+ce": "MSE + CE"}

#: Table 6's models.
_MODELS = {
    "own-labels": "own labels, no global training",
    "fala": "FaLA (paper), with global training",
}

#: Users with a column of their own in Table 7, as in the paper.
_USERS = 5


def table_3(records: Records) -> Table:
    """Table 3: the old backbone, global and personal.

    Raises:
        DataError: If it was not run.
    """
    runs = _ablations(records, "table3")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        both = [_variant(own, f"table3-old-{which}") for which in ("global", "personal")]
        for metric, metric_title in METRICS.items():
            test = compare(both[1], both[0], score(metric))
            rows.append(
                (
                    setting.data,
                    setting.old,
                    metric_title,
                    *(mean(group, score(metric)) for group in both),
                    test.p if test else None,
                    test.smallest_p if test else None,
                    *(
                        paper.reported("3", setting.task, "GloVe", metric, which)
                        for which in ("global", "personal")
                    ),
                )
            )
    return Table(
        "table-3",
        "Table 3: the old backbone, global and personal",
        f"{described(runs)} {_MEANS} p: two-sided sign-flip test over users, beside the smallest "
        f"that so many users can give. {paper.DIFFERENCE}",
        ("data", "old backbone", "metric", "global", "personal", "p", "smallest p", "paper: global",
         "paper: personal"),
        rows,
    )  # fmt: skip


def table_4(records: Records) -> Table:
    """Table 4: ways to initialize the personal matrix.

    Raises:
        DataError: If it was not run.
    """
    runs = _ablations(records, "table4")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        for way, way_title in _WAYS.items():
            group = _variant(own, f"table4-{way}")
            rows.append(
                (
                    setting.data,
                    setting.new,
                    way_title,
                    *score_cells(group),
                    *(
                        paper.reported("4", setting.task, backbone, metric, way)
                        for metric in METRICS
                        for backbone in paper.BACKBONES
                    ),
                )
            )
    return without_empty(
        Table(
            "table-4",
            "Table 4: ways to initialize the personal matrix",
            f"{described(runs)} The paper's FaLA, initialized in five ways. {_MEANS} "
            f"{paper.DIFFERENCE}",
            ("data", "new", "initialization", *METRICS.values(), *_paper_columns()),
            rows,
        )
    )


def table_5(records: Records) -> Table:
    """Table 5: objective terms by lambda.

    Raises:
        DataError: If it was not run.
    """
    runs = _ablations(records, "table5")
    # Objective and lambda: "table5-mse+ce-0.0001"; lambda may be written with an exponent.
    parts = {variant: variant.split("-", 2)[1:] for variant in _variants(runs)}
    lambdas = sorted({float(text) for _, text in parts.values()} | {0.0001, 0.001, 0.01, 0.1, 0.0})
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        named = paper.METRIC_5[setting.task]
        for metric in dict.fromkeys(("auc", named)):
            for strength in lambdas:
                ours = [
                    [
                        record
                        for record in own
                        if parts[record["variant"]][0] == objective
                        and float(parts[record["variant"]][1]) == strength
                    ]
                    for objective in _OBJECTIVES
                ]
                rows.append(
                    (
                        setting.data,
                        setting.new,
                        METRICS[metric],
                        strength,
                        *(mean(group, score(metric)) for group in ours),
                        *(
                            paper.reported(
                                "5", setting.task, "BERT", metric, f"{objective} {strength}"
                            )
                            for objective in _OBJECTIVES
                        ),
                    )
                )
    return Table(
        "table-5",
        "Table 5: objective terms by lambda",
        f"{described(runs)} The paper's FaLA, with the squared error of old logits (MSE), the "
        f"cross-entropy of labels (CE) or both, and lambda as the weight of the penalty. {_MEANS} "
        "The paper's are with BERT; it does not name their metric, which by size is AUC for NR and "
        f"accuracy for HS. {paper.DIFFERENCE}",
        ("data", "new", "metric", "lambda", *_OBJECTIVES.values(),
         *(f"paper: {objective}" for objective in _OBJECTIVES.values())),
        rows,
    )  # fmt: skip


def table_6(records: Records) -> Table:
    """Table 6: models without global training, beside FaLA with it.

    Raises:
        DataError: If it was not run.
    """
    runs = _ablations(records, "table6")
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        rows += [
            (setting.data, setting.new, model, *score_cells(_variant(own, f"table6-{variant}")))
            for variant, model in _MODELS.items()
        ]
    for task, metric in paper.METRIC_6.items():
        for way, how in (
            ("own-labels", "fine-tuned, no global training"),
            ("fala", _MODELS["fala"]),
        ):
            for backbone in paper.BACKBONES:
                value = paper.reported("6", task, backbone, metric, way)
                cells = (value if name == metric else None for name in METRICS)
                rows.append((f"paper: {paper.TASKS[task]}", backbone, how, *cells))
    return Table(
        "table-6",
        "Table 6: no global training",
        f"{described(runs)} Ours without global training: a head fitted to each user's own "
        "labels alone, on the backbone as it comes; the paper fine-tunes the backbone, too. "
        f"{_MEANS} The paper's rows stand below ours: other data, other backbones, five users, "
        "± deviation over them.",
        ("data", "new", "model", *METRICS.values()),
        rows,
    )


def table_7(records: Records) -> Table:
    """Table 7: clusters by user and top k.

    Raises:
        DataError: If it was not run.
    """
    runs = _ablations(records, "table7")
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for setting, own in by_setting(runs):
        users = sorted({record["user"] for record in own})
        named = ", ".join(f"user {place} is {user}" for place, user in enumerate(users, 1))
        notes.append(f"{setting.data}: {named}.")
        for variant in sorted(_variants(own), key=_top_k):
            group = _variant(own, variant)
            clusters = over_users(group, lambda record: record.get("clusters")).values
            counts: list[Cell] = [clusters.get(user, NOT_RUN) for user in users[:_USERS]]
            rows.append(
                (
                    setting.data,
                    setting.new,
                    _top_k(variant),
                    *map(_whole, counts),
                    *([None] * (_USERS - len(counts))),
                    *score_cells(group, ("auc",)),
                )
            )
    for task, backbone in product(paper.TASKS, paper.BACKBONES):
        top_k = paper.reported("7", task, backbone, "top k")
        theirs = (
            paper.reported("7", task, backbone, "clusters", f"user {place + 1}")
            for place in range(_USERS)
        )
        rows.append((f"paper: {paper.TASKS[task]}", backbone, top_k, *theirs, None))
    return Table(
        "table-7",
        "Table 7: clusters by user and top k",
        f"{described(runs)} How many clusters correlation clustering finds among each user's "
        "examples where each has + edges to those of its label among its k nearest; and the AUC "
        "of the paper's FaLA on their representatives, mean over users ± deviation [95 % t "
        "interval over users]. The paper's rows, at the k that it found best, are of five other "
        "users.",
        ("data", "new", "top k", *(f"user {place + 1}" for place in range(_USERS)), "AUC"),
        rows,
        tuple(notes),
    )


def _ablations(records: Records, table: str) -> list[Record]:
    found = [record for record in records.need("ablation") if _table(record) == table]
    if not found:
        number = table.removeprefix("table")
        raise DataError(
            f"no records of {table} among the ablations; `fala-sim table {number} --run` makes them"
        )
    return found


def _table(record: Record) -> str:
    return str(record["variant"]).partition("-")[0]


def _variant(records: Sequence[Record], variant: str) -> list[Record]:
    return [record for record in records if record["variant"] == variant]


def _variants(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record["variant"] for record in records))


def _top_k(variant: str) -> int:
    return int(variant.partition("-")[2])


def _whole(cell: Cell) -> Cell:
    """A count as a whole number; a mean over seeds stays as it is."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _paper_columns() -> list[str]:
    return [
        f"paper: {metric}, {backbone}"
        for metric in METRICS.values()
        for backbone in paper.BACKBONES
    ]
