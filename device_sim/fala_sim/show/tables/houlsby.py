"""What Houlsby et al. report of CoLA and MRPC, and what a reproduction of theirs does.

N. Houlsby, A. Giurgiu, S. Jastrzebski, B. Morrone, Q. de Laroussilhe, A. Gesmundo, M. Attariyan and
S. Gelly, "Parameter-Efficient Transfer Learning for NLP", ICML 2019: BERT-large, on the test rows
that GLUE keeps for itself. K. Whitenour and S. Schoch, UVA CS 6316, fall 2019: BERT-base, accuracy
on the development rows. Scores are shares here, percent in the paper.
"""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """One method's figures.

    Attributes:
        share: Of a model's parameters that a task trains.
        figures: By data set.
    """

    share: float
    figures: dict[str, float]


#: What the paper reports of each data set.
METRIC = {"cola": "matthews", "mrpc": "f1"}

#: The paper's Table 1, by our methods and variants; its other row is of the best of three sizes.
PAPER = {
    ("full", ""): Reported(1.0, {"cola": 0.605, "mrpc": 0.893}),
    ("adapters", "64"): Reported(0.021, {"cola": 0.569, "mrpc": 0.896}),
}
BEST_SIZE = Reported(0.036, {"cola": 0.595, "mrpc": 0.895})

#: The reproduction's accuracies; 2,379,264 of 111,863,042 parameters were trained.
SLIDES = {
    ("full", ""): Reported(1.0, {"cola": 0.8274209, "mrpc": 0.8504902}),
    ("adapters", "64"): Reported(2_379_264 / 111_863_042, {"cola": 0.8178332, "mrpc": 0.85784316}),
}

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
