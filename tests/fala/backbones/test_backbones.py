"""Every backbone gives any text one embedding, whatever else is in the batch."""

import tracemalloc
import unicodedata

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles import (
    DIMENSION,
    WORDS,
    word_vector_files,
    write_onnx,
    write_static_release,
    write_word_vectors,
)
from fala.backbones import WordVectors
from fala.backbones.word_vectors import words
from fala.base.errors import BundleFormatError, DataError
from fala.bundle import format as layout
from fala.bundle.arrays import read_array

TEXTS = ["I love this film!", "", "awful . " * 40, "zzz", "a", "the film was not good , was it"]


@pytest.fixture(scope="module", params=["float16", "int8", "static", "onnx"])
def backbone(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("backbones") / "a.fala"
    if request.param == "onnx":
        return write_onnx(path).backbone()
    if request.param == "static":
        return write_static_release(path).backbone()
    return write_word_vectors(path, request.param).backbone()


# Every backbone


def test_an_embedding_does_not_depend_on_the_batch(backbone):
    texts = [f"{text} {number}" for number in range(20) for text in TEXTS]
    together = backbone.encode(texts)
    alone = np.vstack([backbone.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        ("one text", "wrap it in a list"),
        (["a", b"b"], "text 1 is a bytes"),
        (["a", "b", "cut \ud83d"], "text 2 has a lone surrogate at character 4"),
    ],
)
def test_other_inputs_are_rejected(backbone, texts, match):
    with pytest.raises(DataError, match=match):
        backbone.encode(texts)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_any_text_has_an_embedding(backbone, texts):
    embeddings = backbone.encode(texts)
    assert embeddings.shape == (len(texts), backbone.dimension) == (len(texts), DIMENSION)
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()


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
        ("well-made", [9, 10]),
        ("well-read", [8, 9]),
        ("", [0, 0]),
        ("unheard of", [0, 0]),
    ],
)
def test_word_vectors_are_averaged_over_known_words(text, expected):
    np.testing.assert_allclose(vectors_of().encode([text]), [expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("vocabulary", "text", "expected"),
    [
        (("good", "<unk>"), "unheard of", [2, 3]),
        (("good", "unk"), "", [2, 3]),
        (("good", "<unk>"), "good unheard", [0, 1]),
        (("well", "made", "well-made"), "well-made", [4, 5]),
        (("good", "film", "good"), "good", [0, 1]),  # of a repeated word the first vector
    ],
)
def test_special_entries_of_a_vocabulary(vocabulary, text, expected):
    np.testing.assert_array_equal(vectors_of(vocabulary).encode([text]), [expected])


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
        (np.ones((2, 0), np.float32), None, "2 words"),
        (np.full((2, 3), np.nan, np.float16), None, "NaN"),
        (np.ones((2, 3), np.int8), np.array([1, 600.0]), "above 65504"),
        (np.full((2, 3), -1e5, np.float32), None, "above 65504"),
    ],
)
def test_wrong_vectors_are_rejected(rows, scales, match):
    with pytest.raises(BundleFormatError, match=match):
        WordVectors(("a", "b"), rows, scales)


def test_a_large_vocabulary_is_loaded_without_a_copy(tmp_path):
    many = [f"w{number}" for number in range(10_000)]
    bundle = write_word_vectors(tmp_path / "a.fala", words=many, dimension=100)
    size = 10_000 * 100 * 2
    tracemalloc.start()
    backbone = bundle.backbone()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The vectors once, and about 150 bytes a word for the vocabulary and its index.
    assert peak < size + 10_000 * 250
    assert backbone.encode(["w7 w9999"]).any()


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
        ("Ma\u0308dchen \u0130yi", ["m\u00e4dchen", "iyi"]),
        ("हिन्दी में कितना", ["हिन्दी", "में", "कितना"]),
        ("كِتَاب, ที่นี่", ["كِتَاب", ",", "ที่นี่"]),
        ("so ❤\ufe0f!", ["so", "❤", "\ufe0f", "!"]),
        (" \t\n", []),
    ],
)
def test_words_of_a_text(text, expected):
    assert words(text) == expected


@given(st.text())
def test_words_leave_out_only_white_space(text):
    joined = "".join(words(text))
    composed = unicodedata.normalize("NFC", text.lower().replace("\u2019", "'"))
    assert joined == "".join(composed.replace("i\u0307", "i").split())


@pytest.mark.parametrize(
    "text",
    ["<" * 10**5, "<a" * 10**5, "a'" * 10**5, "a-" * 10**5, "_" * 10**5, "\u0915\u093f" * 10**5],
)
def test_words_take_linear_time(text):
    assert words(text)


@pytest.mark.parametrize(
    "word",
    [
        "\u0915\u093c\u0932\u092e",  # Devanagari with a nukta
        "\u0958\u0932\u092e",  # composed with it, which NFC decomposes
        "\ufb2a\ufb1d",  # Hebrew presentation forms
        "cafe\u0301",  # NFD
        "caf\u00e9",
        "\ud55c\uae00",
        unicodedata.normalize("NFD", "\ud55c\uae00"),
        "i\u0307stanbul",  # as Python lowers a Turkish capital
        "l\u2019amour",
    ],
    ids=ascii,
)
def test_a_word_is_found_in_every_spelling(word):
    table = WordVectors(["other", word], np.float16([[1, 0], [0, 1]]))
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, word)
        assert table.encode([text, f"other {text.upper()}"]).tolist() == [[0, 1], [0.5, 0.5]]


def test_the_composed_word_counts_where_a_vocabulary_has_both_spellings():
    table = WordVectors(["cafe\u0301", "caf\u00e9"], np.float16([[1, 0], [0, 1]]))
    assert table.encode(["cafe\u0301"]).tolist() == [[0, 1]]
