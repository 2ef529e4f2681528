"""Examples are texts, pairs, items and matches, and nothing else."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

from fala import DataError, Item, Match, Pair
from fala.base.examples import (
    CLASSIFICATION,
    MATCHING,
    as_text,
    check_examples,
    check_not_blank,
    segments,
    texts_of,
    unique_texts,
)

FRAME = pd.DataFrame({"text": ["one", "two"], "label": [0, 1]})


class Tensor:
    """An object like a PyTorch tensor that requires a gradient."""

    def __array__(self, *arguments, **options):
        raise RuntimeError("call detach() first")


def test_a_pair_has_two_texts():
    pair = Pair("a good film", "it is great")
    assert (pair.a, pair.b) == ("a good film", "it is great")
    assert pair == Pair("a good film", "it is great") != Pair("a good", "film it is great")
    assert repr(pair) == "Pair('a good film', 'it is great')"
    for copied in (pickle.loads(pickle.dumps(pair)), copy.deepcopy(pair), as_text(str(pair))):
        assert isinstance(copied, Pair) and copied == pair
    assert check_examples([pair, "alone"], "classification") == [pair, "alone"]
    assert segments(pair) == ("a good film", "it is great") and segments("alone") == ("alone",)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (1, "b", "the pair's a is an int, not a text"),
        ("a", "\ud800", "the pair's b has a lone surrogate"),
        ("a", "b\x1ec", r"the pair's b has the character U\+001E"),
    ],
    ids=["number", "surrogate", "three"],
)
def test_wrong_pairs_are_rejected(a, b, message):
    with pytest.raises(DataError, match=message):
        Pair(a, b)


def test_an_item_is_its_key_with_a_vector():
    item = Item("cat.jpg", [1, 2, 3], encoder="cloud 1")
    assert item == "cat.jpg" and hash(item) == hash("cat.jpg")
    assert repr(item) == "Item('cat.jpg', vector of 3)"
    for copied in (copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
        assert copied == item and copied.encoder == "cloud 1"
        np.testing.assert_array_equal(copied.vector, item.vector)
    with pytest.raises(ValueError, match="read-only"):
        item.vector[0] = 2
    assert Match((item,), item).history[0] is item
    for key, vector in ((5, [1]), ("a", ["x"]), ("a", [[1]]), ("a", [np.nan]), ("a", [1e99])):
        with pytest.raises(DataError):
            Item(key, vector)
    for vector in ([1e5], [1j], Tensor()):
        with pytest.raises(DataError, match="the item's vector is not numbers"):
            Item("a", vector)


def test_right_examples_are_accepted():
    matches = [Match(("a", "b"), "c"), Match([], "d")]
    assert check_examples(("a", ""), CLASSIFICATION) == ["a", ""]
    assert check_examples(matches, MATCHING) == matches
    assert matches[1].history == ()
    assert texts_of(matches[0]) == ("c", "a", "b")
    assert unique_texts([*matches, "a", "e"]) == ["c", "a", "b", "d", "e"]


@pytest.mark.parametrize(
    ("examples", "task", "match"),
    [
        ("one text", CLASSIFICATION, "wrap it in a list"),
        ({"a text", "another"}, CLASSIFICATION, "examples must be a sequence, not a set"),
        ({"a text": "its label"}, CLASSIFICATION, "examples must be a sequence, not a dict"),
        (FRAME, CLASSIFICATION, r'a table .*df\["text"\]'),
        (FRAME[["text"]], CLASSIFICATION, "a table"),
        (Match((), "c"), MATCHING, "wrap it in a list"),
        (["a", Match((), "c")], CLASSIFICATION, "example 1 is a Match"),
        ([Match((), "c"), "a"], MATCHING, "example 1 is a str"),
        (["a", None], CLASSIFICATION, "example 1 is None"),
        ([Match(("a", 3), "c")], MATCHING, "a text of example 0 is an int"),
        ([Match((), None)], MATCHING, "a text of example 0 is None"),
        (["a", "b\ud83d"], CLASSIFICATION, "example 1 has a lone surrogate at character 1"),
        ([Match(("ok", "\udc00"), "c")], MATCHING, "example 0 has a lone surrogate"),
    ],
)
def test_wrong_examples_are_rejected(examples, task, match):
    with pytest.raises(DataError, match=match):
        check_examples(examples, task)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_a_table_of_another_library_is_rejected(library):
    made = pytest.importorskip(library)
    table = made.table if library == "pyarrow" else made.DataFrame
    with pytest.raises(DataError, match="a table"):
        check_examples(table({"text": ["one"]}), CLASSIFICATION)


@pytest.mark.parametrize(
    "blank", ["", "\n\t", Pair("a", " "), Item(" ", [0.5]), Match((), " "), Match(("a", ""), "b")]
)
def test_a_blank_text_is_rejected_where_it_would_be_kept(blank):
    with pytest.raises(DataError, match="a text of example 1 is blank"):
        check_not_blank([Match((), "one") if isinstance(blank, Match) else "one", blank])
