"""Processes that have imported a vendor's libraries already: that takes longer than their work.

One server process imports them, once for all tests of a run; every process is its copy. What an
import itself does, and what is read from the environment during one, takes a process of its own.
"""

import atexit
import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

#: Modules that import all of what the vendor's commands and the laboratory's jobs do, most of it in
#: their functions.
PRELOADED = [
    "fala_sim.experiments.replacement.jobs",
    "sklearn.metrics",
    "fala_export.cli",
    "fala_export.bundle.backbone",
    "fala_export.training.global_model",
    "fala_export.training.release",
    "fala_export.training.saving",
    "fala_export.training.adapters.release",
    "fala_export.models.onnx_graph",
    "transformers.models.bert.modeling_bert",
    "transformers.trainer",
    "onnxscript",
    "torch._dynamo",
    "share_traces",
]
_server = None


def processes():
    """The context whose processes are copies of the server."""
    global _server
    context = multiprocessing.get_context("forkserver")
    running = forkserver._forkserver
    if _server is None or running._forkserver_pid != _server:
        running._stop()  # one that the laboratory started has imported less
        context.set_forkserver_preload(PRELOADED)
        with pytest.MonkeyPatch.context() as patch:  # the server's path is the environment's
            patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
            forkserver.ensure_running()
        _server = running._forkserver_pid
    return context


class Program:
    """A Python program in a warm process, as ``python -c`` would run it.

    Attributes:
        pid: Of its process.
    """

    def __init__(self, code, *arguments, folder, file_limit=None, environment=None):
        """Start it.

        Args:
            code: What runs.
            arguments: Of its command line.
            folder: Where files with what it prints are written.
            file_limit: The size in bytes that no file of its may pass.
            environment: Its environment; without it this process's own.
        """
        environment = dict(os.environ) if environment is None else environment
        self._printed = [folder / f"{name}-of-a-program.txt" for name in ("stdout", "stderr")]
        self._process = processes().Process(
            target=_run,
            args=(code, list(map(str, arguments)), self._printed, environment, file_limit),
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        """How it ended, as a shell is told; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self, timeout):
        """Wait until it ends; return how it ended and what it printed."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired("a program", timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._printed)
        return subprocess.CompletedProcess([], self._process.exitcode, out, err)


def until(reached, running):
    """Wait until a process has come to somewhere, or ended."""
    latest = time.monotonic() + 100
    while time.monotonic() < latest and running.poll() is None and not reached():
        time.sleep(0.01)


def die(target, *arguments):
    """Call what kills its own process, and check that it did."""
    process = processes().Process(target=target, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def run(code, *arguments, folder, timeout=120, environment=None):
    """Run a program to its end."""
    return Program(code, *arguments, folder=folder, environment=environment).wait(timeout)


def _run(code, arguments, printed, environment, file_limit):
    for path, stream in zip(printed, (sys.stdout, sys.stderr), strict=True):
        with path.open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # chosen anew, by this environment
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        atexit._run_exitfuncs()  # which the end of a copy leaves out
