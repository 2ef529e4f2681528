"""A device of several tasks survives a kill while all of them change."""

import shutil

import numpy as np
import pytest

from adapter_releases import PROBES, answers, equal, learned_device, write_ages
from fala import Device
from fala.testing import PowerCuts

FURTHER = ("one",)


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    paths = write_ages(tmp_path_factory.mktemp("releases"))
    return paths | {"new adapters": paths["new adapters"][: len(FURTHER)]}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, releases):
    """Make a folder of two tasks; return it with its answers before and after a replacement."""
    folder = tmp_path_factory.mktemp("killed")
    with learned_device(folder / "device", releases, FURTHER) as device:
        before = answers(device)
    shutil.copytree(folder / "device", folder / "replaced")
    with Device.open(folder / "replaced") as device:
        device.replace(releases["new"], adapters=releases["new adapters"])
        after = answers(device)
    assert not any(np.array_equal(before[name], after[name]) for name in before)
    return folder / "device", before, after


def replace(folder, releases):
    with Device.open(folder) as device:
        device.replace(releases["new"], adapters=releases["new adapters"])


def is_new(folder, before, after):
    """Return whether the tasks of a killed device are new; all are new, or all are old."""
    with Device.open(folder) as device:
        assert device.status().adapters == FURTHER
        p = answers(device)
        new = equal(p, after)
        assert new or equal(p, before)
        assert device.status().release == ("new encoder" if new else "old encoder")
        assert device.status().can_roll_back == new
        if new:
            device.rollback()
            assert equal(answers(device), before)
        return new


@pytest.mark.parametrize(("unsynced", "count"), [("lost", None), ("some", 4)])
def test_a_killed_replacement_is_whole(prepared, releases, tmp_path, unsynced, count):
    """The process dies at every flush, rename and deletion; tasks that are new stay new."""
    cuts = PowerCuts(lambda folder, _: replace(folder, releases), prepared[0], scratch=tmp_path)
    kinds = {"sync", "rename", "delete"} if count is None else None
    cut_points = cuts.at_operations(kinds, count=count, unsynced=unsynced)
    states = [is_new(cut.folder, *prepared[1:]) for cut in cut_points]
    assert states == sorted(states) and (count or set(states) == {False, True})


def test_a_killed_load_loads_the_task_or_changes_nothing(prepared, releases, tmp_path):
    source, before, _ = prepared

    def load(folder, report):
        with Device.open(folder) as device:
            report(device.load_adapter(releases["old adapters"][0], name="four"))

    cuts = PowerCuts(load, source, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        with Device.open(cut.folder) as device:
            loaded = "four" in device.status().adapters
            assert loaded or not cut.said
            p = answers(device)
            assert loaded == ("four" in p)
            p.pop("four", None)
            assert equal(p, before)
            if loaded:
                assert device.predict_proba(PROBES, adapter="four").shape == (len(PROBES), 2)


def test_a_killed_deletion_deletes_the_task_or_keeps_it_whole(prepared, tmp_path):
    source, before, _ = prepared

    def delete(folder, report):
        with Device.open(folder) as device:
            device.delete_adapter("one")
            report("deleted")

    cuts = PowerCuts(delete, source, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        with Device.open(cut.folder) as device:
            p = answers(device)
            assert "one" in p or equal(p, {n: before[n] for n in before if n != "one"})
            assert "one" not in p or (equal(p, before) and not cut.said)
