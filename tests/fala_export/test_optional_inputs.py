"""Adapters and prompts as optional inputs of an exported graph."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from bundles import onnx_model
from export_command import works
from fala import Bundle, BundleFormatError
from fala.backbones import OnnxEncoder
from fala.backbones.state import EncoderState
from fala_export.errors import ExportError
from fala_export.families.adapters.model import insert, set_inputs
from fala_export.graph.optional.surgery import add_optional_inputs
from fala_export.graph.quantization.calibration import token_sequences
from fala_export.graph.quantization.weights import quantize
from fala_export.models.encoder import load_encoder
from fala_export.models.onnx_graph import encoder_graph
from families import CORPUS, LENGTH, write_model
from optional_inputs import constant, noted, prefixed, random_state

pytestmark = pytest.mark.slow

TEXTS = [*CORPUS[:6], "", "one two three " * 20]
OPTIONS = ["--adapters", "--prompts", "--hard-prompts"]
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def encoder_of(model, tokenizer, **settings):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return OnnxEncoder(data, tokenizer, max_length=LENGTH, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("bert"), **WIDE)


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(str(folder))


@pytest.fixture(scope="module")
def graphs(encoder):
    """Plain graphs by precision."""
    graph = encoder_graph(encoder.module)
    sequences = token_sequences(encoder.tokenizer, LENGTH)[::4]
    return {name: quantize(graph, name, sequences) for name in ("none", "fp16", "int8", "int4")}


@pytest.fixture(scope="module")
def models(graphs):
    return {
        name: add_optional_inputs(model, adapters=True, prompts=True, hard_prompts=True)
        for name, model in graphs.items()
    }


@pytest.fixture(scope="module")
def backbones(models, encoder):
    return {name: encoder_of(model, encoder.tokenizer) for name, model in models.items()}


@pytest.fixture(scope="module")
def backbone(backbones):
    return backbones["none"]


@pytest.mark.parametrize("precision", ["none", "fp16", "int8", "int4"])
def test_a_state_equals_an_export_with_constants(precision, graphs, backbones, encoder):
    backbone = backbones[precision]
    plain = encoder_of(graphs[precision], encoder.tokenizer)
    np.testing.assert_array_equal(backbone.encode(TEXTS), plain.encode(TEXTS))
    inputs = random_state(backbone.optional_inputs)
    model = add_optional_inputs(graphs[precision], adapters=True, prompts=True)
    apart = encoder_of(constant(model, inputs), encoder.tokenizer)
    assert not apart.optional_inputs
    used = backbone.encode(TEXTS, EncoderState.of(inputs))
    if precision in ("none", "fp16"):
        np.testing.assert_allclose(used, apart.encode(TEXTS), atol=1e-6)
    else:
        np.testing.assert_array_equal(used, apart.encode(TEXTS))
    assert np.abs(used - plain.encode(TEXTS)).max() > 0.1


def test_a_graph_computes_adapters_as_torch_does(folder, backbone):
    inputs = random_state(backbone.optional_inputs, kind="adapter.")
    encoder = load_encoder(str(folder))
    set_inputs(insert(encoder.module.transformer, 5), inputs)
    used = backbone.encode(TEXTS, EncoderState.of(inputs))
    np.testing.assert_allclose(used, encoder.encode(TEXTS, LENGTH), atol=2e-5)
    # A separate export differs only in the order of sums.
    apart = encoder_of(encoder_graph(encoder.module), encoder.tokenizer)
    np.testing.assert_allclose(used, apart.encode(TEXTS), atol=2e-6)


@pytest.mark.parametrize("family", ["distilbert", "albert"])
def test_prefixes_are_keys_and_values_in_front_of_a_texts_own(family, tmp_path):
    encoder = load_encoder(str(write_model(tmp_path / family, family)))
    model = add_optional_inputs(encoder_graph(encoder.module), adapters=False, prompts=True)
    backbone = encoder_of(model, encoder.tokenizer)
    inputs = random_state(backbone.optional_inputs, scale=1)
    used = backbone.encode(TEXTS, EncoderState.of(inputs))
    expected = []
    for text in TEXTS:  # one by one: torch and the patch process one batch
        with prefixed(inputs):
            expected.append(encoder.encode([text], LENGTH))
    np.testing.assert_allclose(used, np.concatenate(expected), atol=2e-5)
    assert np.abs(used - backbone.encode(TEXTS)).max() > 0.1


def test_prefixes_of_mpnet_have_no_distance(tmp_path):
    """Its attention adds a bias by distance only to the scores of a text's own tokens."""
    encoder = load_encoder(str(write_model(tmp_path / "mpnet", "mpnet")))
    model = add_optional_inputs(encoder_graph(encoder.module), adapters=False, prompts=True)
    backbone = encoder_of(model, encoder.tokenizer)
    inputs = random_state(backbone.optional_inputs, scale=1)

    def forward(self, hidden, attention_mask=None, head_mask=None, position_bias=None, *_, **__):
        shape = (*hidden.shape[:2], self.num_attention_heads, -1)
        q, k, v = (part(hidden).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        start = f"past_key_values.{self.number}."
        key, value = (torch.tensor(inputs[start + part]) for part in ("key", "value"))
        width = q.shape[-1] ** 0.5
        scores = q @ k.transpose(2, 3) / width + position_bias + attention_mask
        before = (q @ key.transpose(2, 3)) / width
        weights = torch.cat([before, scores], dim=3).softmax(dim=3)
        context = weights @ torch.cat([value.expand(len(v), -1, -1, -1), v], dim=2)
        return (self.o(context.transpose(1, 2).flatten(2)),)

    for number, layer in enumerate(encoder.module.transformer.encoder.layer):
        attention = layer.attention.attn
        attention.number = number
        attention.forward = forward.__get__(attention)
    used = backbone.encode(TEXTS, EncoderState.of(inputs))
    np.testing.assert_allclose(used, encoder.encode(TEXTS, LENGTH), atol=2e-5)


def test_one_session_switches_between_tasks_of_any_size(backbone):
    shapes = backbone.optional_inputs
    plain = backbone.encode(TEXTS)
    sizes = (0, 1, 2, 64, 256)
    states = [EncoderState.of(random_state(shapes, size, 2 * size, seed=size)) for size in sizes]
    first = [backbone.encode(TEXTS, state) for state in states]
    for number in (3, 0, 4, 1, 2, 0, 3):
        np.testing.assert_array_equal(backbone.encode(TEXTS, states[number]), first[number])
        np.testing.assert_array_equal(backbone.encode(TEXTS), plain)
    distances = [np.abs(a - b).max() for a, b in pairwise(first)]
    assert min(distances) > 0.1


def test_sites_may_differ_in_size_and_be_left_out(backbone):
    shapes = backbone.optional_inputs
    large, small = (random_state(shapes, size, size) for size in (7, 3))
    mixed = {name: (large if ".1." in name else small)[name] for name in shapes}
    used = backbone.encode(TEXTS, EncoderState.of(mixed))
    assert np.isfinite(used).all()
    span = {name: part for name, part in large.items() if name.startswith("adapter.1.output")}
    alone = backbone.encode(TEXTS, EncoderState.of(span))
    assert np.abs(alone - backbone.encode(TEXTS)).max() > 0.01
    # A bottleneck without columns has no effect.
    empty = random_state(shapes, 0, 0, kind="past")
    np.testing.assert_array_equal(backbone.encode(TEXTS, EncoderState.of({**empty, **span})), alone)


def compile_text(backbone, text):
    return backbone.compile_context(backbone.context([text], 512))


def test_a_hard_prompt_is_compiled_to_a_prefix(backbones, encoder):
    context = "The quick brown fox jumps over the lazy dog"
    compiled = compile_text(backbones["none"], context)
    with noted() as expected:
        encoder.encode([context], LENGTH)
    assert set(compiled.inputs) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(compiled.inputs[name], array, atol=1e-5)
    used = backbones["none"].encode(TEXTS[:1], compiled)
    with prefixed(expected):
        np.testing.assert_allclose(used, encoder.encode(TEXTS[:1], LENGTH), atol=2e-5)
    rounded = compile_text(backbones["int8"], context)
    assert rounded.digest == compiled.digest != compile_text(backbones["int8"], "Another").digest
    for name, array in expected.items():
        # The largest error differs by the family of the processor: up to .2.
        error = np.abs(rounded.inputs[name] - array)
        assert error.mean() < 0.02 and error.max() < 0.3


def test_a_state_for_another_backbone_is_refused(backbone, graphs, encoder):
    inputs = random_state(backbone.optional_inputs)
    plain = encoder_of(graphs["none"], encoder.tokenizer)
    with pytest.raises(BundleFormatError, match="no optional input adapter"):
        plain.encode(TEXTS, EncoderState.of(inputs))
    wide = {**inputs, "adapter.0.output.up.bias": np.zeros(65, np.float32)}
    with pytest.raises(BundleFormatError, match=r"shape \(65,\); the backbone takes \(64\)"):
        backbone.encode(TEXTS, EncoderState.of(wide))
    uneven = {**inputs, "adapter.0.output.down.bias": np.zeros(6, np.float32)}
    with pytest.raises(BundleFormatError, match=r"parts of adapter\.0\.output .* 5 and 6"):
        backbone.check_state(EncoderState.of(uneven))
    deep = {**inputs, "adapter.2.output.up.bias": np.zeros(64, np.float32)}
    with pytest.raises(BundleFormatError, match=r"has no optional input adapter\.2"):
        backbone.check_state(EncoderState.of(deep))


def test_the_command_adds_optional_inputs_to_graph_and_manifest(folder, tmp_path):
    out, texts = tmp_path / "x.fala", tmp_path / "texts.txt"
    texts.write_text("one two\n")
    files = (folder, "--parity-text", texts, "--out", out)
    works("backbone", *files, "--quantize", "none", "--max-length", 32, *OPTIONS)
    bundle = Bundle.open(out)
    details = bundle.manifest.details
    assert details["optional_inputs"] == ["adapters", "prompts", "hard-prompts"]
    assert details["parity"]["speed"]["milliseconds"] > 0
    backbone = bundle.backbone()
    state = EncoderState.of(random_state(backbone.optional_inputs))
    assert backbone.encode(TEXTS, state).shape == (len(TEXTS), 64)
    assert compile_text(backbone, "one two").inputs


def test_a_graph_without_sites_is_rejected():
    model = onnx_model()
    with pytest.raises(ExportError, match="no place for adapters"):
        add_optional_inputs(model, adapters=True, prompts=False)
    with pytest.raises(ExportError, match="no attention"):
        add_optional_inputs(model, adapters=False, prompts=True)
    assert add_optional_inputs(model, adapters=False, prompts=False) == model
    with pytest.raises(ExportError, match="need prompts"):
        add_optional_inputs(model, adapters=True, prompts=False, hard_prompts=True)
