"""A device of several tasks whose process is killed in the middle of a change of all of them."""

import shutil

import numpy as np
import pytest

from adapter_releases import PROBES, answers, equal, learned_device, write_ages
from fala import Device
from fala.testing import PowerCuts

FURTHER = ("one",)


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    made = write_ages(tmp_path_factory.mktemp("releases"))
    return made | {"new adapters": made["new adapters"][: len(FURTHER)]}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, releases):
    """A folder of three tasks, and what they answer before and after a replacement."""
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
    """Whether all tasks of a killed device are new; they are new, or old, together."""
    with Device.open(folder) as device:
        assert device.adapters == FURTHER
        found = answers(device)
        new = equal(found, after)
        assert new or equal(found, before)
        assert device.name == ("new encoder" if new else "old encoder")
        assert device.can_roll_back == new
        if new:
            device.rollback()
            assert equal(answers(device), before)
        return new


@pytest.mark.parametrize(("unsynced", "count"), [("lost", None), ("some", 4)])
def test_at_every_end_of_something(prepared, releases, tmp_path, unsynced, count):
    """Where a file is flushed, gets its name or goes; once all are new, they are to the end."""
    cuts = PowerCuts(lambda folder, _: replace(folder, releases), prepared[0], scratch=tmp_path)
    kinds = {"sync", "rename", "delete"} if count is None else None
    ends = cuts.at_operations(kinds, count=count, unsynced=unsynced)
    found = [is_new(cut.folder, *prepared[1:]) for cut in ends]
    assert found == sorted(found) and (count or set(found) == {False, True})


def test_a_task_is_loaded_or_is_not(prepared, releases, tmp_path):
    source, before, _ = prepared

    def work(folder, say):
        with Device.open(folder) as device:
            say(device.load_adapter(releases["old adapters"][0], name="four"))

    cuts = PowerCuts(work, source, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        with Device.open(cut.folder) as device:
            loaded = "four" in device.adapters
            assert loaded or not cut.said
            found = answers(device)
            assert loaded == ("four" in found)
            found.pop("four", None)
            assert equal(found, before)
            if loaded:
                assert device.predict(PROBES, adapter="four").shape == (len(PROBES), 2)


def test_a_task_is_deleted_or_is_whole(prepared, tmp_path):
    source, before, _ = prepared

    def work(folder, say):
        with Device.open(folder) as device:
            device.delete_adapter("one")
            say("deleted")

    cuts = PowerCuts(work, source, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename", "delete"}, unsynced="lost"):
        with Device.open(cut.folder) as device:
            found = answers(device)
            assert "one" in found or equal(found, {n: before[n] for n in before if n != "one"})
            assert "one" not in found or (equal(found, before) and not cut.said)
