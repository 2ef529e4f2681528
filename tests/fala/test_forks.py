"""What a forked process may do with a device that its parent has open."""

import os
import subprocess
import sys

import pytest

from checkout import SUPPORT
from fala.device import Device

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")


def test_a_fork_ends_and_opens_its_own_device(tmp_path, releases):
    Device.create(tmp_path / "device", releases["mid"]).close()
    script = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        SUPPORT / "fork_with_device.py",
        tmp_path / "device",
    ]
    for _ in range(3):
        run = subprocess.run(script, capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
