import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fala.base.errors import DataError
from fala.base.examples import Match, Pair
from fala.model.links import TAGS, Rating
from fala_export.base.errors import RowError
from fala_export.fit.heads import fit_head
from fala_export.rows.data_set import gather_rows
from fala_export.rows.row_files import load_rows
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row, label_names, read_rows, row_of


def text_row(**fields):
    return {"user": "u1", "split": "train", "text": "a text", "label": 0, **fields}


def match_row(**fields):
    row = {"user": "u1", "split": "train", "history": ["old"], "candidate": "new", "label": 1}
    return {**row, **fields}


def lines(*rows):
    return [json.dumps(row) + "\n" for row in rows]


def complete(**changes):
    """The rows of a smallest complete data set, with some of them changed or left out."""
    rows = {
        "public0": text_row(user=None, split="public", label=0),
        "public1": text_row(user=None, split="public", label=1),
        "train": text_row(),
        "test": text_row(split="test", label=1),
        **changes,
    }
    return [row for row in rows.values() if row is not None]


def pair_row(pair, **fields):
    return {"user": "u1", "split": "train", "pair": pair, "label": 0, **fields}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (text_row(label="cat"), Row("u1", "train", "a text", "cat", 1)),
        (pair_row(["a", "b"]), Row("u1", "train", Pair("a", "b"), 0, 1)),
        (match_row(history=["a", "b"]), Row("u1", "train", Match(("a", "b"), "new"), 1, 1)),
        (match_row(history=[]), Row("u1", "train", Match((), "new"), 1, 1)),
    ],
)
def test_a_row_of_each_kind(fields, expected):
    [row] = read_rows(lines(fields))
    assert row == expected and type(row.example) is type(expected.example)


def test_byte_order_mark_blank_lines_and_unknown_keys_are_tolerated():
    first, second = lines(text_row(note="x"), text_row(text="é\u2028é"))
    rows = read_rows([b"\xef\xbb\xbf" + first.encode(), b"\n", b"  \r\n", second.encode()])
    assert [row.line for row in rows] == [1, 4]
    assert rows[1].example == "é\u2028é"


def test_public_rows_may_lack_a_user_and_train_rows_a_label():
    public = text_row(split="public")
    del public["user"]
    train = text_row()
    del train["label"]
    rows = read_rows(lines(public, train, text_row(label=None)))
    assert rows[0].user is None
    assert rows[1].label is rows[2].label is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "is not JSON at column 2"),
        ('{"a": 1} x', "is not JSON at column 10"),
        ("NaN", "must be a JSON object, not NaN"),
        ("9" * 5000, "too long"),
        ("[" * 200_000, "nested too deep"),
        (b'{"text": "\xff"}', "byte 11 is not UTF-8"),
        ('{"label": 0, "label": 1}', 'key "label" is repeated'),
        ("\ufeff" + json.dumps(text_row()), "is not JSON at column 1"),
        (text_row(split="valid"), 'got "valid"'),
        ({"user": "u1", "text": "a", "label": 0}, "it is missing"),
        (text_row(user=None), "a train row needs a user"),
        (text_row(user=["u"]), "user must be an integer or a string, not a list"),
        (text_row(user=" "), "user is empty"),
        ({"user": "u1", "split": "train", "label": 0}, "has no text"),
        (pair_row(["a", "b"], text="c"), "has text as well as pair"),
        (pair_row(["a", "b"], candidate="c"), "has pair as well as history or candidate"),
        (pair_row("ab"), "pair must be a list of two texts, not a text"),
        (pair_row(["a"]), "pair must be a list of two texts, not a list"),
        (pair_row(["a", " "]), "pair[1] is empty"),
        (pair_row(["a\x1eb", "c"]), "the pair's a has the character U+001E"),
        (text_row(text=None), "text must be a string, not null"),
        (text_row(text="\t\n"), "text is empty"),
        (text_row(text="half \ud83d"), "text has a lone surrogate"),
        (text_row(candidate="b"), "has text as well as history or candidate"),
        ({"user": "u1", "split": "train", "history": ["a"], "label": 0}, "has no candidate"),
        (match_row(history="a"), "not a text"),
        (match_row(history=["a", 3]), "history[1] must be a string, not 3"),
        (match_row(candidate={}), "candidate must be a string, not an object"),
        (text_row(split="test", label=None), "a test row needs a label"),
        (text_row(split="test", label=float("nan")), "a test row needs a label"),
        (text_row(label=[0]), "not a list"),
        (text_row(label=2**63), "64 bits"),
        (match_row(), "is a matching row, but line 1 is a classification row"),
    ],
)
def test_the_error_of_a_bad_row_names_line_and_reason(bad, words):
    line = json.dumps(bad) if isinstance(bad, dict) else bad
    with pytest.raises(RowError) as caught:
        read_rows([*lines(text_row()), "\n", line, "not reached"])
    assert caught.value.line == 3
    assert str(caught.value).startswith("line 3: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_may_be_ratings_or_sets_of_tags():
    stars, rated = Rating(1, 5, 1), (text_row(label=2), text_row(label=4.5), text_row(label="3.5"))
    assert [row_of(1, row, stars).label for row in rated] == [2, 4.5, 3.5]
    for wrong in (6, "good", [2], False):
        with pytest.raises(RowError, match="line 7: label must be a number from 1 to 5, not"):
            row_of(7, text_row(label=wrong), stars)
    assert row_of(1, text_row(label=["b", "a", "b"]), TAGS).label == {"a", "b"}
    for wrong in ("a", 1, {"a": 1}, ["a", {}]):
        with pytest.raises(RowError, match="line 7: label must be a"):
            row_of(7, text_row(label=wrong), TAGS)
    tags = ([], ["a"], ["b"], ["a", "b"])
    public = [text_row(split="public", label=label) for label in tags]
    rows = [*public, text_row(label=["b"]), text_row(split="test", label=["a"])]
    data = gather_rows([row_of(1, row, TAGS) for row in rows], "", TAGS)
    assert (data.labels, data.link) == (("a", "b"), TAGS)


def test_gather_rows_makes_a_data_set():
    second_user = [text_row(user="u0"), text_row(user="u0", split="test", label=1)]
    rows = gather_rows(read_rows(lines(*complete(), *second_user)), "here")
    assert (rows.task, rows.labels, rows.source) == ("classification", (0, 1), "here")
    assert list(rows.users) == ["u1", "u0"]
    assert [row.line for row in rows.public] == [1, 2]
    assert [row.line for row in rows.users["u0"].train] == [5]
    assert [row.line for row in rows.users["u0"].test] == [6]


def test_labels_of_rows_and_of_a_head_are_in_the_same_order():
    for names in (["-2", "007", "7", "10"], [-1, 2, 10], ["10", "2", "a"]):
        assert {label_names(labels) for labels in permutations(names)} == {tuple(names)}
        labels = [*names[::-1], *names[::-1]]
        assert list(fit_head(np.eye(len(labels), dtype=np.float32), labels).labels) == names


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows"),
        (complete(public0=None, public1=None), "no public rows"),
        (complete(public1=None), "all public rows have the label 0"),
        (complete(train=None, test=None), "no users"),
        (complete(test=None), "user 'u1' has no test rows"),
        (complete(train=None), "user 'u1' has no train rows"),
        (
            complete(test=text_row(split="test", label=2)),
            "line 4: label 2 does not occur in any public row",
        ),
    ],
)
def test_incomplete_data_sets_are_rejected(rows, words):
    with pytest.raises(DataError, match=words):
        gather_rows(read_rows(lines(*rows)), "")


@pytest.mark.parametrize("name", ["absent.jsonl", ".", "nul\0byte", "x" * 5000])
def test_an_unreadable_file_is_rejected(tmp_path, name):
    with pytest.raises(DataError, match=r"cannot read|no state\.json") as caught:
        load_rows(f"{tmp_path}/{name}")
    assert "\n" not in str(caught.value)


def parse_or_reject(data):
    """Parse arbitrary lines; any exception but FaLA's own fails the test."""
    try:
        rows = gather_rows(read_rows(data), "fuzz")
    except RowError as error:
        assert error.line >= 1  # a piece of the data may have several
        return
    except DataError:
        return
    assert isinstance(rows, Rows)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
near_rows = st.fixed_dictionaries(
    {"split": st.sampled_from(["public", "train", "test"]) | values},
    optional={
        "user": st.sampled_from(["u1", "u2", None]) | values,
        "text": st.just("a text") | values,
        "history": st.just(["old"]) | values,
        "candidate": st.just("new") | values,
        "label": st.sampled_from([0, 1, "a", None]) | values,
        "other": values,
    },
)


@settings(deadline=None)  # a shared machine may stall
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_parsed_or_rejected(data):
    parse_or_reject(data)


@settings(deadline=None)  # a shared machine may stall
@given(st.lists(near_rows | values, max_size=6))
def test_any_json_is_parsed_or_rejected(objects):
    parse_or_reject([json.dumps(value) for value in objects])
