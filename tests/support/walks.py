"""Visits of the demo's page: real devices and the sample releases."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

from fala.playground.page.visit import Walk


def opened(folder):
    """A walk on a folder, ready."""
    walk = Walk(folder)
    walk.start()
    settle(walk)
    return walk


def settle(walk):
    """Wait for what is under way."""
    thread = walk._worker._thread
    if thread is not None:
        thread.join()
    assert walk.view["failed"] is None
    assert walk.view["busy"] is None


@contextmanager
def served(folder, *options):
    """A server in a process of its own; the process and the address of its page."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fala.playground.page", "--no-browser", "--json"]
    process = subprocess.Popen(
        [*command, "--device-dir", str(folder), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()
