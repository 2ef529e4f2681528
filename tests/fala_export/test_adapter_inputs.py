"""Adapters as optional inputs of an exported graph."""

from itertools import pairwise

import numpy as np
import pytest

from adapter_inputs import constant, random_inputs
from bundles import onnx_model
from fala.backbones import AdapterWeights, OnnxEncoder
from fala_export.base.errors import ExportError
from fala_export.graph.adapter_inputs import add_adapter_inputs
from fala_export.graph.quantization.calibration import token_sequences
from fala_export.graph.quantization.weights import quantize
from fala_export.models.load import load
from fala_export.training.adapters.model import insert_adapters, set_inputs
from families import CORPUS, LENGTH, WIDE, write_model

pytestmark = pytest.mark.slow

TEXTS = [*CORPUS[:6], "", "one two three " * 20]


def encoder_of(model, tokenizer, **settings):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return OnnxEncoder(data, tokenizer, max_length=LENGTH, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("bert"), **WIDE)


@pytest.fixture(scope="module")
def encoder(folder):
    return load(str(folder), "own")


@pytest.fixture(scope="module")
def graphs(encoder):
    """Plain graphs by precision."""
    graph = encoder.graph()
    sequences = token_sequences(encoder.tokenizer, LENGTH)[::4]
    return {name: quantize(graph, name, sequences) for name in ("none", "fp16", "int8", "int4")}


@pytest.fixture(scope="module")
def models(graphs):
    return {name: add_adapter_inputs(model) for name, model in graphs.items()}


@pytest.fixture(scope="module")
def backbones(models, encoder):
    return {name: encoder_of(model, encoder.tokenizer) for name, model in models.items()}


@pytest.fixture(scope="module")
def backbone(backbones):
    return backbones["none"]


@pytest.mark.parametrize("precision", ["none", "fp16", "int8", "int4"])
def test_an_adapter_equals_an_export_with_constants(precision, graphs, models, backbones, encoder):
    backbone = backbones[precision]
    plain = encoder_of(graphs[precision], encoder.tokenizer)
    np.testing.assert_array_equal(backbone.encode(TEXTS), plain.encode(TEXTS))
    inputs = random_inputs(backbone.optional_inputs)
    apart = encoder_of(constant(models[precision], inputs), encoder.tokenizer)
    assert not apart.optional_inputs
    used = backbone.encode(TEXTS, AdapterWeights(inputs))
    if precision in ("none", "fp16"):
        np.testing.assert_allclose(used, apart.encode(TEXTS), atol=1e-6)
    else:
        np.testing.assert_array_equal(used, apart.encode(TEXTS))
    assert np.abs(used - plain.encode(TEXTS)).max() > 0.1


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_an_embedding_does_not_depend_on_its_batch(precision, backbones):
    backbone = backbones[precision]
    for adapter in (None, AdapterWeights(random_inputs(backbone.optional_inputs))):
        together = backbone.encode(TEXTS, adapter)
        alone = np.concatenate([backbone.encode([text], adapter) for text in TEXTS])
        np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_graph_computes_adapters_as_torch_does(folder, backbone):
    inputs = random_inputs(backbone.optional_inputs)
    encoder = load(str(folder), "own")
    set_inputs(insert_adapters(encoder.module.transformer, 5), inputs)
    used = backbone.encode(TEXTS, AdapterWeights(inputs))
    np.testing.assert_allclose(used, encoder.encode(TEXTS, LENGTH), atol=2e-5)


def test_one_session_switches_between_tasks_of_any_size(backbone):
    shapes = backbone.optional_inputs
    plain = backbone.encode(TEXTS)
    sizes = (0, 1, 2, 64, 256)
    adapters = [AdapterWeights(random_inputs(shapes, size, seed=size)) for size in sizes]
    first = [backbone.encode(TEXTS, adapter) for adapter in adapters]
    for number in (3, 0, 4, 1, 2, 0, 3):
        np.testing.assert_array_equal(backbone.encode(TEXTS, adapters[number]), first[number])
        np.testing.assert_array_equal(backbone.encode(TEXTS), plain)
    distances = [np.abs(a - b).max() for a, b in pairwise(first)]
    assert min(distances) > 0.1


def test_sites_may_differ_in_size_and_be_left_out(backbone):
    shapes = backbone.optional_inputs
    large, small = (random_inputs(shapes, size) for size in (7, 3))
    mixed = {name: (large if ".1." in name else small)[name] for name in shapes}
    used = backbone.encode(TEXTS, AdapterWeights(mixed))
    assert np.isfinite(used).all()
    span = {name: part for name, part in large.items() if name.startswith("adapter.1.output")}
    alone = backbone.encode(TEXTS, AdapterWeights(span))
    assert np.abs(alone - backbone.encode(TEXTS)).max() > 0.01
    # A bottleneck without columns has no effect.
    empty = {name: part for name, part in random_inputs(shapes, 0).items() if not part.size}
    np.testing.assert_array_equal(backbone.encode(TEXTS, AdapterWeights({**empty, **span})), alone)


def test_a_graph_without_sites_is_rejected():
    with pytest.raises(ExportError, match="no place for adapters"):
        add_adapter_inputs(onnx_model())
