"""A device whose process is killed in the middle of a replacement."""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from checkout import SUPPORT
from device_setups import LABELS, PROBES, TEXTS, files_of, write_setups
from fala.device import Device


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
            started = time.perf_counter()
            device.replace(new)
            took = time.perf_counter() - started
            after = device.predict(PROBES)
        assert np.abs(before - after).max() > 1e-3
        return folder / "device", new, before, after, took

    def kill(self, prepared, folder, point, seconds=0.0):
        source, new, before, after, _ = prepared
        shutil.copytree(source, folder)
        script = SUPPORT / "kill_replacement.py"
        command = [sys.executable, str(script), str(folder), str(new), point, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGKILL, done.stderr
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
            # The release that answers, and the earlier one; by now that may be the same.
            assert len(files_of(folder)) == (1 if is_new else 2)
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
        assert self.kill(prepared, tmp_path / "device", point) == is_new

    def test_at_random_moments(self, prepared, tmp_path):
        took = prepared[-1]
        for attempt, share in enumerate(np.random.default_rng(0).uniform(0, 1.5, size=8)):
            self.kill(prepared, tmp_path / str(attempt), "timer", share * took)
