"""A damaged task costs no other task anything, and its own examples stay."""

import sqlite3
from contextlib import closing

import numpy as np

from adapter_releases import NAMES, PROBES, answers, equal
from device_command import run
from fala import Bundle, Device


def repaired(folder):
    report = Device.repair(folder)
    assert report.whole
    return report, Device.open(folder)


def test_a_damaged_slot_falls_back_or_is_fitted_again(folder):
    with Device.open(folder) as device:
        before = answers(device)
    db = sqlite3.connect(folder / "store.sqlite3")
    with db:
        db.execute("UPDATE slots SET weight = x'00' WHERE name = 'one/a'")
    db.close()
    assert Device.examine(folder).slots["one/a"] != "whole"
    report, device = repaired(folder)
    with device:
        assert (report.fit, report.fit_adapters) == (False, ("one",))
        assert report.adapters["one"] == "one/a"
        after = answers(device)
        np.testing.assert_allclose(after.pop("one"), before.pop("one"), atol=1e-5)
        assert equal(after, before)


def test_examples_wait_for_an_adapter_that_is_gone(folder, releases):
    with Device.open(folder) as device:
        before = answers(device)
    digest = Bundle.open(releases["old adapters"][0]).digest
    (folder / "bundles" / f"{digest}.fala").unlink()
    with Device.open(folder) as device:
        after = {name: device.predict(PROBES, adapter=name or None) for name in ("", "three")}
        assert equal(after, {name: before[name] for name in after})
    report, device = repaired(folder)
    told = run("doctor", folder).output
    assert "adapter one: load it again; its examples are kept" in told
    assert "slot three/a (active): whole" in told
    with device:
        assert report.adapters["one"] is None and device.adapters == ("three", "two")
        assert equal(answers(device), {n: before[n] for n in before if n != "one"})
        device.load_adapter(releases["old adapters"][0])
        assert device.adapter("one").examples == 40
        np.testing.assert_allclose(device.predict(PROBES, adapter="one"), before["one"], atol=1e-5)


def test_a_store_that_is_written_anew_keeps_every_task(folder):
    with Device.open(folder) as device:
        before = answers(device)
        kept = {name: [row.id for row in device.examples(adapter=name or None)] for name in before}
    with closing(sqlite3.connect(folder / "store.sqlite3")) as db:
        db.execute("PRAGMA user_version = 3")
    report, device = repaired(folder)
    with device:
        assert report.aside and report.examples == 160
        for name, ids in kept.items():
            assert [row.id for row in device.examples(adapter=name or None)] == ids
        for name, found in answers(device).items():
            np.testing.assert_allclose(found, before[name], atol=1e-5)


def test_a_damaged_name_is_no_task(folder):
    with Device.open(folder) as device:
        before = answers(device)
        gone = next(device.examples(adapter="three")).id
    db = sqlite3.connect(folder / "store.sqlite3")
    with db:
        db.execute("UPDATE active SET adapter = 'on/e' WHERE adapter = 'one'")
        db.execute("UPDATE examples SET adapter = x'ff' WHERE id = ?", (gone,))
    db.close()
    report, device = repaired(folder)
    with device:
        assert (report.lost, report.examples, device.adapters) == (1, 159, tuple(sorted(NAMES)))
        assert gone not in [row.id for row in device.examples(adapter="three")]
        assert equal(answers(device), before)  # what was fitted stays till the next fit
