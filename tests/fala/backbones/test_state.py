"""Inputs of a backbone besides texts: adapters and prompts."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from bundles import MAX_LENGTH, onnx_model, tokenizer_json
from fala.backbones import EncoderState, LazyBackbone, OnnxEncoder, WordVectors
from fala.backbones.state import Coded, provenance
from fala.errors import BundleFormatError
from optional_graphs import DOWN, KEY, UP, WIDTH, optional_model

TEXTS = ["good film", "", "the film was not good"]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def encoder():
    return OnnxEncoder(optional_model(), tokenizer_json(), max_length=MAX_LENGTH)


@pytest.fixture
def state():
    return EncoderState.of({DOWN: numbers(WIDTH, 3), UP: numbers(3, WIDTH, seed=1)})


def test_embeddings_with_a_state_equal_the_formula(encoder, state):
    plain = OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json(), max_length=MAX_LENGTH)
    plain_embeddings = plain.encode(TEXTS)
    np.testing.assert_array_equal(encoder.encode(TEXTS), plain_embeddings)
    expected = plain_embeddings + plain_embeddings @ state.inputs[DOWN] @ state.inputs[UP]
    np.testing.assert_allclose(encoder.encode(TEXTS, state), expected, rtol=1e-5)
    keys = EncoderState.of({KEY: np.full((1, 2, 5, 4), 0.5, np.float32)})
    np.testing.assert_allclose(encoder.encode(TEXTS, keys), plain_embeddings + 20, rtol=1e-5)
    both = encoder.encode(TEXTS, state.joined(keys))
    np.testing.assert_allclose(both, expected + 20, rtol=1e-5)


def test_optional_inputs_are_read_from_the_graph(encoder):
    expected = {DOWN: (WIDTH, None), UP: (None, WIDTH), KEY: (1, 2, None, 4)}
    assert encoder.optional_inputs == expected


def test_a_graph_without_keys_and_values_compiles_no_prompts(encoder):
    with pytest.raises(BundleFormatError, match="compiles no prompts"):
        encoder.compile_context(encoder.context(["good film"], 8))


def test_a_state_is_immutable(state):
    array = numbers(WIDTH, 2)
    stored = EncoderState.of({DOWN: array})
    copy, digest = stored.inputs[DOWN].copy(), stored.digest
    array[:] = 7
    np.testing.assert_array_equal(stored.inputs[DOWN], copy)
    assert EncoderState.of({DOWN: array}).digest != digest
    with pytest.raises(ValueError, match="read-only"):
        stored.inputs[DOWN][:] = 0
    with pytest.raises(TypeError):
        stored.inputs[UP] = array
    with pytest.raises(AttributeError):
        stored.digest = ""


def coded(seed):
    """An adapter's quantized weights and their steps, as a bundle has them."""
    draw = np.random.default_rng(seed)
    return {
        name: (draw.integers(-127, 128, shape, dtype=np.int8), numbers(shape[1], seed=seed))
        for name, shape in ((DOWN, (WIDTH, 3)), (UP, (3, WIDTH)))
    }


def test_quantized_weights_are_decoded_on_access(encoder):
    states, plain = [], []
    for seed in range(3):
        weights = coded(seed)
        states.append(EncoderState(Coded({}, weights), str(seed)))
        plain.append({name: code * step for name, (code, step) in weights.items()})
        for code, step in weights.values():  # a state does not change
            code[:] = 0
            step[:] = 0
    assert list(states[0].inputs) == [DOWN, UP] and len(states[0].inputs) == 2
    expected = [encoder.encode(TEXTS, EncoderState.of(inputs)) for inputs in plain]
    for turn in (0, 1, 1, 2, 0):  # the last state is cached
        np.testing.assert_array_equal(encoder.encode(TEXTS, states[turn]), expected[turn])
    states[0].inputs[DOWN][:] = 0
    np.testing.assert_array_equal(encoder.encode(TEXTS, states[0]), expected[0])


def test_non_finite_weights_are_rejected():
    code, step = coded(0)[DOWN]
    with pytest.raises(BundleFormatError, match="NaN or infinity"), np.errstate(over="ignore"):
        EncoderState(Coded({}, {DOWN: (code, np.full_like(step, 3e38))}), "")


def test_provenance_depends_on_backbone_adapter_and_prompt(state):
    keys = EncoderState.of({KEY: numbers(1, 2, 5, 4)})
    again = EncoderState.of(dict(reversed(state.inputs.items())))
    assert again.digest == state.digest
    assert provenance("backbone") == "backbone"
    names = {
        provenance("backbone"), provenance("other", state), provenance("backbone", state),
        provenance("backbone", keys), provenance("backbone", state.joined(keys)),
        provenance("backbone", keys.joined(state)),
    }  # fmt: skip
    assert len(names) == 6
    with pytest.raises(BundleFormatError, match="feed the same input"):
        state.joined(again)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({"input_ids": numbers(1, 2)}, "no input of an adapter or a prompt"),
        ({"adapter.0.output.down.scale": numbers(1)}, "no input of an adapter"),
        ({3: numbers(1)}, "no input of an adapter"),
        ({"\x1b[2Jx": numbers(1)}, "no input of an adapter"),
        ({DOWN: numbers(WIDTH, 2).astype(np.float64)}, "is of float64"),
        ({DOWN: [[1.0]]}, "is of list"),
        ({DOWN: numbers(WIDTH)}, r"has the shape \(\d+,\); it should have 2 axes"),
        ({DOWN: numbers(WIDTH, 257)}, "its axis 1 may be 256 long"),
        ({KEY: numbers(1, 2, 513, 4)}, "its axis 2 may be 512 long"),
        ({DOWN: np.full((WIDTH, 1), np.nan, np.float32)}, "NaN or infinity"),
        ({DOWN: np.full((WIDTH, 1), np.inf, np.float32)}, "NaN or infinity"),
    ],
    ids=["other", "part", "number", "terminal", "double", "list", "axes", "columns", "tokens",
         "nan", "infinity"],
)  # fmt: skip
def test_wrong_states_are_rejected(inputs, match):
    with pytest.raises(BundleFormatError, match=match) as caught:
        EncoderState.of(inputs)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        ({DOWN: numbers(WIDTH + 1, 2), UP: numbers(2, WIDTH)}, r"takes \(8, any\)"),
        ({DOWN: numbers(WIDTH, 2), UP: numbers(3, WIDTH)}, "have 2 and 3 columns"),
        ({DOWN: numbers(WIDTH, 2)}, "have 0 and 2 columns"),
        ({KEY: numbers(2, 2, 3, 4)}, r"takes \(1, 2, any, 4\)"),
        ({"past_key_values.0.value": numbers(1, 2, 3, 4)}, "it has others"),
    ],
    ids=["width", "uneven", "half", "texts", "absent"],
)
def test_states_for_another_graph_are_rejected(encoder, inputs, match):
    state = EncoderState.of(inputs)
    for ask in (lambda: encoder.check_state(state), lambda: encoder.encode(TEXTS, state)):
        with pytest.raises(BundleFormatError, match=match):
            ask()


def test_a_backbone_without_optional_inputs_rejects_states(state):
    plain = OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json(), max_length=MAX_LENGTH)
    assert plain.optional_inputs == {}
    lazy = LazyBackbone(lambda: plain, transformer=True)
    np.testing.assert_array_equal(lazy.encode(TEXTS), plain.encode(TEXTS))
    with pytest.raises(BundleFormatError, match="it has none"):
        lazy.encode(TEXTS, state)
    with pytest.raises(BundleFormatError, match="take no adapter"):
        WordVectors(["good"], np.ones((1, 2), np.float32)).encode(TEXTS, state)
