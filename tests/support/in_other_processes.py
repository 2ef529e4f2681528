"""Functions that other processes import: called for items, or as a program."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from fala.device import Device


def thread_and_process(item):
    """Where an item is done, and how; a library prints."""
    print("a line of a library", flush=True)
    os.write(1, b"and of one in C\n")
    return item, os.getpid(), os.environ["OMP_NUM_THREADS"], (os.getsid(0), os.nice(0))


def die_once(item):
    """End this process at an item's first call."""
    mark = Path(item)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def die_at(item):
    """End this process at every negative item."""
    if item < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def use(folder, release, *texts):
    """Predict and learn until that is replaced and the texts are learned; print the failures."""
    left, wrong = list(texts), 0
    with Device.open(folder) as device:
        print("open", flush=True)
        while left or device.status().release != release:
            wrong += not np.isfinite(device.predict_proba(["a text of this user"])).all()
            if left:
                device.learn([left.pop()], ["1"])
    print(wrong, flush=True)


if __name__ == "__main__":
    use(*sys.argv[1:])
