"""The vendor's commands, as the laboratory runs them."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")

RUN = "import sys; from fala_sim.vendor import exporter; exporter._run(*sys.argv[1:])"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name")
def test_a_killed_laboratory_leaves_no_command_running(tmp_path):
    """The command waits for vectors from a pipe, which breaks when nobody reads it any more."""
    vectors = tmp_path / "vectors.txt"
    os.mkfifo(vectors)
    arguments = ["word-vectors", vectors, "--out", tmp_path / "x.fala"]
    laboratory = subprocess.Popen([sys.executable, "-c", RUN, *map(str, arguments)])
    writer = os.open(vectors, os.O_WRONLY)  # waits for the command
    try:
        os.write(writer, b"the 0.5 0.5\n")
        laboratory.send_signal(signal.SIGKILL)
        assert laboratory.wait() == -signal.SIGKILL
        end = time.monotonic() + 60
        with pytest.raises(BrokenPipeError):
            while time.monotonic() < end:
                os.write(writer, b"of 0.5 0.5\n")
                time.sleep(0.05)
    finally:
        os.close(writer)
    assert not (tmp_path / "x.fala").exists()
