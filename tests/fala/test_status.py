"""A device tells its state and its releases' names, and reports what an operation did."""

import json
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

import fala
from bridged import PROBES, TEXTS
from devices import stored_in
from fala import Budget, Bundle, BundleDigestError, Device, DeviceError, Stopped
from fala.slots.installing import BUNDLES


def damage(path, release):
    """Damage an installed release."""
    file = path / BUNDLES / f"{Bundle.open(release).digest}.fala"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.unlink()
    file.write_bytes(data)


def plain_of(report):
    """Return a report's values, and check that they have the types of JSON."""
    values = report.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert same_types(values)
    assert "<table>" in report._repr_html_()
    assert str(report).endswith(".") and values.get("summary", str(report)) == str(report)
    return values


def same_types(value):
    if type(value) is dict:
        return all(type(name) is str and same_types(each) for name, each in value.items())
    if type(value) is list:
        return all(map(same_types, value))
    return value is None or type(value) in (str, int, float, bool)


def test_a_release_is_named_by_product_version_and_backbone(releases):
    bundle = Bundle.open(releases["old"])
    assert repr(bundle).startswith("<Bundle old: classification release, 8 dimensions, ")
    for details, title in (
        ({}, "old"), ({"version": 3}, "old v3"), ({"product": "comments"}, "comments (old)"),
        ({"product": "comments", "version": 3}, "comments v3 (old)"),
        ({"product": "old", "version": 3}, "old v3"),
    ):  # fmt: skip
        assert replace(bundle.manifest, details=details).title == title


# The state


def test_the_status_is_that_of_a_task(tmp_path, releases, labels):
    with Device.create(tmp_path / "device", releases["old"], positive="0") as device:
        device.remember(["no label yet", *TEXTS[:5]], [None, *labels[:5]])
        status = device.status()
        assert (status.release, status.previous, status.can_roll_back) == ("old", None, False)
        assert (status.decision, status.on_trial, status.fell_back) == ("vendor", False, None)
        assert (status.examples, status.labelled, status.positive) == (6, 5, "0")
        assert (status.task, status.labels) == (device.task, device.labels)
        assert (device.task, device.labels) == ("classification", ("0", "1"))
        with pytest.raises(FrozenInstanceError):
            status.examples = 7
        with pytest.raises(fala.UnknownAdapterError):
            device.status(adapter="none")


def test_waiting_are_the_texts_that_refine_encodes(device, releases, unbridged):
    report = device.replace(unbridged["mid"], Budget(7))
    assert 0 < report.waiting == device.status().waiting < len(TEXTS)
    refined = device.refine(Budget(4))
    assert device.status().waiting == refined.waiting == report.waiting - 4
    device.rollback()
    report = device.replace(releases["mid"], Budget(0))  # over a bridge
    assert report.waiting == device.status().waiting == 0


def test_reading_never_writes_and_leaves_a_failed_trial_to_operations(device, path, releases):
    with Device.open(path) as other:
        other.replace(releases["mid"], Budget(0))
    damage(path, releases["mid"])
    before = stored_in(path)
    assert " on old with " in repr(device)  # as this object knows it
    with pytest.raises(BundleDigestError):
        device.status()
    assert stored_in(path) == before
    assert np.isfinite(device.predict_proba(PROBES)).all()
    status = device.status()
    assert (status.release, status.on_trial, status.can_roll_back) == ("old", False, False)
    assert status.fell_back and status.fell_back in str(status)


def test_repr_never_raises(device, path, releases):
    with Device.open(path) as other:
        other.replace(releases["mid"], Budget(0))
        other.confirm()
    damage(path, releases["mid"])
    with pytest.raises(BundleDigestError):
        device.predict(PROBES)
    (path / "store.sqlite3").unlink()
    assert " on old with the personal model" in repr(device)
    for _ in range(2):
        device.close()
    assert "is closed" in repr(device)
    for call in (lambda: device.labels, device.status):
        with pytest.raises(DeviceError, match=r"this device is closed; .* fala\.Device\.open"):
            call()


# Changes of decisions


def test_changes_are_counted_on_left_out_examples(tmp_path, releases, labels):
    """A left-out example is decided as by a device that never had it."""
    texts, own = TEXTS[:14], [*labels[:14]]
    own[::3] = ["1" if label == "0" else "0" for label in own[::3]]
    wrong = {"old": [], "new": []}
    for place, text in enumerate(texts):
        rest = [texts[:place] + texts[place + 1 :], own[:place] + own[place + 1 :]]
        with Device.create(tmp_path / f"{place}", releases["old"]) as device:
            device.learn(*rest)
            wrong["old"].append(device.predict([text])[0] != own[place])
            device.replace(releases["mid"], Budget(0))
            wrong["new"].append(device.predict([text])[0] != own[place])
    with Device.create(tmp_path / "vendor", releases["mid"]) as device:
        of_vendor = np.mean(device.predict(texts) != np.array(own))
    with Device.create(tmp_path / "device", releases["old"]) as device:
        device.learn(texts, own)
        preview = device.preview(releases["mid"], Budget(0))
        changes = device.replace(releases["mid"], Budget(0)).changes
        ids = {row.id: texts.index(row.example) for row in device.examples()}
    assert preview.changes == changes
    assert (changes.examples, changes.estimated, changes.measure) == (14, 14, "error rate")
    assert changes.vendor == pytest.approx(100 * of_vendor)
    # Left out by a step of the fit's mathematics, not by a fit.
    assert changes.old == pytest.approx(100 * np.mean(wrong["old"]), abs=100 / 14)
    assert changes.new == pytest.approx(100 * np.mean(wrong["new"]), abs=100 / 14)
    flips = [ids[row] for row in changes.negative_flips]
    assert sum(not wrong["new"][place] or wrong["old"][place] for place in flips) <= 1
    more = changes.right_before_wrong_now - changes.wrong_before_right_now
    assert changes.new - changes.old == pytest.approx(100 * more / 14)


# Both models side by side


def test_both_models_decide(device, releases):
    before = device.predict(PROBES), device.predict_proba(PROBES)
    device.replace(releases["mid"], Budget(0))
    for _ in range(3):  # they do not count as predictions, of which 100 end a trial
        both = device.compare(PROBES)
    assert device.status().on_trial
    np.testing.assert_array_equal(both.before, before[0])
    np.testing.assert_array_equal(both.proba_before, before[1])
    np.testing.assert_array_equal(both.now, device.predict(PROBES))
    np.testing.assert_array_equal(both.proba_now, device.predict_proba(PROBES))
    assert both.differ.tolist() == (both.before != both.now).tolist() and both.differ.any()
    device.rollback()
    back = device.compare(PROBES)
    assert (back.old, back.new) == ("mid", "old") and back.now.tolist() == before[0].tolist()
    assert device.compare([]).differ.shape == (0,)


def test_a_comparison_without_another_model_is_an_error(device, path, releases):
    with pytest.raises(DeviceError, match="no earlier model is kept"):
        device.compare(PROBES)
    device.replace(releases["mid"], Budget(0))
    damage(path, releases["old"])
    with Device.open(path) as again:
        status = again.status()
        assert status.can_roll_back and status.previous is None
        with pytest.raises(DeviceError, match="the previous model is damaged"):
            again.compare(PROBES)


# Reports


def test_every_report_is_plain_values_and_a_sentence(device, path, releases):
    learned = device.learn(["one more", "and another"], ["1", None])
    assert plain_of(learned) == {
        "examples": 92, "labelled": 91, "fitted": 91, "waiting": 0, "decision": "personal",
        "reason": learned.reason, "exact": True, "scales": [*learned.scales],
        "loss": learned.loss, "scores": {},
    }  # fmt: skip
    preview = device.preview(releases["mid"], Budget(20))
    values = plain_of(preview)
    assert values["worse"] == preview.worse
    assert values["comparison"]["to_old"]["mean"] == preview.comparison.to_old.mean
    report = device.replace(releases["mid"], Budget(20))
    values = plain_of(report)
    assert values["stopped"] == "the budget is spent"
    assert values["worse"] == report.worse and values["old_loss"] == report.old_loss
    for part in ("counts", "instant", "comparison", "changes"):
        assert values[part] == getattr(report, part).to_dict()
    both = device.compare(PROBES[:5])
    values = plain_of(both)
    assert (values["now"], values["differ"]) == (both.now.tolist(), both.differ.tolist())
    assert plain_of(device.refine(Budget(0)))["new"] == "mid"
    assert plain_of(device.rollback())["new"] == "old"
    assert plain_of(device.status())["labels"] == ["0", "1"]
    assert plain_of(device.forget([1, 2])) == {"count": 2, "overwritten": True}
    device.close()
    values = plain_of(Device.examine(path))
    assert (values["whole"], values["problems"], values["active"]) == (True, [], "old")
    many = fala.replace_all([path], releases["new"], workers=1, budget=Budget(0))
    assert plain_of(many)["replaced"] == 1


def test_a_reason_to_stop_is_a_member_and_its_text(device, releases):
    report = device.replace(releases["mid"], Budget(0))
    assert report.stopped is None and report.to_dict()["stopped"] is None
    report = device.refine(Budget(5))
    assert report.stopped is Stopped.BUDGET == "the budget is spent"
    assert (report.changes.examples, report.changes.estimated) == (len(TEXTS), len(TEXTS) - 5)
    assert f"{report.stopped}" == str(report.stopped) == report.stopped.value
    assert json.dumps(report.stopped) == '"the budget is spent"'
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_rollback_says_what_it_did(device, releases):
    device.learn(["one more", "and another"], ["1", None])
    device.replace(releases["mid"], Budget(0))
    back = device.rollback()
    assert (back.old, back.new, back.decision) == ("mid", "old", "personal")
    assert (back.examples, back.labelled, back.refitted) == (92, 91, False)
    assert device.status().rolled_back
    device.learn(["a later one"], ["0"])
    forth = device.rollback()
    assert forth.refitted and forth.on_trial and forth.labelled == 92
    assert not device.status().rolled_back
