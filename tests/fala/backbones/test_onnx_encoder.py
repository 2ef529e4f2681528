"""An ONNX encoder runs its graph on texts of any length, in any batch, on any number of threads."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from bundles import DIMENSION, MAX_LENGTH, WORDS, onnx_model, tokenizer_json
from fala.backbones import OnnxEncoder
from fala.backbones.onnx_encoder import RUN_TOKENS
from fala.base.errors import BundleFormatError
from optional_graphs import DOWN, optional_model

TEXTS = ["I love this film!", "", "awful . " * 40, "zzz", "a", "the film was not good , was it"]


MODEL, TOKENIZER = onnx_model().SerializeToString(), tokenizer_json()


def encoder_of(model=MODEL, tokenizer=TOKENIZER, max_length=MAX_LENGTH):
    return OnnxEncoder(model, tokenizer, max_length=max_length)


@pytest.fixture(scope="module")
def encoder():
    return encoder_of()


def test_long_texts_are_cut(encoder):
    cut = " ".join(["good"] * (MAX_LENGTH - 2))
    np.testing.assert_array_equal(encoder.encode([cut + " bad" * 9]), encoder.encode([cut]))
    whole = encoder_of(max_length=None)
    assert not np.allclose(whole.encode([cut + " bad" * 9]), encoder.encode([cut]))


def test_runs_hold_texts_of_similar_length(encoder, monkeypatch):
    shapes = []
    run = encoder._run
    monkeypatch.setattr(
        encoder, "_run", lambda ids, *rest: shapes.append([len(r) for r in ids]) or run(ids, *rest)
    )
    lengths = [number % 10 + 2 for number in range(100)]  # with the two special tokens
    encoder.encode([" ".join(["good"] * (length - 2)) for length in lengths])
    padded = sum(len(batch) * max(batch) for batch in shapes)
    assert padded <= 1.25 * sum(lengths)
    assert all(len(batch) * max(batch) <= RUN_TOKENS for batch in shapes)
    assert sorted(length for batch in shapes for length in batch) == sorted(lengths)


def test_embeddings_keep_the_order_of_texts_on_all_threads(encoder, monkeypatch):
    texts = [
        f"{word} " * (length % 7) + " ".join(WORDS[:length])
        for word in WORDS
        for length in range(17)
    ]
    texts = list(dict.fromkeys(text.strip() for text in texts))
    assert len(texts) > 100
    monkeypatch.setattr(encoder, "_threads", 1)
    alone = encoder.encode(texts)
    monkeypatch.setattr(encoder, "_threads", 4)
    np.testing.assert_array_equal(encoder.encode(texts), alone)
    np.testing.assert_array_equal(encoder.encode(texts[::-1])[::-1], alone)


def test_threads_are_limited_to_the_allowed_cores():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        encoder = encoder_of()
    finally:
        os.sched_setaffinity(0, allowed)
    assert encoder._threads == 1
    if (os.cpu_count() or 1) > 1:
        assert encoder._session.get_session_options().intra_op_num_threads == 1


def test_empty_texts_without_special_tokens_are_encoded():
    tokenizer = json.loads(tokenizer_json())
    tokenizer["post_processor"] = None
    encoder = encoder_of(tokenizer=json.dumps(tokenizer).encode())
    embeddings = encoder.encode(["", "good", ""])
    assert np.isfinite(embeddings).all()
    assert np.array_equal(embeddings[0], embeddings[2])


def test_the_tokenizers_padding_and_truncation_are_ignored(encoder):
    tokenizer = json.loads(tokenizer_json())
    tokenizer["truncation"] = {
        "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    tokenizer["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    padded = encoder_of(tokenizer=json.dumps(tokenizer).encode())
    np.testing.assert_array_equal(padded.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_max_length_without_room_for_tokens_is_rejected(max_length):
    with pytest.raises(BundleFormatError, match="no room beside 2 special"):
        encoder_of(max_length=max_length)


def changed(change):
    model = onnx_model()
    change(model.graph)
    return model.SerializeToString()


def extra_input(graph):
    graph.input.add().CopyFrom(graph.input[0])
    graph.input[-1].name = "position_ids"


def another_output(graph):
    graph.output.add().CopyFrom(graph.output[0])
    graph.output[-1].name = "mean"


def float_ids(graph):
    graph.input[1].type.tensor_type.elem_type = 1


def renamed_input(graph):
    graph.input[0].name = "ids"
    graph.node[0].input[1] = "ids"


@pytest.mark.parametrize("change", [extra_input, another_output, float_ids, renamed_input])
def test_other_inputs_and_outputs_are_rejected(change):
    with pytest.raises(BundleFormatError, match="the graph takes"):
        encoder_of(changed(change))


def model_with_output(name, shape):
    """Make the model with another of its values as its output, declared with a shape."""
    model = onnx_model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("name", "shape"), [("mask", ["n", "tokens_"]), ("kept", ["n", "tokens_", DIMENSION])]
)
def test_a_graph_without_a_fixed_dimension_is_rejected(name, shape):
    with pytest.raises(BundleFormatError, match="output has shape"):
        encoder_of(model_with_output(name, shape))


def test_wrong_output_shapes_are_rejected():
    encoder = encoder_of(model_with_output("mask", ["n", DIMENSION]))
    with pytest.raises(BundleFormatError, match=r"shape \(1, 3\) for 1 text;"):
        encoder.encode(["good"])


def test_a_failing_model_raises_a_bundle_error():
    # The tokenizer has more tokens than the model.
    encoder = encoder_of(tokenizer=tokenizer_json((*WORDS, "beyond", "further")))
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.encode(["good", "further"])


def test_nan_outputs_are_rejected():
    def logarithm(graph):
        graph.node[-1].op_type = "Log"

    encoder = encoder_of(changed(logarithm))
    with pytest.raises(BundleFormatError, match="NaN, infinity, or a number above 65504"):
        encoder.encode(["good"])


# A trial of a release, with token ids that no text has, and with shapes of optional inputs


def test_ids_of_the_vocabulary_are_run(encoder):
    assert encoder.vocabulary == list(range(len(WORDS) + 3))
    assert encoder.tokenize(["a good film"]) == [[2, 5, 11, 8, 3]]
    encoder.try_ids([encoder.vocabulary])
    encoder.try_ids([[0], [29]])
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.try_ids([[30]])


def test_optional_inputs_are_run_at_their_largest():
    """The memory of this graph grows with an adapter's columns only."""
    nodes = [
        helper.make_node("Shape", [DOWN], ["shape"], start=1),
        helper.make_node("Concat", ["shape"] * 8, ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["extra"], keepdims=0),
    ]
    encoder = encoder_of(optional_model(nodes))
    encoder.try_ids([[1, 2, 3]])
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.try_ids([[1, 2, 3]], optional=True)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (DOWN, {"shape": [8, 4]}),
        (DOWN, {"shape": ["a", "b"]}),
        (DOWN, {"shape": [8]}),
        (DOWN, {"shape": [1 << 40, "m"]}),
        (DOWN, {"kind": TensorProto.DOUBLE}),
        (DOWN, {"default": np.zeros((8, 1, 1), np.float32)}),
    ],
    ids=range(6),
)
def test_hostile_shapes_are_rejected(name, change):
    with pytest.raises(BundleFormatError, match=r"another shape|cannot load"):
        encoder_of(optional_model(changed=(name, change)))
