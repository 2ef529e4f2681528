"""A device needs no further thread and no further process."""

import subprocess
import sys

import pytest

from checkout import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_transformer_runs_where_no_thread_and_no_process_starts(tmp_path, fala_releases):
    """Neither onnxruntime nor tokenizers starts one, and the release is not blamed for it."""
    releases = fala_releases["glove"], fala_releases["bert"]
    script = ROOT / "tests" / "support" / "process_limit.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "device", *releases],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
