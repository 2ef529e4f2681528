"""Scores that Houlsby et al. and a reproduction report for CoLA and MRPC: ``houlsby.csv``.

N. Houlsby, A. Giurgiu, S. Jastrzebski, B. Morrone, Q. de Laroussilhe, A. Gesmundo, M. Attariyan and
S. Gelly, "Parameter-Efficient Transfer Learning for NLP", ICML 2019: BERT-large, on GLUE's hidden
test rows (``paper``). K. Whitenour and S. Schoch, UVA CS 6316, fall 2019: BERT-base, accuracy on
the development rows (``slides``). Scores are shares; the paper has percent.
"""

from __future__ import annotations

from functools import lru_cache

from fala_sim.csv_rows import csv_rows

#: The paper's metric, by data set.
METRIC = {"cola": "matthews", "mrpc": "f1"}

#: Share of a model's parameters trained by the best of the paper's three sizes.
BEST_SHARE = 0.036


def reported(source: str, method: str, variant: str, data: str) -> float | None:
    """A score as a share; None if the source has none.

    Args:
        source: ``"paper"`` or ``"slides"``.
        method: ``"full"`` or ``"adapters"``.
        variant: The adapters' size, or ``"best"`` for the best of the paper's three.
        data: ``"cola"`` or ``"mrpc"``.
    """
    return _scores().get((source, method, variant, data))


@lru_cache(maxsize=1)
def _scores() -> dict[tuple[str, ...], float]:
    return {
        (row["source"], row["method"], row["variant"], row["data"]): float(row["score"])
        for row in csv_rows(__package__, "houlsby.csv")
    }
