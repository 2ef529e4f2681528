"""An app remembers and lists examples, fits, ranks candidates, and reads its labels."""

import numpy as np
import pytest

import bridged
import fala
from bridged import PROBES, TEXTS
from devices import assert_ranked_by, embedded, same, sql, state
from fala import Budget, BundleMismatchError, DataError, Device, Match, Stopped


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
        assert device.refine().stopped is Stopped.NO_LABEL
        device.remember(TEXTS[:40], labels[:40])
        report = device.fit()
        assert (encoded, report.fitted, report.examples) == ([], 0, 40)
        refined = device.refine(Budget(30))
        assert len(encoded) == refined.forward_passes == refined.counts.representatives == 30
        assert (refined.waiting, refined.decision) == (10, "personal")
        assert refined.stopped is Stopped.BUDGET
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


# The order of candidates


def test_a_classifier_ranks_by_probability(device):
    p = device.predict_proba(PROBES)[:, 1]
    ranked = device.rank(PROBES)
    assert [text for text, _ in ranked] == [PROBES[at] for at in np.argsort(-p, kind="stable")]
    np.testing.assert_array_equal([share for _, share in ranked], np.sort(p)[::-1])
    assert device.rank(iter(PROBES), top=3) == device.rank(PROBES, top=np.int64(3)) == ranked[:3]
    assert device.rank(PROBES, top=0) == device.rank([]) == []
    assert device.rank(PROBES, label="0")[0][0] == ranked[-1][0]
    equal = [TEXTS[0], TEXTS[0] + " ", TEXTS[0]]  # they keep their order
    ranked = device.rank([*equal[:1], TEXTS[1], *equal[1:]])
    assert [text for text, _ in ranked if text != TEXTS[1]] == equal


def test_a_matcher_ranks_for_a_history(tmp_path):
    releases = bridged.write_releases(tmp_path, task="matching", query=True)
    examples = bridged.matches()
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(examples, bridged.planted_labels(releases["old"], examples))
        history = tuple(TEXTS[:3])
        p = device.predict_proba([Match(history, text) for text in PROBES])[:, 1]
        ranked = device.rank(PROBES, history=list(history), top=5)
        assert [text for text, _ in ranked] == [PROBES[at] for at in np.argsort(-p)[:5]]
        other_history = device.rank(PROBES, history=TEXTS[5:8], top=5)
        assert other_history != ranked


# The positive label, and added labels


def test_the_positive_label_of_three_lasts(tmp_path):
    """It outlives labels, a replacement, a rollback, the process and a repair."""
    three = bridged.write_releases(tmp_path, labels=("a", "b", "c"))
    with Device.create(tmp_path / "none", three["old"]) as device:
        assert device.positive is None
        with pytest.raises(DataError, match="pass label=, one of a, b, c"):
            device.rank(PROBES)
        p = device.predict_proba(PROBES)[:, 2]
        assert device.rank(PROBES, label="c")[0] == (PROBES[p.argmax()], p.max())
    folder = tmp_path / "device"
    with Device.create(folder, three["old"], positive="b") as device:
        device.learn(TEXTS, bridged.planted_labels(three["old"], TEXTS))
        decided = np.array(device.labels)[device.predict_proba(PROBES).argmax(axis=1)]
        assert device.predict(PROBES).tolist() == decided.tolist()  # it changes no decision
        device.replace(three["mid"], Budget(10))
        assert_ranked_by(device, "b")
        device.rollback()
    sql(folder, "UPDATE slots SET weight = x'00'")
    assert Device.repair(folder).actions
    with Device.open(folder) as device:
        assert_ranked_by(device, "b")


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


def test_a_release_may_add_labels_but_not_lose_any(tmp_path):
    two, three = (
        bridged.write_releases(tmp_path / name, labels=tuple(name), bridges=False)
        for name in ("ad", "abd")
    )
    with Device.create(tmp_path / "device", two["old"]) as device:
        device.learn(TEXTS, bridged.planted_labels(two["old"], TEXTS))
        report = device.replace(three["mid"], Budget(60))
        assert (device.labels, report.labelled) == (("a", "d", "b"), 60)
        assert_ranked_by(device, "d")  # it was the positive one of two
        assert device.learn(["good film"], ["b"]).labelled == 91
        with pytest.raises(BundleMismatchError, match="a, d"):
            device.replace(two["new"])
        # The earlier release does not know the label: the example waits for one that does.
        device.rollback()
        assert device.labels == ("a", "d")
        assert device.learn(["bad film"], ["d"]).fitted == 91
        device.rollback()
        assert [row.label for row in device.examples(label="b")] == ["b"]
        assert device.fit().fitted == 61  # the label learned there is of a text it has not encoded
