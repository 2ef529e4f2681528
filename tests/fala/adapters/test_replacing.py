"""A replacement moves all tasks, and so does a rollback."""

import json

import numpy as np
import pytest

from adapter_releases import NAMES, PROBES, TEXTS, answers, equal, learned_device, write_adapter_for
from bundles import make_head
from fala import Budget, Bundle, Device, DeviceError, WorseModelError, replace_all
from fala_export import add_bridge, write_release
from fala_export.fit.bridge import fit_bridge


def test_a_replacement_shares_passes_and_a_rollback_is_exact(device, releases):
    before = answers(device)
    report = device.replace(releases["new"], Budget(400), adapters=releases["new adapters"])
    assert set(report.adapters) == set(NAMES)
    # Each task has 40 texts; one and two share 38, and have the same weights.
    one, two, three = (report.adapters[name] for name in NAMES)
    assert (report.forward_passes, three.forward_passes) == (40, 40)
    assert (one.forward_passes, two.forward_passes) == (40, 2)
    assert (one.counts.representatives, two.counts.representatives) == (40, 40)
    assert one.new == "one on new encoder" and one.decision != "vendor"
    assert json.dumps(report.to_dict())
    after = answers(device)
    assert device.status().release == "new encoder" and device.status().on_trial
    assert not any(np.array_equal(before[name], after[name]) for name in before)
    device.rollback()
    assert equal(answers(device), before)
    device.rollback()
    assert equal(answers(device), after)


def test_of_many_devices_each_takes_the_adapters_of_its_tasks(tmp_path, folder, releases):
    single = tmp_path / "single"
    learned_device(single, releases, names=["one"]).close()
    files = dict(zip(NAMES, releases["new adapters"], strict=True))
    result = replace_all([folder, single], releases["new"], budget=Budget(5), workers=1)
    assert {failure.error for failure in result.failures} == {"MissingAdapterError"}
    result = replace_all(
        [folder, single], releases["new"], budget=Budget(8), workers=1, adapters=files
    )
    assert (result.replaced, result.failed) == (2, 0)
    assert result.forward_passes + result.shared == 16
    for path, tasks in ((folder, set(NAMES)), (single, {"one"})):
        with Device.open(path) as device:
            assert (device.status().release, set(device.status().adapters)) == (
                "new encoder",
                tasks,
            )


def test_the_budget_is_for_all_tasks(device, releases):
    report = device.replace(releases["new"], Budget(20), adapters=releases["new adapters"])
    reports = [report, *report.adapters.values()]
    assert sum(each.forward_passes for each in reports) == 20
    assert all(each.counts.representatives > 0 for each in reports)
    refined = device.refine(Budget(10), adapter="three")
    assert refined.forward_passes == 10 and device.status(adapter="three").examples == 40


def test_a_worse_model_of_any_task_is_rejected(device, releases, monkeypatch):
    worse = releases["new adapters"][1]

    def refuse(comparison, accept, path):
        if path == worse:
            raise WorseModelError(f"{path}: worse for this user", 0.4, 0.5)

    monkeypatch.setattr("fala.personal.replace.refuse_worse", refuse)
    before = answers(device)
    with pytest.raises(WorseModelError, match=r"two\.fala: worse for this user"):
        device.replace(
            releases["new"], Budget(0), adapters=releases["new adapters"], accept="better-than-old"
        )
    assert equal(answers(device), before) and not device.status().can_roll_back


def test_an_adapter_may_add_labels(device, releases, tmp_path):
    new = Bundle.open(releases["new"])
    more = write_adapter_for(tmp_path / "more.fala", new, "one", labels=("1", "0", "2"))
    device.replace(new.path, adapters=[more.path, *releases["new adapters"][1:]])
    assert device.status(adapter="one").labels == ("0", "1", "2")
    device.learn(["good film"], ["2"], adapter="one")
    assert device.predict_proba(PROBES, adapter="one").shape == (len(PROBES), 3)
    device.rollback()
    assert device.status(adapter="one").labels == ("0", "1")


def test_an_adapter_that_fits_the_new_release_is_kept(device, releases, tmp_path):
    base = Bundle.open(releases["old"])
    write_release(tmp_path / "head.fala", base, make_head(seed=77), {"head": "other"})
    before = answers(device)
    device.replace(tmp_path / "head.fala", Budget(0))
    after = answers(device)
    assert not np.array_equal(before[""], after[""])
    for name in NAMES:
        np.testing.assert_allclose(after[name], before[name], atol=0.05)


def test_a_later_adapter_prevents_the_rollback(folder, device, releases, tmp_path):
    for name in ("two", "three"):
        device.delete_adapter(name)
    device.replace(releases["new"], adapters=releases["new adapters"][:1])
    device.load_adapter(releases["new adapters"][2])
    assert not device.status().on_trial
    before = answers(device)
    with pytest.raises(DeviceError, match="the adapter three was loaded after the last replacem"):
        device.rollback()
    assert equal(answers(device), before)
    device.delete_adapter("three")
    device.learn(["good film"], ["1"], adapter="one")
    device.rollback()
    assert device.status().release == "old encoder" and device.status(adapter="one").examples == 41


def test_a_damaged_adapter_makes_all_tasks_fall_back(folder, releases):
    with Device.open(folder) as device:
        before = answers(device)
        device.replace(releases["new"], adapters=releases["new adapters"])
        device.learn(["said on trial"], ["1"], adapter="three")
    new = Bundle.open(releases["new adapters"][0]).digest
    (folder / "bundles" / f"{new}.fala").write_bytes(b"damaged")
    with Device.open(folder) as device:
        after = answers(device)
        assert device.status().release == "old encoder" and new in device.status().fell_back
        assert equal({n: after[n] for n in ("", "one", "two")},
                     {n: before[n] for n in ("", "one", "two")})  # fmt: skip
        # The label of the trial is kept, and counts once the old backbone encodes its text.
        assert device.status(adapter="three").examples == 41
        assert device.refine(adapter="three").forward_passes == 1
        assert not device.status().can_roll_back


def test_bridges_carry_all_tasks_over_without_a_pass(device, releases, tmp_path):
    old, new = Bundle.open(releases["old"]), Bundle.open(releases["new"])
    texts = [f"{first} {second}" for first in TEXTS[:16] for second in TEXTS[20:36]]
    bridged = []
    for path, target in zip(
        (releases["old"], *releases["old adapters"]),
        (releases["new"], *releases["new adapters"]), strict=True,
    ):  # fmt: skip
        before, after = Bundle.open(path), Bundle.open(target)
        spaces = []
        for base, bundle in ((old, before), (new, after)):
            adapter = () if bundle.base is None else (bundle.adapter(),)
            spaces.append(base.backbone().encode(texts, *adapter))
        bridged.append(tmp_path / target.name)
        add_bridge(bridged[-1], after, fit_bridge(before.backbone_digest, *spaces), {})
    report = device.replace(bridged[0], Budget(0), adapters=bridged[1:])
    for each in (report, *report.adapters.values()):
        assert (each.forward_passes, each.counts.representatives, each.bridged) == (0, 0, 40)
        assert each.instant is not None and each.decision != "vendor"
    refined = device.refine(Budget(5), adapter="two")
    assert (refined.forward_passes, refined.counts.representatives) == (5, 5)
    # Task one has the same adapter: the embeddings of two count for it.
    assert device.refine(Budget(0), adapter="one").counts.representatives >= 3
