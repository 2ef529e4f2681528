import numpy as np
import pytest

from bundles import make_head, onnx_files
from fala.bundle.format import ONNX_MODEL
from fala_export.graph.parity import compare, compare_logits, speed

TEXTS = [f"text {number}" for number in range(40)]


def embeddings(texts, noise=0.0, dimension=8):
    """Random embeddings by text, optionally with noise."""
    exact = np.random.default_rng(0).normal(size=(len(texts), dimension))
    off = np.random.default_rng(1).normal(size=exact.shape) * noise
    return dict(zip(texts, (exact + off).astype(np.float32), strict=True))


def test_cosines_are_those_of_each_pair():
    exported, reference = np.array([[1, 0], [1, 1]]), np.array([[2, 0], [1, 0]])
    figures = compare(exported.astype(np.float32), reference.astype(np.float32))
    assert figures == {"texts": 2, "mean_cosine": 0.85355, "worst_cosine": 0.70711}


@pytest.mark.parametrize("labels", [("0", "1"), ("a", "b", "c")])
def test_logits_and_labels_are_compared_through_the_head(labels):
    head = make_head(labels=labels)
    reference, exported = embeddings(TEXTS), embeddings(TEXTS, 0.3)
    figures = compare_logits(head, TEXTS, exported, reference)
    weight, bias = head.weight.astype(np.float64), head.bias.astype(np.float64)
    ours, theirs = (
        np.stack([part[text] for text in TEXTS]) @ weight.T + bias for part in (exported, reference)
    )
    if len(labels) == 2:
        flips = ((ours > 0) != (theirs > 0)).sum()
    else:
        flips = (ours.argmax(axis=1) != theirs.argmax(axis=1)).sum()
    assert flips > 0
    assert (figures["examples"], figures["label_flips"]) == (40, flips)
    assert figures["label_flip_share"] == pytest.approx(flips / 40)
    assert figures["mean_logit_error"] == pytest.approx(np.abs(ours - theirs).mean(), abs=1e-4)
    assert figures["worst_logit_error"] == pytest.approx(np.abs(ours - theirs).max(), abs=1e-4)
    assert figures["logit_deviation"] == pytest.approx(theirs.std(), abs=1e-4)


def test_speed_is_a_ratio_of_the_same_passes():
    model = onnx_files()[ONNX_MODEL]
    tokens = np.ones((1, 8), dtype=np.int64)
    timing = speed(model, model, [{"input_ids": tokens, "attention_mask": tokens}] * 20)
    assert 0.2 < timing["ratio"] < 5
    assert timing["milliseconds"] > 0
