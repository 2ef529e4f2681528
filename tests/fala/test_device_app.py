"""An app remembers examples, fits, lists what the device keeps, and reads its labels."""

import numpy as np
import pytest

import bridged
import fala
from bridged import PROBES, TEXTS
from devices import assert_ranked_by, embedded, same, state
from fala import Budget, BundleMismatchError, Device


@pytest.fixture
def device(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["old"]) as device:
        yield device


# Remembering and fitting


def test_remembered_examples_count_after_the_fit(device, tmp_path, releases, labels):
    before = state(device)
    ids = device.remember(TEXTS, labels)
    assert len(set(ids)) == len(TEXTS) and device.remember(TEXTS[:3]) == ids[:3]
    assert same(state(device), before) and embedded(tmp_path / "device", releases["old"]) == set()
    report = device.fit()
    assert (report.examples, report.labelled, report.fitted) == (90, 90, 90)
    assert report.exact and report.decision == "personal"
    assert len(report.scales) == 3  # the embeddings', the slope's and the bias's
    with Device.create(tmp_path / "other", releases["old"]) as reference:
        reference.learn((text for text in TEXTS), (label for label in labels))
        assert same(state(reference), state(device))


def test_a_remembered_example_waits_for_a_pass_of_the_transformer(
    tmp_path, releases, labels, encoded
):
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        device.remember(TEXTS[:40], labels[:40])
        report = device.fit()
        assert (encoded, report.fitted, report.examples) == ([], 0, 40)
        refined = device.refine(Budget(30))
        assert len(encoded) == refined.forward_passes == refined.counts.representatives == 30
        assert (refined.waiting, refined.decision) == (10, "personal")
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


def test_nothing_inside_can_be_changed_through_a_result(device):
    before, model = device.predict_proba(PROBES), device.model
    for array in (model.weight, model.bias, model.head.weight, model.head.bias):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    device.predict_proba(PROBES)[...] = 0
    device.predict(PROBES)[...] = device.labels[0]
    np.testing.assert_array_equal(device.predict_proba(PROBES), before)


def test_a_relative_folder_survives_a_change_of_directory(releases, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with Device.create("relative", releases["old"]) as device:
        monkeypatch.chdir(elsewhere)
        device.learn(TEXTS[:4], ["0", "1"] * 2)
        device.replace(releases["mid"], Budget(5))
        device.rollback()
        assert len([*device.examples()]) == 4
    assert [*elsewhere.iterdir()] == []
    elsewhere.rmdir()
    with pytest.raises(fala.DeviceError, match="working directory is gone"):
        Device.open("relative")


# The positive label, and added labels


@pytest.mark.parametrize("positive", [None, "0"])
def test_a_threshold_is_for_the_positive_label(tmp_path, releases, labels, positive):
    with Device.create(tmp_path / "device", releases["old"], positive=positive) as device:
        device.learn(TEXTS, labels)
    with Device.open(tmp_path / "device") as device:
        chosen, other = ("0", "1") if positive else ("1", "0")
        assert device.positive == chosen
        p = device.predict_proba(PROBES)
        assert device.predict(PROBES).tolist() == [device.labels[row] for row in p.argmax(axis=1)]
        for threshold in (0, 0.1, np.float32(0.25), 0.9, 1):
            expected = [chosen if share > threshold else other for share in p[:, int(chosen)]]
            assert device.predict(PROBES, threshold=threshold).tolist() == expected


@pytest.mark.parametrize(("chosen", "positive"), [(None, "d"), ("a", "a")])
def test_a_release_may_add_labels_but_not_lose_any(tmp_path, chosen, positive):
    two, three = (
        bridged.write_releases(tmp_path / name, labels=tuple(name), bridges=False)
        for name in ("ad", "abd")
    )
    with Device.create(tmp_path / "device", two["old"], positive=chosen) as device:
        device.learn(TEXTS, bridged.planted_labels(two["old"], TEXTS))
        assert_ranked_by(device, positive)
        report = device.replace(three["mid"], Budget(60))
        assert (device.labels, report.labelled) == (("a", "d", "b"), 60)
        assert_ranked_by(device, positive)
        assert device.learn(["good film"], ["b"]).labelled == 91
        with pytest.raises(BundleMismatchError, match="a, d"):
            device.replace(two["new"])
        # The earlier release does not know the label: the example waits for one that does.
        device.rollback()
        assert device.labels == ("a", "d")
        assert_ranked_by(device, positive)
        assert device.learn(["bad film"], ["d"]).fitted == 91
        device.rollback()
        assert [row.label for row in device.examples(label="b")] == ["b"]
        assert device.fit().fitted == 61  # the label learned there is of a text it has not encoded
