"""Functions that other processes import, and call for items."""

import os
import signal
from pathlib import Path


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
