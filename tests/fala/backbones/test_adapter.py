"""A task's adapter is a set of inputs of a backbone."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from bundles import MAX_LENGTH, onnx_model, tokenizer_json
from fala.backbones import AdapterWeights, LazyBackbone, OnnxEncoder
from fala.base.errors import BundleFormatError
from optional_graphs import DOWN, UP, WIDTH, optional_model

TEXTS = ["good film", "", "the film was not good"]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def encoder():
    return OnnxEncoder(optional_model(), tokenizer_json(), max_length=MAX_LENGTH)


@pytest.fixture
def adapter():
    return AdapterWeights({DOWN: numbers(WIDTH, 3), UP: numbers(3, WIDTH, seed=1)})


@pytest.fixture(scope="module")
def plain():
    return OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json(), max_length=MAX_LENGTH)


def test_embeddings_with_an_adapter_equal_the_formula(encoder, plain, adapter):
    plain_embeddings = plain.encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(TEXTS), plain_embeddings)
    expected = plain_embeddings + plain_embeddings @ adapter.inputs[DOWN] @ adapter.inputs[UP]
    np.testing.assert_allclose(encoder.encode(TEXTS, adapter), expected, rtol=1e-5)


def test_optional_inputs_are_read_from_the_graph(encoder):
    assert encoder.optional_inputs == {DOWN: (WIDTH, None), UP: (None, WIDTH)}


def coded(seed):
    """Return an adapter's quantized weights and their steps, as a bundle holds them."""
    draw = np.random.default_rng(seed)
    return {
        name: (draw.integers(-127, 128, shape, dtype=np.int8), numbers(shape[1], seed=seed))
        for name, shape in ((DOWN, (WIDTH, 3)), (UP, (3, WIDTH)))
    }


def test_quantized_weights_are_decoded_on_access(encoder):
    adapters, plain = [], []
    for seed in range(3):
        weights = coded(seed)
        adapters.append(AdapterWeights({}, weights))
        plain.append({name: code * step for name, (code, step) in weights.items()})
    assert list(adapters[0].inputs) == [DOWN, UP]
    expected = [encoder.encode(TEXTS, AdapterWeights(inputs)) for inputs in plain]
    for turn in (0, 1, 1, 2, 0):  # the last adapter is cached
        np.testing.assert_array_equal(encoder.encode(TEXTS, adapters[turn]), expected[turn])
    adapters[0].inputs[DOWN][:] = 0
    np.testing.assert_array_equal(encoder.encode(TEXTS, adapters[0]), expected[0])


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({DOWN: numbers(WIDTH + 1, 2), UP: numbers(2, WIDTH)}, r"takes \(8, any\)"),
        ({DOWN: numbers(WIDTH, 2), UP: numbers(3, WIDTH)}, "have 2 and 3 columns"),
        ({DOWN: numbers(WIDTH, 2)}, "have 0 and 2 columns"),
        ({DOWN: numbers(WIDTH)}, r"has the shape \(8,\); the backbone takes \(8, any\)"),
        ({"adapter.0.output.up.bias": numbers(WIDTH)}, "it has others"),
        ({"input_ids": numbers(1, 2)}, "no optional input input_ids"),
    ],
    ids=["width", "uneven", "half", "axes", "absent", "other"],
)
def test_adapters_for_another_graph_are_rejected(encoder, inputs, match):
    with pytest.raises(BundleFormatError, match=match):
        encoder.encode(TEXTS, AdapterWeights(inputs))


def test_a_backbone_without_optional_inputs_rejects_adapters(plain, adapter):
    assert plain.optional_inputs == {}
    lazy = LazyBackbone(lambda: plain)
    np.testing.assert_array_equal(lazy.encode(TEXTS), plain.encode(TEXTS))
    with pytest.raises(BundleFormatError, match="it has none"):
        plain.encode(TEXTS, adapter)
