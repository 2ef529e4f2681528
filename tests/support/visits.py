"""Visits of the demo's page: real devices and the sample releases."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

from fala_sim.playground.page.visit import Visit


def opened(folder):
    """A visit on a folder, ready."""
    visit = Visit(folder)
    visit.start()
    settle(visit)
    return visit


def settle(visit):
    """Wait for the running job."""
    thread = visit._worker._thread
    if thread is not None:
        thread.join()
    assert visit.view["failed"] is None
    assert visit.view["busy"] is None


@contextmanager
def served(folder, *options, errors=None):
    """A server in a process of its own; the process and the address of its page.

    Args:
        folder: Of its devices.
        options: Of ``fala demo``.
        errors: The open file of its standard error; None for that of the tests.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fala", "demo", "--no-browser", "--json"]
    process = subprocess.Popen(
        [*command, "--device-dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
    )
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()
