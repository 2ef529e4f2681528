"""What an app does with a device: remember, fit, list examples, and read its labels."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest

import bridged
import bundles
from bridged import PROBES, TEXTS
from devices import embedded, same, state
from fala.base.errors import BundleMismatchError, DataError, DeviceError
from fala.bundle.reading import Bundle
from fala.device import Device
from fala.personal.run import Budget
from fala.slots.folder import Task
from fala_export import add_bridge


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
    fitted = state(device)
    with Device.create(tmp_path / "other", releases["old"]) as reference:
        reference.learn(TEXTS, labels)
        assert same(state(reference), fitted)


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


def test_a_further_label_counts_at_once_and_is_close_to_a_fit(tmp_path, labels, releases):
    random = np.random.default_rng(3)
    texts = sorted({" ".join(random.choice(bridged.WORDS, size=8)) for _ in range(260)})
    user_labels = bridged.planted_labels(releases["old"], texts)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        assert device.learn(texts[:240], user_labels[:240]).exact
        before = device.predict_proba(PROBES)
        report = device.learn(texts[240:243], user_labels[240:243])
        assert not report.exact and report.fitted == 243
        added = device.predict_proba(PROBES)
        assert np.abs(added - before).max() > 1e-6
        # A label that is changed counts, too, and the old one no longer does.
        opposite = ["1" if user_labels[0] == "0" else "0"]
        report = device.learn(texts[:1], opposite)
        assert not report.exact and report.fitted == report.labelled == 243  # it counts once
        changed = device.predict_proba(PROBES)
        assert not device.learn(texts[:1], user_labels[:1]).exact
        np.testing.assert_allclose(device.predict_proba(PROBES), added, atol=1e-4)
        assert np.abs(changed - added).max() > 1e-3
        # A full fit chooses its scales again: the result is close.
        report = device.fit()
        assert report.exact and report.fitted == 243
        np.testing.assert_allclose(device.predict_proba(PROBES), added, atol=0.02)


def test_a_label_whose_commit_failed_counts_with_the_next_fit(tmp_path, releases, monkeypatch):
    texts = [f"{first} {second}" for first in TEXTS[:25] for second in TEXTS[25:36]]
    labels = bridged.planted_labels(releases["old"], texts)
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(texts[:270], labels[:270])
        with monkeypatch.context() as patch:
            patch.setattr(Task, "commit", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                device.learn(texts[270:272], labels[270:272])
        report = device.learn(texts[272:], labels[272:])
        # The first two wait for their embeddings, which were not committed either.
        assert (report.fitted, report.waiting, report.exact) == (273, 2, False)
        before = device.predict_proba(PROBES)
        assert device.fit().fitted == 275
        np.testing.assert_allclose(device.predict_proba(PROBES), before, atol=0.02)


# Examples, and the device itself


def test_examples_have_ids_labels_and_times(device):
    ids = device.remember(["good", "bad", "film"], ["1", 0, None])
    rows = list(device.examples())
    assert [(row.id, row.example, row.label) for row in rows] == [
        (ids[0], "good", "1"), (ids[1], "bad", "0"), (ids[2], "film", None),
    ]  # fmt: skip
    assert all(row.added > 1.7e9 for row in rows)
    assert [row.labelled is None for row in rows] == [False, False, True]
    assert [row.id for row in device.examples(labelled=True)] == ids[:2]
    assert [row.id for row in device.examples(labelled=False)] == ids[2:]
    assert [row.id for row in device.examples(label=0)] == ids[1:2]
    assert list(device.examples(labelled=False, label="1")) == []


def test_generators_are_accepted(device, labels):
    report = device.learn((text for text in TEXTS), (label for label in labels))
    assert (report.examples, report.labelled) == (90, 90)
    shares = device.predict_proba(text for text in PROBES)
    np.testing.assert_array_equal(shares, device.predict_proba(PROBES))


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
    with pytest.raises(DeviceError, match="working directory is gone"):
        Device.open("relative")


def test_a_device_logs_what_it_does(device, releases, labels, caplog):
    device.learn(TEXTS, labels)
    with caplog.at_level(logging.INFO, logger="fala"):
        device.replace(releases["mid"], Budget(30))
        device.rollback()
        device.fit()
    messages = " ".join(record.getMessage() for record in caplog.records)
    for message in ("old -> mid", "went from mid back to old", "fitted to"):
        assert message in messages
    assert {record.name.partition(".")[0] for record in caplog.records} == {"fala"}


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
