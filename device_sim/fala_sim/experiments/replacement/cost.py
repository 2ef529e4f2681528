"""The cost of a replacement: one training batch, as the paper counts it, and the whole work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fala_sim.experiments import paper
from fala_sim.experiments.plan import Family, Plan, run_of
from fala_sim.experiments.registry import table
from fala_sim.methods.registry import SHIPPED
from fala_sim.records.frame import exploded
from fala_sim.report.groups import (
    MB,
    by_method,
    by_setting,
    comparable,
    described,
    measured,
    of,
    of_tasks,
    plain_mean,
    title,
)
from fala_sim.report.table import NOT_RUN, PAPER, Cell, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd

#: Methods of the paper's Table 1.
_TABLE_1 = ("full", "adapter", "lora", "fala-paper")
_BATCH = ("forward", "backward", "cheaper")

#: The experiment of Table 1, which needs no data.
FLOPS = Family(("flops",), Plan, run_of("fala_sim.experiments.replacement.jobs"))


@table(
    "1",
    "Table 1: FLOPs of one training batch",
    "flops",
    family=FLOPS,
    caption=(
        "The paper's columns are for news recommendation, with a batch of a size that it does not "
        "give, so ratios can be compared and totals cannot. Its RoBERTa-base costs twice its "
        "BERT-base, although the two do the same work on the same batch. Cheaper: how many times "
        "less the backward pass costs than with all parameters. FaLA's batch leaves out choosing, "
        "solving and all other passes, which the table of costs includes."
    ),
)
def table_1(records: pd.DataFrame) -> Table:
    """Count the FLOPs of one training batch of each backbone, as the paper does."""
    counted = exploded(of(records, "flops"), "rows").to_dict("records")
    batches = {
        f"{run['rows.batch.examples']} texts of {run['rows.batch.tokens']} tokens": None
        for run in counted
    }
    flops = {
        (run["rows.backbone"], run["rows.method"], way): float(run[f"rows.{way}_flops"])
        for run in counted
        for way in ("forward", "backward")
    }
    rows: list[TableRow] = []
    for backbone in paper.BACKBONES:
        name = f"{backbone}-base"
        theirs = {
            (name, method, way): value
            for method in _TABLE_1
            for way in ("forward", "backward")
            if isinstance(value := paper.reported("1", "matching", backbone, way, method), float)
        }
        for method in _TABLE_1:
            ours = _batch(flops, name, method) or dict.fromkeys(_BATCH, NOT_RUN)
            reported = {f"{PAPER} {column}": cell for column, cell in
                        _batch(theirs, name, method).items()}  # fmt: skip
            rows.append({"backbone": name, "method": title(method), **ours, **reported})
    sizes = " or ".join(batches)
    data = f"Ours: counted by operator from the models' own shapes, {sizes}."
    return Table.of(rows, data)


@table(
    "cost",
    "What the paper counts, and what a device pays",
    "replacement",
    caption=(
        "What the paper counts: FLOPs of one training batch's backward pass. All other columns "
        "are for one user's whole replacement (selection, forward passes, solution, training), as "
        "means over users; × FaLA: how many times the cost of FaLA as shipped. Choosing and "
        "solving inside FaLA as shipped are counted by their shapes. Passes: the number of texts "
        "through the new backbone, forward and backward. Peak memory is the whole process's, and "
        "its growth is the part above the start. Stored: the bytes that the device keeps for this "
        "user, beside the vendor's release."
    ),
)
def costs(records: pd.DataFrame) -> Table:
    """Compare what a device pays for a whole replacement with what the paper counts."""
    runs = comparable(of_tasks(records, "replacement"))
    rows: list[TableRow] = []
    for setting, part in by_setting(runs):
        groups = dict(by_method(part))
        ours = groups.get(SHIPPED, part.iloc[:0])
        rows += [
            {
                "data": setting.data,
                "method": title(name, group),
                "one batch's backward FLOPs (as the paper counts)": plain_mean(
                    group, "cost.batch.backward_flops"
                ),
                "whole replacement: FLOPs": plain_mean(group, "cost.total.flops"),
                "FLOPs × FaLA": _ratio(group, ours, "cost.total.flops"),
                "forward passes": plain_mean(group, "cost.total.forward_passes"),
                "backward passes": plain_mean(group, "cost.total.backward_passes"),
                "seconds": plain_mean(group, "cost.total.seconds"),
                "seconds × FaLA": _ratio(group, ours, "cost.total.seconds"),
                "CPU seconds": plain_mean(group, "cost.total.cpu_seconds"),
                "peak memory (MB)": plain_mean(group, "cost.total.peak_memory", MB),
                "memory growth (MB)": plain_mean(group, "cost.memory_growth", MB),
                "growth × FaLA": _ratio(group, ours, "cost.memory_growth"),
                "stored (kB)": plain_mean(group, "cost.stored_bytes", 1000),
            }
            for name, group in groups.items()
        ]
    return Table.of(rows, described(runs), measured=measured(runs))


def _batch(
    flops: Mapping[tuple[str, str, str], float], backbone: str, method: str
) -> dict[str, Cell]:
    """Return a batch's FLOPs, and how many times cheaper its backward pass is, if counted."""
    backward = flops.get((backbone, method, "backward"))
    if backward is None:
        return {}
    full = flops.get((backbone, "full", "backward"))
    cells = flops[backbone, method, "forward"], backward, full / backward if full else None
    return dict(zip(_BATCH, cells, strict=True))


def _ratio(group: pd.DataFrame, ours: pd.DataFrame, figure: str) -> Cell:
    """Return the ratio of the means, or None if one is missing or FaLA's is zero."""
    cell, base = plain_mean(group, figure), plain_mean(ours, figure)
    if isinstance(cell, float) and isinstance(base, float) and base > 0:
        return cell / base
    return None
