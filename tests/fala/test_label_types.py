"""Labels come back in the type of the head's labels, wherever a device returns one."""

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bridged
import tagged
from bridged import PROBES, TEXTS
from fala import Budget, Bundle, DataError, Device, FalaError, Match
from fala.bundle.manifest import Manifest
from fala.model.heads import Head
from fala_export import fit_head, write_release

TYPES = {"integers": (0, 1), "strings": ("0", "1")}


@pytest.fixture(params=TYPES)
def own(request):
    """The labels of a head."""
    return TYPES[request.param]


@pytest.fixture
def typed(tmp_path, own):
    """A device whose head has these labels, and which has learned others that equal them."""
    release = bridged.write_releases(tmp_path, labels=own)["old"]
    with Device.create(tmp_path / "device", release) as device:
        device.learn(TEXTS, [at % 2 for at in range(len(TEXTS))])
        yield device


def taught(own):
    return [own[at % 2] for at in range(len(TEXTS))]


def test_a_device_returns_the_heads_type(typed, own, tmp_path):
    kind = type(own[0])
    assert typed.labels == own and {*map(type, typed.labels)} == {kind}
    assert typed.positive == own[1] and type(typed.positive) is kind
    assert [row.label for row in typed.examples()] == taught(own)
    assert {type(row.label) for row in typed.examples()} == {kind}
    stream = io.StringIO()
    typed.export_data(stream)
    assert [json.loads(line)["label"] for line in stream.getvalue().splitlines()] == taught(own)
    for decided in (typed.predict(PROBES), typed.predict(PROBES, threshold=0.3), typed.predict([])):
        assert decided.dtype == np.int64 if kind is int else decided.dtype.kind == "U"
    columns = typed.predict_proba(PROBES).argmax(axis=1)
    assert typed.predict(PROBES).tolist() == [typed.labels[column] for column in columns]
    typed.close()
    with Device.open(tmp_path / "device") as device:
        assert device.labels == own and device.predict(PROBES).dtype == (
            np.int64 if kind is int else "<U1"
        )


@pytest.mark.parametrize("truth", [list, np.array, pd.Series, "bool", "uint8"], ids=str)
def test_what_was_taught_is_compared_with_what_is_predicted(typed, own, truth):
    given = taught(own)
    if isinstance(truth, str):
        if own != (0, 1):
            pytest.skip("these are integers")
        given, truth = np.array(given, truth), np.asarray
    agreed = typed.predict(TEXTS) == truth(given)
    assert 0.5 < agreed.mean() <= 1
    metrics = pytest.importorskip("sklearn.metrics")
    assert metrics.accuracy_score(truth(given), typed.predict(TEXTS)) == agreed.mean()
    metrics.classification_report(truth(given), typed.predict(TEXTS))
    assert 0 < metrics.f1_score(truth(given), typed.predict(TEXTS), pos_label=own[1]) <= 1


def test_equal_labels_of_another_type_are_carried_over(tmp_path):
    """A release whose labels have the other type means the same labels, there and back."""
    releases = {}
    for name, labels in TYPES.items():
        (tmp_path / name).mkdir()
        releases[name] = bridged.write_releases(tmp_path / name, labels=labels)
    results = []
    for new in TYPES:
        with Device.create(tmp_path / f"to {new}", releases["strings"]["old"]) as device:
            device.learn(TEXTS, taught((0, 1)))
            report = device.replace(releases[new]["mid"], Budget(20), accept="better-than-old")
            own = TYPES[new]
            assert device.labels == own and device.predict(TEXTS).dtype == np.array(own).dtype
            assert [row.label for row in device.examples()] == taught(own)
            results.append((report.decision, device.predict_proba(PROBES)))
            device.forget([1])
            device.rollback()
            assert device.labels == ("0", "1") and device.predict(PROBES).dtype == "<U1"
            assert device.learn(["a new text"], [True]).labelled == len(TEXTS)
    assert results[0][0] == results[1][0] != "vendor"
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_many_labels_keep_their_order_and_what_a_head_lacks_its_type(tmp_path):
    head = fit_head(np.eye(12), [10, 2, -1] * 4)
    assert head.labels == (-1, 2, 10)
    assert head.in_order(["10", "-1", "2"]).labels == (10, -1, 2)
    assert Head("classification", np.array([False, True]), np.ones((1, 2)), np.ones(1)).labels == (
        0, 1,
    )  # fmt: skip
    assert head.link.given_back("7", head.labels) == 7  # of a later release


def test_tags_may_be_integers(tmp_path):
    names = {name: at for at, name in enumerate(tagged.TAGS)}
    sets = [{names[tag] for tag in tags} for tags in tagged.OWN]
    bundle = Bundle.open(tagged.write_releases(tmp_path / "named", ages=("old",))["old"])
    public = [{names[tag] for tag in tags} for tags in tagged.sets_of(tagged.PUBLIC, tagged.SHARED)]
    head = fit_head(bundle.backbone(), tagged.PUBLIC, public, exclusive=False)
    write_release(tmp_path / "tags.fala", bundle, head, {})
    assert head.labels == (0, 1, 2) == Bundle.open(tmp_path / "tags.fala").manifest.labels
    with Device.create(tmp_path / "device", tmp_path / "tags.fala") as device:
        device.learn(tagged.TEXTS, sets)
        assert [row.label for row in device.examples()] == sets
        decided = device.predict(tagged.TEXTS)
        assert {type(tag) for tags in decided for tag in tags} == {int}
        assert np.mean([own == tags for own, tags in zip(sets, decided, strict=True)]) > 0.5
        device.learn(["both"], [{"1", 2.0}])
        assert [row.example for row in device.examples(label={True, 2})][-1] == "both"
        assert device.rank(["a", "b"], label="1") == device.rank(["a", "b"], label=1)


def test_an_added_label_has_the_type_of_the_others(tmp_path):
    def encoder(texts):
        return [[len(text), text.count("e")] for text in texts]

    with Device.create(tmp_path / "integers", labels=[True, False], encoder=encoder) as device:
        assert device.labels == (1, 0)
        device.learn(["a", "eee"], ["1", 0.0])
        device.add_labels([2, 1, 0, 10])
        device.add_labels(["3"])
        assert device.labels == (1, 0, 2, 10, 3) and {*map(type, device.labels)} == {int}
        with pytest.raises(DataError, match="labels are integers, 1, 0, 2, 10, 3, and an added"):
            device.add_labels(["spam"])
    with Device.create(tmp_path / "strings", labels=["1", "0"], encoder=encoder) as device:
        device.add_labels([0, 2])
        assert device.labels == ("1", "0", "2") and device.predict(["a"]).dtype.kind == "U"
    with Device.create(tmp_path / "stars", ratings=(1, 5), encoder=encoder) as device:
        device.learn(["a", "eee"], [2, "4.5"])
        assert [row.label for row in device.examples()] == [2, 4.5]


@pytest.mark.parametrize("labels", [(0, "1"), (0.0, 1.0), (None, 1), (0, 2**63)], ids=str)
def test_a_head_has_labels_of_one_type(labels):
    with pytest.raises(FalaError, match="label"):
        Head("classification", labels, np.ones((1, 2)), np.ones(1))


def test_a_manifest_has_integers_of_64_bits(tmp_path):
    bundle = Bundle.open(bridged.write_releases(tmp_path, labels=(-(2**63), 2**63 - 1))["old"])
    assert bundle.manifest.labels == bundle.head().labels == (-(2**63), 2**63 - 1)
    for wrong in ([0, 2**63], [-(2**63) - 1, 0], [0, 10**400], ["a", 0], [True, False]):
        raw = json.loads(bundle.manifest.to_json()) | {"labels": wrong}
        with pytest.raises(FalaError, match=r"labels are not|is not a number"):
            Manifest.from_json(json.dumps(raw).encode())
    as_texts = replace(bundle.manifest, labels=tuple(map(str, bundle.manifest.labels)))
    assert as_texts.digest != bundle.manifest.digest


# What is no example


def test_a_blank_text_teaches_nothing(device):
    for call in (device.learn, device.remember):
        with pytest.raises(DataError, match="a text of example 1 is blank"):
            call(["one", " "], [0, 1])
    assert "one" not in {row.example for row in device.examples()}
    assert device.predict([" "]).shape == (1,)


# What is forgotten, and what cannot be changed


def test_forget_and_unlabel_take_texts_ids_and_examples(device):
    rows = [*device.examples()]
    assert device.unlabel([TEXTS[0], rows[1].id, rows[2], "unknown", 999]).labelled == (
        len(TEXTS) - 3
    )
    assert [row.label for row in device.examples()][:3] == [None] * 3
    assert device.forget([TEXTS[0], rows[1].id, rows[2], rows[2].id, "unknown"]).count == 3
    assert [row.id for row in device.examples()] == [row.id for row in rows[3:]]
    with pytest.raises(DataError, match="example 1 is a float"):
        device.forget([TEXTS[4], 1.5])
    with pytest.raises(DataError, match="is a Match"):
        device.unlabel([Match((), TEXTS[4])])
    assert len([*device.examples()]) == len(TEXTS) - 3


def test_nothing_inside_can_be_changed_through_a_result(device):
    before = device.predict_proba(PROBES)
    model = device.model
    head = model.head
    for array in (model.weight, model.bias, head.weight, head.bias):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    device.predict_proba(PROBES)[...] = 0
    device.predict(PROBES)[...] = device.labels[0]
    np.testing.assert_array_equal(device.predict_proba(PROBES), before)
