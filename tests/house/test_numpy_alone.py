"""Devices where nothing but NumPy is installed, and neither threads nor processes start."""

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from checkout import ROOT

#: Modules that phones and browsers lack, or may lack.
ABSENT = (
    "ctypes,_ctypes,fcntl,grp,lzma,_lzma,multiprocessing,_multiprocessing,_posixsubprocess,pwd,"
    "resource,ssl,_ssl,subprocess,syslog,termios"
)
if sys.version_info < (3, 11):  # where platform, which NumPy needs, imports it
    ABSENT = ABSENT.replace(",_posixsubprocess", "").replace(",subprocess", "")
#: Steps after which the process is killed, a process each.
KILLS = (1, 6)


def start(folder, without):
    folders = "recipes", "sdk", "export", "device_sim"
    paths = [*(ROOT / name for name in folders), Path(np.__file__).parents[1]]
    return subprocess.Popen(
        [
            sys.executable, "-S", ROOT / "tests" / "support" / "alone.py",
            folder, without, "word vectors",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_devices_live_with_numpy_alone_and_are_killed(tmp_path):
    """Learn, replace, refine, forget, repair and erase, each of them interrupted somewhere."""
    steps = 0
    for kill, without in zip((*KILLS, None), itertools.cycle([ABSENT, ""]), strict=False):
        with start(tmp_path / "lives", without) as process:
            for line in process.stdout:
                steps += ": " in line
                if steps == kill:
                    time.sleep(random.uniform(0, 0.05))
                    process.kill()
                    break
            else:
                assert kill is None
    assert (process.returncode, line) == (0, "all lives ended\n")
    written = (tmp_path / "lives" / "done").read_text().split("\n")
    assert len(written) == len(set(written)) == 13 + 1
