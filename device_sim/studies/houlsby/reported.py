"""Scores that Houlsby et al. and a reproduction report for CoLA and MRPC.

N. Houlsby, A. Giurgiu, S. Jastrzebski, B. Morrone, Q. de Laroussilhe, A. Gesmundo, M. Attariyan and
S. Gelly, "Parameter-Efficient Transfer Learning for NLP", ICML 2019: BERT-large, on GLUE's hidden
test rows (``paper``). K. Whitenour and S. Schoch, UVA CS 6316, fall 2019: BERT-base, accuracy on
the development rows (``slides``). Scores are shares; the paper has percentages.
"""

from __future__ import annotations

#: The paper's metric, by data set.
METRIC = {"cola": "matthews", "mrpc": "f1"}

#: Share of a model's parameters trained by the best of the paper's three sizes.
BEST_SHARE = 0.036

#: Scores as shares, by source, method, the adapters' size (``"best"`` for the best of the paper's
#: three), and data set.
SCORES = {
    ("paper", "full", "", "cola"): 0.605,
    ("paper", "full", "", "mrpc"): 0.893,
    ("paper", "adapters", "64", "cola"): 0.569,
    ("paper", "adapters", "64", "mrpc"): 0.896,
    ("paper", "adapters", "best", "cola"): 0.595,
    ("paper", "adapters", "best", "mrpc"): 0.895,
    ("slides", "full", "", "cola"): 0.8274209,
    ("slides", "full", "", "mrpc"): 0.8504902,
    ("slides", "adapters", "64", "cola"): 0.8178332,
    ("slides", "adapters", "64", "mrpc"): 0.85784316,
}
