"""A damaged task changes no other task, and it keeps its examples."""

import numpy as np
import pytest

from adapter_releases import NAMES, PROBES, answers, equal
from device_command import run
from devices import unchecked
from fala import Budget, Bundle, Device


def repaired(folder):
    report = Device.repair(folder)
    assert report.whole
    return report, Device.open(folder)


def close(first, second, tolerance=1e-5):
    return first.keys() == second.keys() and all(
        np.abs(first[name] - second[name]).max() < tolerance for name in first
    )


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE slots SET weight = x'00'"],
        ["DELETE FROM slots WHERE name = 'one/a'"],
        ["DELETE FROM active WHERE adapter = 'one'"],
        ["DELETE FROM tasks WHERE adapter = 'one'",
         "UPDATE slots SET weight = x'00' WHERE name = 'two/a'"],
    ],
)  # fmt: skip
def test_the_models_of_damaged_tasks_are_fitted_again(folder, statements):
    with Device.open(folder) as device:
        before = answers(device)
    unchecked(folder, *statements)
    assert not Device.examine(folder).whole
    report, device = repaired(folder)
    with device:
        assert report.adapters.keys() == NAMES.keys() and None not in report.adapters.values()
        assert close(answers(device), before)


@pytest.mark.parametrize("lost", ["a release", "weights"])
def test_all_tasks_have_the_same_release_after_a_repair(folder, releases, lost):
    """The active one, to which all tasks were rolled back, or the one that is left."""
    with Device.open(folder) as device:
        old = answers(device)
        device.replace(releases["new"], Budget(0), adapters=releases["new adapters"])
        device.confirm()
        if lost == "weights":
            device.rollback()
    if lost == "weights":
        unchecked(folder, "UPDATE slots SET weight = x'00'")
    else:
        (folder / "bundles" / f"{Bundle.open(releases['new']).digest}.fala").unlink()
    report, device = repaired(folder)
    with device:
        assert report.active == "old encoder" and not device.status().can_roll_back
        assert close(answers(device), old, 0.05 if lost == "a release" else 1e-5)


def test_examples_of_a_missing_adapter_are_kept(folder, releases):
    with Device.open(folder) as device:
        before = answers(device)
    digest = Bundle.open(releases["old adapters"][0]).digest
    (folder / "bundles" / f"{digest}.fala").unlink()
    with Device.open(folder) as device:
        after = {name: device.predict_proba(PROBES, adapter=name or None) for name in ("", "three")}
        assert equal(after, {name: before[name] for name in after})
    report, device = repaired(folder)
    output = run("doctor", folder).output
    assert "adapter one: load it again; its examples are kept" in output
    assert "adapter three: " in output and "adapter three: load" not in output
    with device:
        assert report.adapters["one"] is None and device.status().adapters == ("three", "two")
        assert close(answers(device), {n: before[n] for n in before if n != "one"})
        device.load_adapter(releases["old adapters"][0])
        assert device.status(adapter="one").examples == 40
        np.testing.assert_allclose(
            device.predict_proba(PROBES, adapter="one"), before["one"], atol=1e-5
        )


def test_examples_of_a_lost_adapter_are_kept_beside_another_release(folder, releases):
    """No record of the adapter is left, and no release is whole."""
    tables = ("active", "tasks", "slots")
    unchecked(folder, *(f"DELETE FROM {table} WHERE adapter = 'one'" for table in tables))
    for file in (folder / "bundles").iterdir():
        file.write_bytes(b"no bundle")
    report = Device.repair(folder, releases["old"])
    assert report.whole and report.adapters["one"] is None
    with Device.open(folder) as device:
        device.load_adapter(releases["old adapters"][0])
        assert device.status(adapter="one").examples == 40


def test_a_damaged_task_name_is_repaired(folder):
    with Device.open(folder) as device:
        before = answers(device)
        gone = next(device.examples(adapter="three")).id
    unchecked(
        folder,
        "UPDATE active SET adapter = 'on/e' WHERE adapter = 'one'",
        f"UPDATE examples SET adapter = x'ff' WHERE id = {gone}",
    )
    report, device = repaired(folder)
    with device:
        assert (report.lost, report.examples) == (1, 159)
        assert gone not in [row.id for row in device.examples(adapter="three")]
        assert close(answers(device), before, 0.2)  # a label of "three" is lost
