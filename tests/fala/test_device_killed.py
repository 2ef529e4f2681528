"""A device whose process is killed in the middle of a replacement."""

import shutil

import numpy as np
import pytest

from device_setups import LABELS, PROBES, TEXTS, files_of, write_setups
from fala.device import Device
from fala.testing import PowerCuts
from kill_replacement import cuts_of, kill_at


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    return write_setups(tmp_path_factory.mktemp("releases"))


class TestKilled:
    """A process killed in the middle of a replacement leaves the old model or the new one."""

    @pytest.fixture(scope="class")
    def prepared(self, tmp_path_factory, releases):
        folder = tmp_path_factory.mktemp("killed")
        old, new, _ = releases["binary"]
        with Device.create(folder / "device", old) as device:
            device.learn(TEXTS, LABELS)
            before = device.predict(PROBES)
        shutil.copytree(folder / "device", folder / "replaced")
        with Device.open(folder / "replaced") as device:
            device.replace(new)
            after = device.predict(PROBES)
        assert np.abs(before - after).max() > 1e-3
        return folder / "device", new, before, after

    def found(self, prepared, folder):
        """Whether a killed device answers as the new model; it must go on from there."""
        _, new, before, after = prepared
        with Device.open(folder) as device:
            answers = device.predict(PROBES)
            is_new = np.array_equal(answers, after)
            assert is_new or np.array_equal(answers, before)
            assert device.name == ("tiny encoder" if is_new else "tiny vectors")
            assert device.can_roll_back == is_new
            # It goes on as if nothing had been, and what was left behind is swept away.
            report = device.replace(new)
            assert report.examples == len(TEXTS)
            if not is_new:
                np.testing.assert_array_equal(device.predict(PROBES), after)
            device.rollback()
            np.testing.assert_array_equal(device.predict(PROBES), before)
            assert len(files_of(folder)) == 2
        return is_new

    @pytest.mark.parametrize(
        ("point", "is_new"),
        [
            ("encode", False), ("probe", False), ("progress:forward", False),
            ("progress:commit", False), ("copy", False), ("install", False),
            ("put_slot", False), ("prune", False), ("commit", True),
        ],
    )  # fmt: skip
    def test_at_a_point(self, prepared, tmp_path, point, is_new):
        source, new, *_ = prepared
        folder = shutil.copytree(source, tmp_path / "device")
        kill_at(point, folder, new)
        assert self.found(prepared, folder) == is_new

    def test_at_random_moments(self, prepared, tmp_path):
        source, new, *_ = prepared
        for cut in cuts_of(source, new, tmp_path).at_instants(8):
            self.found(prepared, cut.folder)

    @pytest.mark.parametrize("unsynced", ["kept", "lost"])
    def test_at_every_end_of_something(self, prepared, tmp_path, unsynced):
        """Where a file is flushed, gets its name or goes; with what was not flushed, and without.

        Once the new model answers, it does so to the end.
        """
        source, new, *_ = prepared
        cuts = cuts_of(source, new, tmp_path)
        ends = cuts.at_operations({"sync", "rename", "delete"}, unsynced=unsynced)
        answers = [self.found(prepared, cut.folder) for cut in ends]
        assert answers == sorted(answers)
        assert set(answers) == {False, True}

    def test_in_torn_writes(self, prepared, tmp_path):
        source, new, *_ = prepared
        for cut in cuts_of(source, new, tmp_path).at_operations(count=10, unsynced="some"):
            self.found(prepared, cut.folder)


@pytest.mark.parametrize("unsynced", ["kept", "lost"])
def test_what_is_forgotten_is_forgotten_by_the_model_at_once(releases, tmp_path, unsynced):
    """Killed at any moment: all examples and the old answers, or the others and the new ones."""
    with Device.create(tmp_path / "device", releases["binary"][0]) as device:
        device.learn(TEXTS, LABELS)
        ids = [each.id for each in device.examples()][:20]
        before = device.predict(PROBES)

    def forget(folder, say):
        with Device.open(folder) as device:
            say(device.forget(ids))

    with Device.open(shutil.copytree(tmp_path / "device", tmp_path / "whole")) as device:
        device.forget(ids)
        after = device.predict(PROBES)
    assert np.abs(before - after).max() > 1e-3
    found = []
    cuts = PowerCuts(forget, tmp_path / "device", scratch=tmp_path)
    for cut in cuts.at_operations({"sync", "delete"}, unsynced=unsynced):
        with Device.open(cut.folder) as device:
            kept = len(list(device.examples()))
            assert kept == len(TEXTS) - 20 if cut.said else kept in (len(TEXTS), len(TEXTS) - 20)
            expected = before if kept == len(TEXTS) else after
            np.testing.assert_array_equal(device.predict(PROBES), expected)
        found.append(kept)
    assert set(found) == {len(TEXTS), len(TEXTS) - 20}
