import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles import (
    DIMENSION,
    MAX_LENGTH,
    WORDS,
    onnx_model,
    tokenizer_json,
    word_vector_files,
    write_onnx,
    write_word_vectors,
)
from fala.backbones import OnnxEncoder, WordVectors
from fala.backbones.words import words
from fala.bundle import format as layout
from fala.bundle.arrays import read_array
from fala.errors import BundleFormatError, DataError, DimensionError

TEXTS = ["I love this film!", "", "awful . " * 40, "zzz", "a", "the film was not good , was it"]


@pytest.fixture(scope="module", params=["float16", "int8", "onnx"])
def backbone(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("backbones") / "a.fala"
    if request.param == "onnx":
        return write_onnx(path).backbone()
    return write_word_vectors(path, request.param).backbone()


@pytest.fixture(scope="module")
def encoder():
    return OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json(), max_length=MAX_LENGTH)


# Every backbone


def test_embeddings_have_their_shape(backbone):
    embeddings = backbone.encode(TEXTS)
    assert embeddings.shape == (len(TEXTS), backbone.dimension) == (len(TEXTS), DIMENSION)
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()


def test_no_texts(backbone):
    embeddings = backbone.encode([])
    assert embeddings.shape == (0, DIMENSION)
    assert embeddings.dtype == np.float32


def test_a_text_alone_is_the_text_in_a_batch(backbone):
    texts = [f"{text} {number}" for number in range(20) for text in TEXTS]
    together = backbone.encode(texts)
    alone = np.vstack([backbone.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        ("one text", "wrap it in a list"),
        (["a", None], "text 1 is a NoneType"),
        (["a", b"b"], "text 1 is a bytes"),
        (["a", "b", "cut \ud83d"], "text 2 has a lone surrogate at character 4"),
    ],
)
def test_what_is_not_a_text(backbone, texts, match):
    with pytest.raises(DataError, match=match):
        backbone.encode(texts)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_text_has_an_embedding(backbone, texts):
    embeddings = backbone.encode(texts)
    assert embeddings.shape == (len(texts), DIMENSION)
    assert np.isfinite(embeddings).all()


def test_only_the_encoder_is_a_transformer(backbone):
    assert backbone.is_transformer == isinstance(backbone, OnnxEncoder)


# Word vectors


def vectors_of(vocabulary=("good", "film", "do", "n't", "well", "made"), **fields):
    rows = np.arange(2 * len(vocabulary), dtype=np.float32).reshape(-1, 2)
    return WordVectors(vocabulary, rows, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("good", [0, 1]),
        ("Good FILM", [1, 2]),
        ("good unheard-of film", [1, 2]),
        ("don't", [5, 6]),
        ("Don\u2019t", [5, 6]),
        ("well-made", [9, 10]),
        ("well-read", [8, 9]),
        ("good good film", [2 / 3, 5 / 3]),
        ("", [0, 0]),
        ("unheard of", [0, 0]),
    ],
)
def test_the_mean_of_the_known_words(text, expected):
    np.testing.assert_allclose(vectors_of().encode([text]), [expected], rtol=1e-6)


@pytest.mark.parametrize("unknown", ["<unk>", "unk"])
def test_an_unknown_text_is_the_unknown_word(unknown):
    vectors = vectors_of(("good", unknown))
    np.testing.assert_array_equal(
        vectors.encode(["unheard of", "", "good unheard"]), [[2, 3], [2, 3], [0, 1]]
    )


def test_a_hyphenated_word_of_the_vocabulary_is_one_word():
    np.testing.assert_array_equal(
        vectors_of(("well", "made", "well-made")).encode(["well-made"]), [[4, 5]]
    )


def test_of_a_word_that_stands_twice_the_first_counts():
    np.testing.assert_array_equal(vectors_of(("good", "film", "good")).encode(["good"]), [[0, 1]])


def test_int8_with_scales_is_near_float16(tmp_path):
    float16 = write_word_vectors(tmp_path / "a.fala", "float16").backbone()
    int8 = write_word_vectors(tmp_path / "b.fala", "int8").backbone()
    np.testing.assert_allclose(int8.encode(TEXTS), float16.encode(TEXTS), atol=0.03)
    files = word_vector_files("int8")
    expected = read_array(files[layout.VECTORS])[8] * read_array(files[layout.SCALES])[8]
    np.testing.assert_allclose(int8.encode([WORDS[8]])[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "scales", "match"),
    [
        (np.ones((2, 3)), None, "float64 without scales"),
        (np.ones((2, 3), np.float32), np.ones(2, np.float32), "with scales"),
        (np.ones((2, 3), np.int8), None, "without scales"),
        (np.ones((2, 3), np.int8), np.ones(3, np.float32), "scales of shape"),
        (np.ones((3, 3), np.float32), None, "2 words"),
        (np.ones(2, np.float32), None, "2 words"),
        (np.ones((2, 0), np.float32), None, "2 words"),
        (np.full((2, 3), np.nan, np.float16), None, "NaN"),
        (np.ones((2, 3), np.int8), np.array([1, np.inf]), "NaN"),
    ],
)
def test_vectors_that_do_not_fit(rows, scales, match):
    with pytest.raises(BundleFormatError, match=match):
        WordVectors(("a", "b"), rows, scales)


def test_a_large_vocabulary_is_loaded_without_a_copy(tmp_path):
    many = [f"w{number}" for number in range(40_000)]
    bundle = write_word_vectors(tmp_path / "a.fala", words=many, dimension=100)
    size = 40_000 * 100 * 2
    tracemalloc.start()
    backbone = bundle.backbone()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The vectors once, and some 150 bytes a word for the vocabulary and its index.
    assert peak < size + 40_000 * 250
    assert backbone.encode(["w7 w39999"]).any()


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I can't, won't!", ["i", "ca", "n't", ",", "wo", "n't", "!"]),
        ("it's they\u2019re we'll", ["it", "'s", "they", "'re", "we", "'ll"]),
        ("a well-made film...", ["a", "well-made", "film", ".", ".", "."]),
        ("<user> see <url>", ["<user>", "see", "<url>"]),
        ("snake_case 3.5 #tag", ["snake", "_", "case", "3", ".", "5", "#", "tag"]),
        ("n't 's", ["n't", "'", "s"]),
        ("na\u00efve \u00dcber \u4f60\u597d", ["na\u00efve", "\u00fcber", "\u4f60\u597d"]),
        (" \t\n", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text())
def test_words_leave_out_only_white_space(text):
    kept = "".join(words(text))
    assert kept == "".join(text.lower().replace("\u2019", "'").split())


@pytest.mark.parametrize(
    "text", ["<" * 10**5, "<a" * 10**5, "a'" * 10**5, "a-" * 10**5, "_" * 10**5]
)
def test_words_take_linear_time(text):
    assert words(text)


# The ONNX encoder


def test_the_encoder_is_its_graph(encoder):
    table = np.random.default_rng(1).normal(size=(len(WORDS) + 3, DIMENSION)).astype(np.float32)
    ids = [2, 4 + WORDS.index("film") - 1, 4 + WORDS.index("good") - 1, 1, 3]
    expected = np.tanh(table[ids].mean(axis=0))
    np.testing.assert_allclose(encoder.encode(["Film good zzz"])[0], expected, rtol=1e-5)


def test_long_texts_are_cut(encoder):
    cut = " ".join(["good"] * (MAX_LENGTH - 2))
    np.testing.assert_array_equal(encoder.encode([cut + " bad" * 9]), encoder.encode([cut]))
    whole = OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json())
    assert not np.allclose(whole.encode([cut + " bad" * 9]), encoder.encode([cut]))


def test_batches_hold_texts_of_similar_length(encoder, monkeypatch):
    shapes = []
    run = encoder._run
    monkeypatch.setattr(
        encoder, "_run", lambda ids: shapes.append([len(r) for r in ids]) or run(ids)
    )
    encoder.encode([" ".join(["good"] * (number % 10)) for number in range(100)])
    assert [len(batch) for batch in shapes] == [32, 32, 32, 4]
    lengths = [length for batch in shapes for length in batch]
    assert lengths == sorted(lengths)


def test_a_tokenizer_without_special_tokens_reads_an_empty_text():
    tokenizer = json.loads(tokenizer_json())
    tokenizer["post_processor"] = None
    encoder = OnnxEncoder(onnx_model().SerializeToString(), json.dumps(tokenizer).encode())
    embeddings = encoder.encode(["", "good", ""])
    assert np.isfinite(embeddings).all()
    assert np.array_equal(embeddings[0], embeddings[2])


def test_the_tokenizers_own_padding_and_truncation_do_not_count(encoder):
    tokenizer = json.loads(tokenizer_json())
    tokenizer["truncation"] = {
        "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    tokenizer["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    other = OnnxEncoder(
        onnx_model().SerializeToString(), json.dumps(tokenizer).encode(), max_length=MAX_LENGTH
    )
    np.testing.assert_array_equal(other.encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize("max_length", [1, 2])
def test_no_room_beside_the_special_tokens(max_length):
    with pytest.raises(BundleFormatError, match="no room beside 2 special"):
        OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json(), max_length=max_length)


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
def test_a_graph_of_another_form(change):
    with pytest.raises(BundleFormatError, match="the graph takes"):
        OnnxEncoder(changed(change), tokenizer_json())


def giving(name, shape):
    """The model with another of its values as its output, said to be of some shape."""
    from onnx import TensorProto, helper

    model = onnx_model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("name", "shape"), [("mask", ["n", "tokens_"]), ("kept", ["n", "tokens_", DIMENSION])]
)
def test_a_graph_without_a_fixed_dimension(name, shape):
    with pytest.raises(DimensionError, match="output has shape"):
        OnnxEncoder(giving(name, shape), tokenizer_json())


def test_a_model_that_gives_other_shapes_than_its_graph_says():
    encoder = OnnxEncoder(giving("mask", ["n", DIMENSION]), tokenizer_json())
    with pytest.raises(BundleFormatError, match=r"shape \(1, 3\) for 1 texts"):
        encoder.encode(["good"])


def test_token_types_are_fed_where_the_graph_asks():
    from onnx import helper

    def ask(graph):
        graph.input.add().CopyFrom(graph.input[0])
        graph.input[-1].name = "token_type_ids"
        graph.node[0].input[1] = "sum_ids"
        graph.node.insert(0, helper.make_node("Add", ["input_ids", "token_type_ids"], ["sum_ids"]))

    plain = OnnxEncoder(onnx_model().SerializeToString(), tokenizer_json())
    asking = OnnxEncoder(changed(ask), tokenizer_json())
    np.testing.assert_array_equal(asking.encode(TEXTS), plain.encode(TEXTS))


def test_a_model_that_fails_as_it_runs():
    # The tokenizer knows more tokens than the model.
    encoder = OnnxEncoder(
        onnx_model().SerializeToString(), tokenizer_json((*WORDS, "beyond", "further"))
    )
    with pytest.raises(BundleFormatError, match="the model fails"):
        encoder.encode(["good", "further"])


def test_a_model_that_gives_no_number():
    def logarithm(graph):
        graph.node[-1].op_type = "Log"

    encoder = OnnxEncoder(changed(logarithm), tokenizer_json())
    with pytest.raises(BundleFormatError, match="NaN or infinity"):
        encoder.encode(["good"])


def test_an_input_whose_name_is_no_text(capfd):
    model = onnx_model().SerializeToString().replace(b"attention_mask", b"attention_mas\xf1")
    with pytest.raises(BundleFormatError, match="onnxruntime cannot load"):
        OnnxEncoder(model, tokenizer_json())
    assert capfd.readouterr().out == ""


def test_a_tokenizer_that_panics():
    tokenizer = json.loads(tokenizer_json())
    tokenizer["post_processor"]["special_tokens"] = {}
    with pytest.raises(BundleFormatError, match="the tokenizer"):
        OnnxEncoder(onnx_model().SerializeToString(), json.dumps(tokenizer).encode()).encode(["a"])


def test_an_interrupt_is_not_wrapped(encoder, monkeypatch):
    class Interrupted:
        def encode_batch(self, _):
            raise KeyboardInterrupt

    monkeypatch.setattr(encoder, "_tokenizer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(["a"])


def test_bundles_import_neither_onnxruntime_nor_tokenizers():
    code = (
        "import sys, fala.bundle; "
        "print([m for m in ('onnxruntime', 'tokenizers', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
