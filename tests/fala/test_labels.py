"""What equals a label is that label, everywhere; see ``fala.model.labels``."""

import enum

import numpy as np
import pandas as pd
import pytest

import bridged
import tagged
from bridged import PROBES, TEXTS
from devices import same, state
from fala import DataError, Device
from fala_export import fit_head

ONES = (1, 1.0, np.int64(1), np.uint8(1), np.float32(1.0), True, np.bool_(True), "1", np.str_("1"))
ZEROS = (0, -0.0, np.int8(0), np.float16(0), False, np.bool_(False), "0")


class Answer(str, enum.Enum):
    NO, YES = "0", "1"


def stored(device):
    return [row.label for row in device.examples()]


def named(value):
    return f"{type(value).__name__} {value}"


@pytest.mark.parametrize("one", [*ONES, Answer.YES], ids=named)
def test_what_equals_a_label_is_that_label(releases, tmp_path, labels, one):
    with Device.create(tmp_path / "device", releases["old"], positive=one) as device:
        assert device.positive == "1"
        device.learn(TEXTS, labels)
        device.remember(["new"], [one])
        assert stored(device) == [*labels, "1"]
        assert len([*device.examples(label=one)]) == labels.count("1") + 1
        assert device.rank(PROBES, label=one) == device.rank(PROBES, label="1")
        assert (device.model.head.label_shares([one]) == [[1]]).all()


@pytest.mark.parametrize("zero", ZEROS, ids=named)
def test_false_is_the_label_0(device, zero):
    device.learn(["new"], [zero])
    assert stored(device)[-1] == "0"
    assert device.rank(PROBES, label=zero) == device.rank(PROBES, label="0")


SEQUENCES = {
    "list": list, "tuple": tuple, "iterator": iter, "series": pd.Series, "index": pd.Index,
    **{dtype: lambda values, dtype=dtype: np.array(values, dtype)
       for dtype in ("int64", "uint8", "float32", "float64", "bool", "object", "str")},
    **{f"pandas {dtype}": lambda values, dtype=dtype: pd.Series(values, dtype=dtype)
       for dtype in ("float64", "Int64", "boolean", "string", "category")},
}  # fmt: skip


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_labels_come_in_any_sequence(device, labels, sequence):
    before = state(device)
    values = SEQUENCES[sequence]([int(label) for label in labels])
    device.learn(TEXTS, values)
    assert stored(device) == labels and same(state(device), before)


MISSING = {
    "none": [1, None, 0], "nan": np.array([1, np.nan, 0]), "float32": np.float32([1, np.nan, 0]),
    "object": np.array([True, None, False], object), "series": pd.Series([1, None, 0]),
    "Int64": pd.Series([1, None, 0], dtype="Int64"),
    "string": pd.Series(["1", None, "0"], dtype="string"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSING)
def test_nan_is_no_label_and_keeps_an_earlier_one(device, case):
    device.remember(["a", "b", "c"], MISSING[case])
    assert stored(device)[-3:] == ["1", None, "0"]
    device.remember(["a"], [np.nan])
    assert stored(device)[-3:] == ["1", None, "0"]


@pytest.mark.parametrize(
    "wrong",
    [0.5, np.float32(0.5), 2.0, "1.0", "01", " 1", "True", b"1", np.array([1]), np.inf],
    ids=named,
)  # fmt: skip
def test_other_values_are_no_label(device, wrong):
    before, rows = state(device), stored(device)
    with pytest.raises(DataError, match=r"label of example 1 is .*, not one of 0, 1"):
        device.learn(["a", "b"], [1, wrong])
    with pytest.raises(DataError, match="label is one of 0, 1, not"):
        device.rank(PROBES, label=wrong)
    with pytest.raises(DataError, match="is not of the model, which has labels 0, 1"):
        device.examples(label=wrong)
    assert same(state(device), before) and stored(device) == rows


@pytest.mark.parametrize("name", ["nan", "None", "NaN"])
def test_no_label_is_no_name(tmp_path, name):
    """A release has a label that is written as Python writes a missing one."""
    releases = bridged.write_releases(tmp_path, labels=("x", name))
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(["a", "b", "c", "d"], ["x", name, None, np.nan])
        assert stored(device) == ["x", name, None, None]


@pytest.mark.parametrize(
    ("labels", "values", "names"),
    [
        (("False", "True"), (True, np.bool_(False), "True"), ("True", "False", "True")),
        (("true", "false"), (True, False), ("true", "false")),
        (("0.0", "1.0"), (1, 0.0, True), ("1.0", "0.0", "1.0")),
        (("1", "True"), (True, 1, "True"), ("1", "1", "True")),
        (("1", "1.0"), (1.0, "1.0"), ("1", "1.0")),
    ],
    ids=str,
)
def test_labels_that_spell_a_value_otherwise(tmp_path, labels, values, names):
    releases = bridged.write_releases(tmp_path, labels=labels)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(TEXTS[: len(values)], values)
        assert stored(device) == list(names)
        assert [*device.examples(label=values[0])] != []


@pytest.mark.parametrize(
    ("labels", "value"),
    [(("True", "true"), True), (("yes", "no"), True), (("True", "False"), 1), (("01", "02"), 1)],
)
def test_labels_that_may_not_be_meant_are_errors(tmp_path, labels, value):
    releases = bridged.write_releases(tmp_path, labels=labels)
    with (
        Device.create(tmp_path / "device", releases["old"]) as device,
        pytest.raises(DataError, match=f"label of example 0 is {value}, not one of"),
    ):
        device.learn(TEXTS[:1], [value])


def test_tags_may_be_numbers(tmp_path):
    head = fit_head(np.eye(4), [{1}, {2.0}, {np.int64(1), True, 2}, set()], exclusive=False)
    assert head.labels == (1, 2)
    shares = head.label_shares([(True,), np.array([1.0, 2.0]), pd.Series(["2"]), None, np.nan])
    np.testing.assert_array_equal(shares, [[1, 0], [1, 1], [0, 1], *[[np.nan] * 2] * 2])
    releases = tagged.write_releases(tmp_path / "releases", ages=("old",))
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(["a", "b"], np.array([{"rude"}, np.nan], object))
        assert stored(device) == [{"rude"}, None]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 1, 1.0, np.float32(0)], (0, 1)),
        (np.array([1.0, 0.0, 2.0, 10.0]), (0, 1, 2, 10)),
        ([False, True, np.bool_(True), 0], (0, 1)),
        (["10", "2", "10", "2"], ("2", "10")),
        (["1", 0, 1, "0"], ("0", "1")),
        (pd.Series(["b", "a", "b", "a"]), ("a", "b")),
        (["True", "False", "True", "False"], ("False", "True")),
    ],
    ids=str,
)  # fmt: skip
def test_a_head_is_fitted_to_what_equals_labels(values, labels):
    vectors = np.eye(4, dtype=np.float32)
    head = fit_head(vectors, values)
    assert head.labels == labels and {*map(type, head.labels)} == {type(labels[0])}
    names = [label for label in labels for value in values if head.label_of(value, "x") == label]
    assert len(names) == 4
    assert fit_head(vectors, [head.label_of(value, "x") for value in values]) == head


def test_a_head_takes_the_vendors_names():
    vectors = np.eye(2, dtype=np.float32)
    assert fit_head(vectors, [True, False], label_names=["True", "False"]).labels == (
        "True", "False",
    )  # fmt: skip
    assert fit_head(vectors, [1.0, 0.0], label_names=[True, 0]).labels == (1, 0)
    assert fit_head(vectors, [1, 0], label_names=["1", "0"]).labels == ("1", "0")
    assert fit_head(vectors, ["1", "0"], label_names=[1, 0]).labels == (1, 0)


@pytest.mark.parametrize("wrong", [0.5, np.nan, None, pd.NA, ["1"], b"1"], ids=named)
def test_a_head_needs_a_label_in_each_row(wrong):
    with pytest.raises(DataError, match="that of example 2 is"):
        fit_head(np.eye(3), [0, 1, wrong])


def test_ratings_equal_numbers(tmp_path):
    head = fit_head(np.eye(4), np.float32([1, 2, 5, 4]), rating=(1, 5))
    shares = head.label_shares([True, np.float32(4.5), "3", None, np.nan, pd.NA])
    np.testing.assert_array_equal(shares[:, 0], [1, 4.5, 3, *[np.nan] * 3])
