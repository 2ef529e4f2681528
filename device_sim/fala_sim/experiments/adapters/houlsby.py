"""What Houlsby et al. report of CoLA and MRPC, and what a reproduction does: ``houlsby.csv``.

N. Houlsby, A. Giurgiu, S. Jastrzebski, B. Morrone, Q. de Laroussilhe, A. Gesmundo, M. Attariyan and
S. Gelly, "Parameter-Efficient Transfer Learning for NLP", ICML 2019: BERT-large, on the test rows
that GLUE keeps for itself (``paper``). K. Whitenour and S. Schoch, UVA CS 6316, fall 2019:
BERT-base, accuracy on the development rows (``slides``). Scores are shares, in the
paper percent.
"""

from __future__ import annotations

from functools import lru_cache

from fala_sim.experiments.published import published

#: What the paper reports of each data set.
METRIC = {"cola": "matthews", "mrpc": "f1"}

#: The share of a model's parameters that the best of the paper's three sizes trains.
BEST_SHARE = 0.036

#: In words, for the captions of what the paper draws and does not print.
SIZES = (
    "The paper: mean validation accuracies of eight tasks 0.862, 0.858 and 0.857 at sizes 8, 64 "
    "and 256 (BERT-large); fewer top layers cost much, and norms alone more."
)
SPANS = (
    "The paper (BERT-base, MNLI and CoLA, validation rows): no single layer costs more than 2 "
    "points; all together cost 37 (MNLI) and 69 (CoLA), down to the majority's label; the lower "
    "layers (0 to 4 of MNLI) hardly matter."
)
SCALES = (
    "The paper (BERT-base, MNLI and CoLA): the same below a deviation of 0.01, and worse above, on "
    "CoLA most."
)


def reported(source: str, method: str, variant: str, data: str) -> float | None:
    """A score as a share; None where the source has none.

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
        for row in published(__package__, "houlsby.csv")
    }
