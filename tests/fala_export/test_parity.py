import numpy as np

from bundles import onnx_files
from fala.bundle.format import ONNX_MODEL
from fala_export.graph.parity import compare_embeddings, speed


def test_cosines_are_those_of_each_pair():
    exported, reference = np.array([[1, 0], [1, 1]]), np.array([[2, 0], [1, 0]])
    figures = compare_embeddings(exported.astype(np.float32), reference.astype(np.float32))
    assert figures == {"texts": 2, "mean_cosine": 0.85355, "worst_cosine": 0.70711}


def test_speed_is_a_ratio_of_the_same_passes():
    model = onnx_files()[ONNX_MODEL]
    tokens = np.ones((1, 8), dtype=np.int64)
    timing = speed(model, model, [{"input_ids": tokens, "attention_mask": tokens}] * 20)
    assert 0.2 < timing["ratio"] < 5
    assert timing["milliseconds"] > 0
