"""Every report is plain values, too: ``to_dict`` is what JSON gives back."""

import json
import pickle

from bridged import TEXTS
from fala import Budget, Device, Stopped


def plain_of(report):
    """A report's plain values, which are those that JSON has, to the type."""
    values = report.to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert same_types(values)
    assert "<table>" in report._repr_html_()
    return values


def same_types(value):
    if type(value) is dict:
        return all(type(name) is str and same_types(each) for name, each in value.items())
    if type(value) is list:
        return all(map(same_types, value))
    return value is None or type(value) in (str, int, float, bool)


def test_every_report_is_plain_values(device, path, releases):
    learned = device.learn(["one more", "and another"], ["1", None])
    assert plain_of(learned) == {
        "examples": 92, "labelled": 91, "fitted": 91, "waiting": 0, "decision": "personal",
        "reason": learned.reason, "exact": True, "scales": [*learned.scales],
        "loss": learned.loss, "scores": {},
    }  # fmt: skip
    preview = device.preview(releases["mid"], Budget(20))
    values = plain_of(preview)
    assert values["worse"] == preview.worse and values["summary"] == str(preview)
    assert values["comparison"]["to_old"]["mean"] == preview.comparison.to_old.mean
    report = device.replace(releases["mid"], Budget(20))
    values = plain_of(report)
    assert values["stopped"] == "the budget is spent"
    assert values["worse"] == report.worse and values["old_loss"] == report.old_loss
    assert values["summary"] == str(report)
    assert values["counts"]["fits"][0] == plain_of(report.counts)["fits"][0]
    assert values["instant"] == plain_of(report.instant)
    assert values["comparison"] == plain_of(report.comparison)
    assert plain_of(device.refine(Budget(0)))["new"] == "mid"
    assert plain_of(device.compare(TEXTS[:2]))["new"] == "mid"
    assert plain_of(device.rollback())["new"] == "old"
    assert plain_of(device.forget([1, 2])) == {"count": 2, "overwritten": True}
    device.close()
    examined = Device.examine(path)
    values = plain_of(examined)
    assert values["whole"] is True and values["problems"] == []
    assert values["active"] == "old"


def test_a_reason_to_stop_is_a_member_and_its_text(device, releases):
    report = device.replace(releases["mid"], Budget(0))
    assert report.stopped is None and report.to_dict()["stopped"] is None
    report = device.refine(Budget(5))
    assert report.stopped is Stopped.BUDGET == "the budget is spent"
    assert f"{report.stopped}" == str(report.stopped) == report.stopped.value
    assert f"was refined: {Stopped.BUDGET}." in str(report)
    assert json.dumps(report.stopped) == '"the budget is spent"'
    assert pickle.loads(pickle.dumps(report)) == report
    while (report := device.refine(Budget(90))).stopped is not Stopped.ALL_ENCODED:
        assert report.stopped in (Stopped.BUDGET, Stopped.SETTLED)
    assert report.counts.representatives == len(TEXTS)


def test_a_refinement_of_nothing_says_so(tmp_path, releases):
    with Device.create(tmp_path / "device", releases["mid"]) as device:
        assert device.refine().stopped is Stopped.NO_LABEL
        device.remember(TEXTS)
        assert device.refine(Budget(2)).stopped is Stopped.BUDGET
