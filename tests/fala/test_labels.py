"""Any value that equals a label is that label, and labels come back in the head's own type."""

import enum
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import bridged
from bridged import PROBES, TEXTS
from bundles import make_head
from devices import same, state
from fala import Budget, Bundle, DataError, Device, FalaError
from fala.bundle.manifest import Manifest
from fala.model.heads import Head
from fala_export import fit_head

TYPES = {"integers": (0, 1), "strings": ("0", "1")}


class Answer(str, enum.Enum):
    NO, YES = "0", "1"


ONES = (
    1, 1.0, np.int64(1), np.uint8(1), np.float32(1.0), True, np.bool_(True), "1", np.str_("1"),
    Answer.YES,
)  # fmt: skip
ZEROS = (0, -0.0, np.int8(0), np.float16(0), False, np.bool_(False), "0", Answer.NO)
SEQUENCES = {
    "tuple": tuple, "iterator": iter, "array": np.array, "series": pd.Series, "index": pd.Index,
    "category": lambda values: pd.Series(values, dtype="category"),
}  # fmt: skip
MISSING = {
    "none": [1, None, 0], "nan": np.array([1, np.nan, 0]), "float32": np.float32([1, np.nan, 0]),
    "object": np.array([True, None, False], object), "series": pd.Series([1, None, 0]),
    "Int64": pd.Series([1, None, 0], dtype="Int64"),
    "string": pd.Series(["1", None, "0"], dtype="string"),
}  # fmt: skip
WRONG = [0.5, np.float32(0.5), 2.0, "1.0", "01", " 1", "True", b"1", np.array([1]), np.inf]


def encoder(texts):
    return [[len(text), text.count("e")] for text in texts]


def stored(device):
    return [row.label for row in device.examples()]


# Which values are a label


@pytest.mark.parametrize("own", TYPES.values(), ids=TYPES)
def test_any_equal_value_denotes_the_label(own):
    head = make_head(labels=own)
    for values, label in ((ZEROS, own[0]), (ONES, own[1])):
        assert [head.label_of(value, "label") for value in values] == [label] * len(values)
        assert (head.label_shares(values) == int(label)).all()


def test_every_argument_that_is_a_label_takes_an_equal_value_alone(device, releases, tmp_path):
    one = np.float32(1)
    with Device.create(tmp_path / "new", releases["old"], positive=one) as new:
        assert new.positive == "1"
        new.learn(["a", "b"], [one, False])
        new.remember(["c"], [one])
        assert stored(new) == ["1", "0", "1"]
        assert len([*new.examples(label=one)]) == 2
        assert new.rank(PROBES, label=one) == new.rank(PROBES, label="1")
    before, rows = state(device), stored(device)
    for call, message in (
        (lambda: device.learn(["a", "b"], [1, 0.5]), "label of example 1 is 0.5, not one of 0, 1"),
        (lambda: device.rank(PROBES, label=0.5), "label must be one of 0, 1, not"),
        (lambda: device.examples(label=0.5), "is not of the model, which has labels 0, 1"),
    ):
        with pytest.raises(DataError, match=message):
            call()
    assert same(state(device), before) and stored(device) == rows


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_labels_come_in_any_sequence(sequence):
    shares = make_head().label_shares(SEQUENCES[sequence]([1, 0]))
    np.testing.assert_array_equal(shares, [[1], [0]])


def test_nan_is_no_label_and_keeps_an_earlier_one(device):
    for case, values in MISSING.items():
        device.remember([case, f"{case} b", f"{case} c"], values)
        device.remember([case], [np.nan])
        assert stored(device)[-3:] == ["1", None, "0"], case


@pytest.mark.parametrize(
    ("labels", "values", "names"),
    [
        (("False", "True"), (True, np.bool_(False), "True"), ("True", "False", "True")),
        (("true", "false"), (True, False), ("true", "false")),
        (("0.0", "1.0"), (1, 0.0, True), ("1.0", "0.0", "1.0")),
        (("1", "True"), (True, 1, "True"), ("1", "1", "True")),
        (("1", "1.0"), (1.0, "1.0"), ("1", "1.0")),
        (("x", "nan"), ("x", "nan"), ("x", "nan")),
    ],
    ids=str,
)
def test_labels_may_spell_a_value_otherwise(labels, values, names):
    head = make_head(labels=labels)
    assert tuple(head.label_of(value, "label") for value in values) == names
    shares = head.label_shares([*values, None, np.nan])
    assert shares[: len(names), 0].tolist() == [float(name == labels[1]) for name in names]
    assert np.isnan(shares[len(names) :]).all()


@pytest.mark.parametrize(
    ("labels", "value"),
    [(("True", "true"), True), (("yes", "no"), True), (("True", "False"), 1), (("01", "02"), 1),
     *((("0", "1"), wrong) for wrong in WRONG)],
)  # fmt: skip
def test_a_value_that_may_mean_another_label_or_none_is_an_error(labels, value):
    with pytest.raises(DataError, match=r"label of example 0 is .*, not one of"):
        make_head(labels=labels).label_shares([value])


# The type of the head's labels


@pytest.mark.parametrize("own", TYPES.values(), ids=TYPES)
def test_a_device_returns_labels_of_the_heads_type(tmp_path, own):
    release = bridged.write_releases(tmp_path, labels=own)["old"]
    kind, taught = type(own[0]), [own[at % 2] for at in range(len(TEXTS))]
    with Device.create(tmp_path / "device", release) as device:
        device.learn(TEXTS, [at % 2 for at in range(len(TEXTS))])
        assert device.positive == own[1] and type(device.positive) is kind
        assert stored(device) == taught and {*map(type, stored(device))} == {kind}
        stream = io.StringIO()
        device.export_data(stream)
        exported = [json.loads(line)["label"] for line in stream.getvalue().splitlines()]
        assert exported == taught
        for each in (device.predict(TEXTS, threshold=0.3), device.predict([])):
            assert each.dtype == np.array(own).dtype
        assert 0 < f1_score(taught, device.predict(TEXTS), pos_label=own[1]) <= 1
    with Device.open(tmp_path / "device") as device:
        assert device.labels == own and {*map(type, device.labels)} == {kind}


def test_equal_labels_of_another_type_are_carried_over(tmp_path):
    """A release whose labels have the other type means the same labels, there and back."""
    integers, strings = (
        bridged.write_releases(tmp_path / name, labels=labels) for name, labels in TYPES.items()
    )
    results = []
    for new, own in ((integers, (0, 1)), (strings, ("0", "1"))):
        with Device.create(tmp_path / f"to {own}", strings["old"]) as device:
            device.learn(TEXTS, [at % 2 for at in range(len(TEXTS))])
            report = device.replace(new["mid"], Budget(20), accept="better-than-old")
            assert device.labels == own and report.decision != "vendor"
            assert stored(device) == [own[at % 2] for at in range(len(TEXTS))]
            results.append(device.predict_proba(PROBES))
            device.rollback()
            assert device.labels == ("0", "1") and device.predict(PROBES).dtype == "<U1"
            assert device.learn(["a new text"], [True]).labelled == len(TEXTS) + 1
    np.testing.assert_array_equal(*results)


def test_an_added_label_has_the_type_of_the_others(tmp_path):
    with Device.create(tmp_path / "integers", labels=[True, False], encoder=encoder) as device:
        assert device.labels == (1, 0)
        device.learn(["a", "eee"], ["1", 0.0])
        device.add_labels([2, 1, 0])
        device.add_labels(["3"])
        assert device.labels == (1, 0, 2, 3) and {*map(type, device.labels)} == {int}
        with pytest.raises(DataError, match="labels are integers, 1, 0, 2, 3, and an added"):
            device.add_labels(["spam"])
    with Device.create(tmp_path / "strings", labels=["1", "0"], encoder=encoder) as device:
        device.add_labels([0, 2])
        assert device.labels == ("1", "0", "2") and device.predict(["a"]).dtype.kind == "U"


def test_tags_may_be_integers(tmp_path):
    head = fit_head(np.eye(4), [{1}, {2.0}, {np.int64(1), True, 2}, set()], exclusive=False)
    assert head.labels == (1, 2)
    shares = head.label_shares([(True,), np.array([1.0, 2.0]), pd.Series(["2"]), None, np.nan])
    np.testing.assert_array_equal(shares, [[1, 0], [1, 1], [0, 1], *[[np.nan] * 2] * 2])
    with Device.create(tmp_path / "device", tags=[1, 2], encoder=encoder) as device:
        device.learn(["a", "eee", "both", "none"], np.array([{1}, {2}, {"1", 2.0}, np.nan], object))
        assert stored(device) == [{1}, {2}, {1, 2}, None]
        assert {type(tag) for tags in device.predict(TEXTS) for tag in tags} <= {int}
        assert [row.example for row in device.examples(label={True, 2})] == ["both"]
        assert device.rank(["a", "b"], label="1") == device.rank(["a", "b"], label=1)


# The labels of a head


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 1, 1.0, np.float32(0)], (0, 1)),
        (np.array([1.0, 0.0, 2.0, 10.0]), (0, 1, 2, 10)),
        ([False, True, np.bool_(True), 0], (0, 1)),
        (["10", "2", "10", "2"], ("2", "10")),
        (["1", 0, 1, "0"], ("0", "1")),
    ],
    ids=str,
)
def test_a_head_is_fitted_to_labels_of_one_type_in_order(values, labels):
    vectors = np.eye(4, dtype=np.float32)
    head = fit_head(vectors, values)
    assert head.labels == labels and {*map(type, head.labels)} == {type(labels[0])}
    assert fit_head(vectors, [head.label_of(value, "x") for value in values]) == head


def test_a_head_takes_the_vendors_names_of_labels():
    vectors = np.eye(2, dtype=np.float32)
    assert fit_head(vectors, [1.0, 0.0], label_names=[True, 0]).labels == (1, 0)
    assert fit_head(vectors, [1, 0], label_names=["1", "0"]).labels == ("1", "0")
    head = make_head(labels=(-1, 2, 10))
    assert head.in_order(["10", "-1", "2"]).labels == (10, -1, 2)
    assert head.link.given_back("7", head.labels) == 7  # a later release has this label
    worded = make_head(words=True)
    turned = worded.in_order(("1", "0")).lexical
    np.testing.assert_array_equal(turned.weight, -worded.lexical.weight)


@pytest.mark.parametrize("labels", [(0, "1"), (0.0, 1.0), (None, 1), (0, 2**63)], ids=str)
def test_a_head_has_labels_of_one_type(labels):
    with pytest.raises(FalaError, match="label"):
        Head("classification", labels, np.ones((1, 2)), np.ones(1))


def test_a_manifest_has_integers_of_64_bits(tmp_path):
    bundle = Bundle.open(bridged.write_releases(tmp_path, labels=(-(2**63), 2**63 - 1))["old"])
    assert bundle.manifest.labels == bundle.head().labels == (-(2**63), 2**63 - 1)
    for wrong in ([0, 2**63], [-(2**63) - 1, 0], [0, 10**400]):
        raw = json.loads(bundle.manifest.to_json()) | {"labels": wrong}
        with pytest.raises(FalaError, match=r"labels are not|is not a number"):
            Manifest.from_json(json.dumps(raw).encode())
    as_texts = replace(bundle.manifest, labels=tuple(map(str, bundle.manifest.labels)))
    assert as_texts.digest != bundle.manifest.digest
