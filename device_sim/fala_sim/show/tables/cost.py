"""What a replacement costs: one training batch, as the paper counts, and all that a device does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fala_sim.methods.registry import METHODS, SHIPPED
from fala_sim.metric.statistics import (
    Figure,
    memory_growth,
    total_cost,
    total_flops,
)
from fala_sim.records import Record
from fala_sim.show.tables import paper
from fala_sim.show.tables.records import (
    MB,
    Records,
    by_method,
    by_setting,
    comparable,
    described,
    made,
    plain_mean,
    replacements,
    title,
)
from fala_sim.show.tables.table import NOT_RUN, Cell, Table

#: Methods of the paper's Table 1 by their names in it and in records, with our titles.
_TABLE_1 = {
    "full": ("base", "full"),
    "adapter": ("adapter",),
    "lora": ("lora",),
    "fala-paper": ("fala", "fala-paper", "ours"),
}


def table_1(records: Records) -> Table:
    """Table 1: FLOPs of one training batch of BERT-base and RoBERTa-base, beside the paper's.

    Raises:
        DataError: If they were not counted.
    """
    counted = [row for record in records.need("flops") for row in record["rows"]]
    rows: list[tuple[Cell, ...]] = []
    batches: list[str] = []
    for backbone in paper.BACKBONES:
        own = [row for row in counted if row["backbone"].split("-")[0] == backbone]
        base = _find(own, "full")
        paper_base = _paper_1(backbone, "backward", "full")
        for method in _TABLE_1:
            row = _find(own, method)
            paper_backward = _paper_1(backbone, "backward", method)
            ours: list[Cell] = [NOT_RUN] * 3
            if row is not None:
                forward, backward = float(row["forward_flops"]), float(row["backward_flops"])
                cheaper = base["backward_flops"] / backward if base and backward else None
                ours = [forward, backward, cheaper]
                batch = row["batch"]
                batches.append(f"{batch['examples']} texts of {batch['tokens']} tokens")
            rows.append(
                (
                    f"{backbone}-base",
                    title(method),
                    *ours,
                    _paper_1(backbone, "forward", method),
                    paper_backward,
                    paper_base / paper_backward,
                )
            )
    return Table(
        "table-1",
        "Table 1: FLOPs of one training batch",
        f"Ours: counted by operator from the models' own shapes, {_listed(batches)}. The paper's: "
        "news recommendation, a batch of a size that it does not give, so ratios can be compared "
        "and totals cannot; its RoBERTa-base is twice its BERT-base, although the two do the same "
        "work on the same batch. Cheaper: how many times less the backward pass costs than with "
        "all parameters. FaLA's batch leaves out choosing, solving and all other passes: see the "
        "table of costs.",
        ("backbone", "method", "forward", "backward", "cheaper", "paper: forward",
         "paper: backward", "paper: cheaper"),
        rows,
    )  # fmt: skip


def costs(records: Records) -> Table:
    """What the paper counts and what a device pays, side by side, for every method and data set.

    Raises:
        DataError: If no replacement was run.
    """
    runs = comparable(replacements(records))
    rows: list[tuple[Cell, ...]] = []
    for setting, own in by_setting(runs):
        groups = dict(by_method(own, list(METHODS)))
        ours = groups[SHIPPED]
        rows += [
            (
                setting.data,
                title(name, group),
                plain_mean(group, _batch("backward_flops")),
                plain_mean(group, total_flops),
                _ratio(group, ours, total_flops),
                plain_mean(group, total_cost("forward_passes")),
                plain_mean(group, total_cost("backward_passes")),
                plain_mean(group, total_cost("seconds")),
                _ratio(group, ours, total_cost("seconds")),
                plain_mean(group, total_cost("cpu_seconds")),
                plain_mean(group, total_cost("peak_memory"), MB),
                plain_mean(group, memory_growth, MB),
                _ratio(group, ours, memory_growth),
                plain_mean(group, _stored, 1000),
            )
            for name, group in groups.items()
        ]
    return Table(
        "cost",
        "What the paper counts, and what a device pays",
        f"{described(runs)} What the paper counts: FLOPs of one training batch's backward pass. "
        "All other columns: one user's whole replacement (selection, forward passes, solution, "
        "training), a mean over users; × FaLA: how many times that of FaLA as shipped. "
        "Choosing and solving inside FaLA as shipped are counted by their shapes. Passes: texts "
        "through the new backbone, forward and back. Peak memory is the whole process's, its "
        "growth the part above the start. "
        f"Stored: what the device keeps for this user, beside the vendor's release. {made(runs)}",
        ("data", "method", "one batch's backward FLOPs (as the paper counts)",
         "whole replacement: FLOPs", "FLOPs × FaLA", "forward passes", "backward passes",
         "seconds", "seconds × FaLA", "CPU seconds", "peak memory (MB)", "memory growth (MB)",
         "growth × FaLA", "stored (kB)"),
        rows,
    )  # fmt: skip


def _paper_1(backbone: str, metric: str, method: str) -> float:
    flops = paper.reported("1", "matching", backbone, metric, method)
    if not isinstance(flops, float):
        raise TypeError(f"paper.csv: no FLOPs of {method} with {backbone}")
    return flops


def _find(rows: Sequence[Mapping[str, object]], method: str) -> Record | None:
    names = _TABLE_1[method]
    return next((dict(row) for row in rows if str(row["method"]).lower() in names), None)


def _listed(batches: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(batches)) or NOT_RUN


def _batch(name: str) -> Figure:
    return lambda record: ((record.get("cost") or {}).get("batch") or {}).get(name)


def _stored(record: Record) -> float | None:
    return (record.get("cost") or {}).get("stored_bytes")


def _ratio(group: Sequence[Record], ours: Sequence[Record], figure: Figure) -> Cell:
    """The ratio of the means; None without both or where FaLA's is zero."""
    cell, base = plain_mean(group, figure), plain_mean(ours, figure)
    if isinstance(cell, float) and isinstance(base, float) and base > 0:
        return cell / base
    return None
