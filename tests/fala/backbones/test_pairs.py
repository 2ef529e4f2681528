"""A pair is encoded as two segments by a transformer, and as one text by word vectors."""

import numpy as np
import pytest

from bundles import DIMENSION, MAX_LENGTH, WORDS, onnx_model, tokenizer_json, word_vector_files
from fala import DataError, Pair
from fala.backbones import OnnxEncoder, WordVectors
from fala.bundle import format as layout
from fala.bundle.arrays import read_array
from fala.text.ngrams import ngrams


def paired_tokenizer():
    """Make a tokenizer like BERT's: [CLS] a [SEP] b [SEP], with two token types."""
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_str(tokenizer_json().decode())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer.to_str().encode()


def typed_model():
    """Make the tiny graph with a table of two token types."""
    from onnx import TensorProto, helper, numpy_helper

    model = onnx_model()
    graph = model.graph
    kinds = np.array([np.zeros(DIMENSION), np.arange(DIMENSION)], dtype=np.float32)
    graph.initializer.append(numpy_helper.from_array(kinds, "kinds"))
    graph.input.append(
        helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["n", "tokens_"])
    )
    graph.node[0].output[0] = "plain"
    graph.node.insert(1, helper.make_node("Gather", ["kinds", "token_type_ids"], ["kind"]))
    graph.node.insert(2, helper.make_node("Add", ["plain", "kind"], ["embedded"]))
    return model.SerializeToString()


@pytest.fixture(scope="module")
def plain():
    return OnnxEncoder(onnx_model().SerializeToString(), paired_tokenizer(), max_length=MAX_LENGTH)


@pytest.fixture(scope="module")
def typed():
    return OnnxEncoder(typed_model(), paired_tokenizer(), max_length=MAX_LENGTH)


@pytest.mark.parametrize("types", [False, True], ids=["alone", "with types"])
def test_a_graph_encodes_both_segments_and_token_types_mark_the_second(plain, typed, types):
    encoder = typed if types else plain
    table = np.random.default_rng(1).normal(size=(len(WORDS) + 3, DIMENSION)).astype(np.float32)
    ids = [2, *(3 + WORDS.index(word) for word in ("good", "film")), 3, 3 + WORDS.index("bad"), 3]
    kinds = types * np.array([0, 0, 0, 0, 1, 1])[:, None] * np.arange(DIMENSION)
    expected = np.tanh((table[ids] + kinds).mean(axis=0))
    texts = ["alone", Pair("good film", "bad"), "good film bad", Pair("bad", "good film")]
    together = encoder.encode(texts)
    np.testing.assert_allclose(together[1], expected, rtol=1e-5)
    for row, text in zip(together, texts, strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], row, rtol=1e-6)


def test_the_longer_segment_of_a_long_pair_is_cut(plain):
    room = MAX_LENGTH - 3 - 1
    whole, cut = Pair("good " * 40, "bad"), Pair("good " * room, "bad")
    np.testing.assert_array_equal(plain.encode([whole]), plain.encode([cut]))


def test_a_pair_without_room_is_rejected_by_name():
    narrow = OnnxEncoder(onnx_model().SerializeToString(), paired_tokenizer(), max_length=4)
    assert narrow.encode(["good film bad"]).shape == (1, DIMENSION)
    with pytest.raises(
        DataError, match="text 1 is a pair, and there is no room for it in 4 tokens"
    ):
        narrow.encode(["good", Pair("good", "bad")])


def test_words_and_n_grams_cover_both_segments():
    files = word_vector_files()
    vectors = WordVectors(WORDS, read_array(files[layout.VECTORS]))
    pair, joined = Pair("A good film.", "It is bad"), "A good film. It is bad"
    np.testing.assert_array_equal(vectors.encode([pair]), vectors.encode([joined]))
    for ours, theirs in zip(ngrams([pair]), ngrams([joined]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
