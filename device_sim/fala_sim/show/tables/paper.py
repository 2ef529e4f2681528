"""What the paper reports in its Tables 1 to 7.

Shuo Huang, Lizhen Qu, Xingliang Yuan and Chunyang Chen, "FaLA: Fast Linear Adaptation for Replacing
Backbone Models on Edge Devices".

Scores are shares here, percent there. Each deviation is over the paper's five users. By our tasks:
``"matching"`` is its news recommendation (NR, MIND), ``"classification"`` its hate speech
detection (HS, Wikipedia Detox).
"""

from __future__ import annotations

from typing import NamedTuple

from fala_sim.metric.value import Value

BACKBONES = ("BERT", "RoBERTa")
TASKS = {"matching": "NR (MIND)", "classification": "HS (Wikipedia Detox)"}

#: The metrics that the paper reports for each task.
METRICS = {"matching": ("auc",), "classification": ("accuracy", "f1")}

#: For captions of tables with the paper's scores.
DIFFERENCE = (
    "The paper's columns are of other data and backbones: our classification stands beside its "
    "hate speech (HS: Wikipedia Detox), our matching beside its news recommendation (NR: MIND), "
    "each with GloVe replaced by BERT-base or RoBERTa-base, five users, ± deviation over them."
)


def _users(percent: float, deviation: float) -> Value:
    return Value(percent / 100, deviation / 100, n=5)


#: Table 1: forward and backward FLOPs of one training batch of news recommendation.
TABLE_1 = {
    ("BERT", "full"): (1.3563e12, 2.7100e12),
    ("BERT", "adapter"): (1.3941e12, 1.4000e12),
    ("BERT", "lora"): (1.3613e12, 1.3500e12),
    ("BERT", "fala-paper"): (1.3563e12, 5.4500e9),
    ("RoBERTa", "full"): (2.7127e12, 5.4200e12),
    ("RoBERTa", "adapter"): (2.7882e12, 2.8000e12),
    ("RoBERTa", "lora"): (2.7226e12, 2.6900e12),
    ("RoBERTa", "fala-paper"): (2.7127e12, 1.0900e10),
}

_METHODS_2 = ("global", "full", "adapter", "lora", "top", "fala-paper")
_ROWS_2 = {
    ("matching", "BERT", "auc"): (
        (57.45, 3.05), (63.07, 10.25), (61.01, 13.11), (64.67, 11.27), (61.39, 12.83),
        (67.47, 13.65),
    ),
    ("matching", "RoBERTa", "auc"): (
        (60.11, 1.27), (60.50, 11.99), (57.81, 9.25), (60.98, 17.28), (63.38, 12.50), (65.64, 5.26),
    ),
    ("classification", "BERT", "accuracy"): (
        (43.97, 23.14), (87.02, 3.62), (66.57, 16.12), (86.61, 5.03), (64.85, 15.15), (85.98, 5.67),
    ),
    ("classification", "BERT", "f1"): (
        (25.70, 8.82), (44.00, 11.69), (18.20, 8.82), (41.55, 18.46), (22.94, 10.98), (50.94, 6.49),
    ),
    ("classification", "RoBERTa", "accuracy"): (
        (24.84, 27.26), (87.74, 4.81), (57.88, 31.48), (87.54, 4.30), (54.06, 33.30), (86.17, 6.83),
    ),
    ("classification", "RoBERTa", "f1"): (
        (17.97, 10.21), (40.83, 21.21), (16.88, 15.77), (39.21, 23.51), (10.40, 9.10),
        (48.42, 11.23),
    ),
}  # fmt: skip

#: Table 2, by task, backbone, metric and method.
TABLE_2 = {
    (*row, method): _users(*figures)
    for row, all_figures in _ROWS_2.items()
    for method, figures in zip(_METHODS_2, all_figures, strict=True)
}

#: Table 3, by task and metric: GloVe, global and personal.
TABLE_3 = {
    ("matching", "auc"): (_users(45.42, 8.11), _users(53.14, 7.29)),
    ("classification", "accuracy"): (_users(49.41, 33.52), _users(83.86, 6.90)),
    ("classification", "f1"): (_users(32.11, 22.46), _users(37.52, 20.21)),
}

_WAYS_4 = ("random", "full", "kmeans", "fala-k", "fala")
_ROWS_4 = {
    ("matching", "BERT", "auc"): (57.45, 67.48, 66.29, 69.16, 67.47),
    ("matching", "RoBERTa", "auc"): (60.11, 62.76, 59.66, 61.94, 65.64),
    ("classification", "BERT", "accuracy"): (82.71, 82.26, 84.35, 85.95, 85.98),
    ("classification", "BERT", "f1"): (42.43, 48.11, 41.30, 42.93, 50.18),
    ("classification", "RoBERTa", "accuracy"): (84.24, 79.14, 84.86, 85.94, 86.17),
    ("classification", "RoBERTa", "f1"): (46.25, 51.55, 43.42, 46.85, 48.42),
}

#: Table 4, by task, backbone, metric and way of initializing. As printed: FaLA's F1 with BERT is
#: 50.18 here and 50.94 in Tables 2 and 6.
TABLE_4 = {
    (*row, way): percent / 100
    for row, percents in _ROWS_4.items()
    for way, percent in zip(_WAYS_4, percents, strict=True)
}

_OBJECTIVES_5 = ("ce", "mse", "mse+ce")
_ROWS_5 = {
    ("matching", 0.0001): (62.37, 67.47, 65.16),
    ("matching", 0.001): (67.74, 65.34, 63.31),
    ("matching", 0.01): (67.26, 62.91, 64.35),
    ("matching", 0.1): (67.31, 69.05, 65.27),
    ("matching", 0.0): (68.28, 68.65, 64.61),
    ("classification", 0.0001): (84.14, 86.33, 83.58),
    ("classification", 0.001): (84.57, 83.54, 84.08),
    ("classification", 0.01): (85.59, 81.62, 81.34),
    ("classification", 0.1): (82.09, 85.41, 82.84),
    ("classification", 0.0): (84.60, 84.64, 84.90),
}

#: Table 5, by task, lambda and objective, with BERT. The paper does not name the metrics: by their
#: size and its text they are AUC for NR and accuracy for HS.
TABLE_5 = {
    (*row, objective): percent / 100
    for row, percents in _ROWS_5.items()
    for objective, percent in zip(_OBJECTIVES_5, percents, strict=True)
}
METRIC_5 = {"matching": "auc", "classification": "accuracy"}


class Table6(NamedTuple):
    """A row of Table 6: backbones fine-tuned without global training, and FaLA with it."""

    bert: Value
    roberta: Value
    bert_fala: Value
    roberta_fala: Value


#: Table 6, by task and metric.
TABLE_6 = {
    ("matching", "auc"): Table6(
        _users(55.86, 4.05), _users(52.44, 12.48), _users(67.47, 13.65), _users(65.64, 5.26)
    ),
    ("classification", "f1"): Table6(
        _users(40.93, 12.41), _users(42.51, 24.76), _users(50.94, 6.49), _users(48.42, 11.23)
    ),
}

#: Table 7, by task and backbone: the top k, and five users' clusters.
TABLE_7 = {
    ("matching", "BERT"): (10, (42, 100, 112, 429, 90)),
    ("matching", "RoBERTa"): (10, (42, 100, 68, 418, 104)),
    ("classification", "BERT"): (250, (15, 8, 24, 26, 8)),
    ("classification", "RoBERTa"): (250, (21, 12, 19, 20, 20)),
}
