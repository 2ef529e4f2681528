"""The paper's numbers in its Tables 1 to 7: ``paper.csv``, as printed.

Shuo Huang, Lizhen Qu, Xingliang Yuan and Chunyang Chen, "FaLA: Fast Linear Adaptation for Replacing
Backbone Models on Edge Devices".

Each deviation is over the paper's five users. In terms of our tasks, ``"matching"`` is its news
recommendation (NR, MIND), and ``"classification"`` is its hate speech detection (HS, Wikipedia
Detox). FaLA's F1 with BERT is 50.18 in Table 4 and 50.94 in Tables 2 and 6, as printed. Table 5 is
with BERT and does not name its metrics; according to their size and the text, they are AUC for NR
and accuracy for HS.
"""

from __future__ import annotations

from functools import lru_cache

from fala_sim.data.tables import csv_rows
from fala_sim.report.groups import METRICS
from fala_sim.report.table import PAPER, Cell
from fala_sim.report.value import UserMean

BACKBONES = ("BERT", "RoBERTa")

#: Text for captions of tables with the paper's scores.
DIFFERENCE = (
    "The paper's columns are for other data and backbones. Our classification is compared with "
    "its hate speech detection (HS: Wikipedia Detox), and our matching with its news "
    "recommendation (NR: MIND), each with GloVe replaced by BERT-base or RoBERTa-base, for five "
    "users, ± standard deviation over them."
)


def reported(
    table: str, task: str, backbone: str, metric: str, row: str = ""
) -> UserMean | float | int | None:
    """Return a number of the paper, or None if it has none.

    Args:
        table: Number of the table.
        task: ``"matching"`` or ``"classification"``.
        backbone: ``"BERT"``, ``"RoBERTa"``, or in Table 3 ``"GloVe"``.
        metric: A score, or another printed figure, such as ``"forward"`` or ``"clusters"``.
        row: A method or a variant, as in ``paper.csv``.
    """
    return _numbers().get((table, task, backbone, metric, row))


def paper_cells(table: str, task: str, row: str) -> dict[str, Cell]:
    """Return the paper's scores with both backbones, by column."""
    return {
        f"{PAPER} {title}, {backbone}": reported(table, task, backbone, metric, row)
        for metric, title in METRICS.items()
        for backbone in BACKBONES
    }


@lru_cache(maxsize=1)
def _numbers() -> dict[tuple[str, ...], UserMean | float | int]:
    return {
        (row["table"], row["task"], row["backbone"], row["metric"], row["row"]): _number(row)
        for row in csv_rows(__package__, "paper.csv")
    }


def _number(row: dict[str, str]) -> UserMean | float | int:
    if row["metric"] not in METRICS:
        return int(row["value"]) if row["value"].isdigit() else float(row["value"])
    share = float(row["value"]) / 100  # printed in percent
    return UserMean(share, float(row["deviation"]) / 100, n=5) if row["deviation"] else share
