"""A damaged task changes no other task, and keeps its examples."""

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
    assert "slot three/a (active): whole" in output
    with device:
        assert report.adapters["one"] is None and tuple(device.adapters) == ("three", "two")
        assert equal(answers(device), {n: before[n] for n in before if n != "one"})
        device.load_adapter(releases["old adapters"][0])
        assert device.adapters["one"].examples == 40
        np.testing.assert_allclose(
            device.predict_proba(PROBES, adapter="one"), before["one"], atol=1e-5
        )


def test_a_rebuilt_store_keeps_every_task(folder):
    with Device.open(folder) as device:
        before = answers(device)
        ids_of = {n: [row.id for row in device.examples(adapter=n or None)] for n in before}
    with closing(sqlite3.connect(folder / "store.sqlite3")) as db:
        db.execute("PRAGMA user_version = -1")
    report, device = repaired(folder)
    with device:
        assert report.aside and report.examples == 160
        for name, ids in ids_of.items():
            assert [row.id for row in device.examples(adapter=name or None)] == ids
        for name, p in answers(device).items():
            np.testing.assert_allclose(p, before[name], atol=1e-5)


def test_a_damaged_task_name_is_repaired(folder):
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
        assert (report.lost, report.examples, tuple(device.adapters)) == (
            1,
            159,
            tuple(sorted(NAMES)),
        )
        assert gone not in [row.id for row in device.examples(adapter="three")]
        assert equal(answers(device), before)  # the models change at the next fit
