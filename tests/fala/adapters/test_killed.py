"""A device of several tasks survives a kill while all of them change."""

import shutil

import numpy as np
import pytest

from adapter_releases import answers, equal, learned_device
from fala import Device
from fala.testing import PowerCuts


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, releases):
    """Make a folder of two tasks; return it with its answers before and after a replacement."""
    folder = tmp_path_factory.mktemp("killed")
    with learned_device(folder / "device", releases, ["one"]) as device:
        before = answers(device)
    shutil.copytree(folder / "device", folder / "replaced")
    with Device.open(folder / "replaced") as device:
        device.replace(releases["new"], adapters=releases["new adapters"][:1])
        after = answers(device)
    assert not any(np.array_equal(before[name], after[name]) for name in before)
    return folder / "device", before, after


def is_new(folder, before, after):
    """Return whether the tasks of a killed device are new; all are new, or all are old."""
    with Device.open(folder) as device:
        p = answers(device)
        new = equal(p, after)
        assert new or equal(p, before)
        assert device.status().release == ("new encoder" if new else "old encoder")
        assert device.status().can_roll_back == new
        if new:
            device.rollback()
            assert equal(answers(device), before)
        return new


@pytest.mark.parametrize("unsynced", ["lost", "some"])
def test_a_killed_replacement_is_whole(prepared, releases, tmp_path, unsynced):
    """The process dies at a flush, rename or deletion, or anywhere; tasks that are new stay new."""

    def replace(folder, _):
        with Device.open(folder) as device:
            device.replace(releases["new"], adapters=releases["new adapters"][:1])

    cuts = PowerCuts(replace, prepared[0], scratch=tmp_path)
    kinds = {"sync", "rename", "delete"} if unsynced == "lost" else None
    chosen = cuts.at_operations(kinds, count=6, unsynced=unsynced)
    states = [is_new(cut.folder, *prepared[1:]) for cut in chosen]
    assert states == sorted(states) and (kinds is None or set(states) == {False, True})


@pytest.mark.parametrize("operation", ["load", "delete"])
def test_a_killed_load_or_deletion_is_whole(prepared, releases, tmp_path, operation):
    source, before, _ = prepared
    few = {name: values for name, values in before.items() if name != "one"}

    def act(folder, report):
        with Device.open(folder) as device:
            if operation == "delete":
                device.delete_adapter("one")
            else:
                device.load_adapter(releases["old adapters"][0], name="four")
            report("done")

    cuts = PowerCuts(act, source, scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "rename", "delete"}, count=6, unsynced="lost"):
        with Device.open(cut.folder) as device:
            p = answers(device)
            loaded, deleted = "four" in p, "one" not in p
            assert not cut.said or (loaded if operation == "load" else deleted)
            p.pop("four", None)
            assert equal(p, few if deleted else before)
