"""An app remembers examples, fits, lists what the device keeps, and reads its labels."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

import bridged
import bundles
import fala
from bridged import PROBES, TEXTS
from devices import embedded, same, state
from fala import Budget, Bundle, BundleFormatError, BundleMismatchError, DataError, Device, Pair
from fala.backbones import OnnxEncoder
from fala_export import add_bridge
from fala_export.rows.user_rows import read_rows


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        yield device


# Remembering and fitting


def test_remembered_examples_count_after_the_fit(device, tmp_path, releases, labels):
    before = state(device)
    ids = device.remember(TEXTS, labels)
    assert len(set(ids)) == len(TEXTS)
    assert same(state(device), before) and embedded(tmp_path / "device", releases["old"]) == set()
    assert device.remember(TEXTS[:3]) == ids[:3]
    report = device.fit()
    assert (report.examples, report.labelled, report.fitted) == (90, 90, 90)
    assert report.exact and report.decision == "personal"
    assert math.isfinite(report.loss)
    assert len(report.scales) == 3  # the embeddings', the slope's and the bias's
    with Device.create(tmp_path / "other", releases["old"]) as reference:
        reference.learn((text for text in TEXTS), (label for label in labels))
        assert same(state(reference), state(device))


def test_a_remembered_example_waits_for_a_pass_of_the_transformer(
    tmp_path, releases, labels, encoded
):
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        device.remember(TEXTS[:40], labels[:40])
        assert encoded == []
        report = device.fit()
        assert (encoded, report.fitted, report.examples) == ([], 0, 40)
        refined = device.refine(Budget(30))
        assert len(encoded) == refined.forward_passes == 30
        assert (refined.counts.representatives, refined.waiting) == (30, 10)
        assert refined.decision == "personal" and not device.model.is_vendor
        assert device.fit().fitted == 30


# Examples, and the device itself


def test_examples_have_ids_labels_and_times(device):
    ids = device.remember(["good", "bad", "film"], ["1", 0, None])
    rows = list(device.examples())
    assert [(row.id, row.example, row.label) for row in rows] == [
        (ids[0], "good", "1"), (ids[1], "bad", "0"), (ids[2], "film", None),
    ]  # fmt: skip
    assert all(row.added > 1.7e9 for row in rows)
    assert [row.labelled is None for row in rows] == [False, False, True]
    for chosen, those in (
        ({"labelled": True}, ids[:2]), ({"labelled": False}, ids[2:]), ({"label": 0}, ids[1:2]),
        ({"labelled": False, "label": "1"}, []),
    ):  # fmt: skip
        assert [row.id for row in device.examples(**chosen)] == those


def test_a_pair_is_kept_and_exported_as_a_pair(device):
    pairs = [Pair(TEXTS[0], TEXTS[1]), Pair(TEXTS[2], TEXTS[3])]
    device.learn([*pairs, "alone"], ["1", "0", "0"])
    stream = io.StringIO()
    assert device.export_data(stream, user="ann") == 3
    lines = stream.getvalue().splitlines()
    assert json.loads(lines[0])["pair"] == [TEXTS[0], TEXTS[1]]
    for rows in (read_rows(lines), device.examples()):
        examples = [row.example for row in rows]
        assert examples == [*pairs, "alone"]
        assert [isinstance(example, Pair) for example in examples] == [True, True, False]
    assert device.forget(pairs[:1]).count == 1


def test_nothing_inside_can_be_changed_through_a_result(device):
    before, model = device.predict_proba(PROBES), device.model
    for array in (model.weight, model.bias, model.head.weight, model.head.bias):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    device.predict_proba(PROBES)[...] = 0
    device.predict(PROBES)[...] = device.labels[0]
    np.testing.assert_array_equal(device.predict_proba(PROBES), before)


def test_a_relative_folder_survives_a_change_of_directory(releases, labels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Device.create("relative", releases["old"]) as device:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        device.learn(TEXTS, labels)
        device.replace(releases["mid"], Budget(5))
        device.rollback()
        assert [*device.examples()] != []
    assert [*Path().iterdir()] == []
    gone = tmp_path / "elsewhere"
    gone.rmdir()
    with pytest.raises(fala.DeviceError, match="working directory is gone"):
        Device.open("relative")


# The positive label, and the labels' order


@pytest.mark.parametrize("positive", [None, 1, "0"])
def test_a_threshold_is_for_the_positive_label(tmp_path, releases, positive):
    with Device.create(tmp_path / "device", releases["old"], positive=positive) as device:
        device.learn(TEXTS, bridged.planted_labels(releases["old"], TEXTS))
    with Device.open(tmp_path / "device") as device:
        chosen = "0" if positive == "0" else "1"
        assert device.positive == chosen
        other, column = device.labels[1 - int(chosen)], int(chosen)
        p = device.predict_proba(PROBES)
        assert device.predict(PROBES).tolist() == [device.labels[row] for row in p.argmax(axis=1)]
        for threshold in (0.1, np.float32(0.25), 0.5, 0.9):
            expected = [chosen if share > threshold else other for share in p[:, column]]
            assert device.predict(PROBES, threshold=threshold).tolist() == expected
        assert set(device.predict(PROBES, threshold=0)) == {chosen}
        assert set(device.predict(PROBES, threshold=1)) == {other}
        for wrong in (-0.1, 1.1, float("nan"), "0.5", [0.5]):
            with pytest.raises(DataError, match="a probability from 0 to 1"):
                device.predict(PROBES, threshold=wrong)


def test_the_order_of_a_releases_labels_changes_no_prediction(tmp_path, releases, labels):
    reordered = tmp_path / "turned.fala"
    opened = Bundle.open(releases["mid"])
    head = opened.head().in_order(("1", "0"))
    bundles.write_release(reordered, opened, head, {})
    (bridge,) = opened.bridges().values()
    add_bridge(reordered, Bundle.open(reordered), bridge, {})
    results = []
    for release in (releases["mid"], reordered):
        with Device.create(tmp_path / release.stem, releases["old"], positive="1") as device:
            device.learn(TEXTS, labels)
            device.replace(release, Budget(30))
            assert device.labels == ("0", "1") and device.positive == "1"
            results.append((device.predict_proba(PROBES), device.predict(PROBES)))
            device.learn(["good film"], ["1"])
            learned = device.predict_proba(PROBES)
        with Device.open(tmp_path / release.stem) as device:
            np.testing.assert_array_equal(device.predict_proba(PROBES), learned)
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-4)
    assert results[0][1].tolist() == results[1][1].tolist()


def test_a_release_may_add_labels_but_not_lose_any(tmp_path, encoded):
    three = bridged.write_releases(tmp_path, labels=("a", "c", "d"), bridges=False)
    (tmp_path / "four").mkdir()
    four = bridged.write_releases(tmp_path / "four", labels=("a", "b", "c", "d"), bridges=False)
    user_labels = bridged.planted_labels(three["old"], TEXTS)
    with Device.create(tmp_path / "device", three["old"]) as device:
        device.learn(TEXTS, user_labels)
        report = device.replace(four["mid"], Budget(60))
        assert device.labels == ("a", "c", "d", "b")
        assert report.labelled == 60 and device.predict_proba(PROBES).shape == (40, 4)
        assert device.learn(["good film"], ["b"]).labelled == 91
        with pytest.raises(BundleMismatchError, match="a, c, d"):
            device.replace(three["new"])
        # The earlier release does not know the label: the example waits for one that does.
        device.rollback()
        assert device.labels == ("a", "c", "d")
        assert device.learn(["bad film"], ["d"]).fitted == 91
        assert device.predict_proba(PROBES).shape == (40, 3)
        device.rollback()
        assert [row.label for row in device.examples(label="b")] == ["b"]
        assert device.fit().fitted == 61  # the label learned there is of a text it has not encoded


def test_a_release_without_finite_logits_is_not_installed(
    device, tmp_path, releases, labels, monkeypatch
):
    device.learn(TEXTS, labels)
    before = state(device)
    original = OnnxEncoder.encode
    with monkeypatch.context() as patch:
        patch.setattr(OnnxEncoder, "encode", lambda self, texts: original(self, texts) * np.nan)
        with pytest.raises(BundleFormatError, match="its logits are not finite on"):
            device.replace(releases["mid"])
    assert device.status().release == "old" and same(state(device), before)
    assert len(list((tmp_path / "device" / "bundles").iterdir())) == 1
    assert device.replace(releases["mid"], Budget(0)).decision == "personal"
