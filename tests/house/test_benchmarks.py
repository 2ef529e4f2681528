"""Every benchmark runs with small options; its figures are not checked."""

import json
import subprocess
import sys

import pytest

from adapter_releases import write_release_for_adapters
from bundles import onnx_files, onnx_manifest, write_onnx
from checkout import ROOT
from fala.bundle.format import ONNX_MODEL
from fala_export import write_bundle
from optional_graphs import optional_model

BENCHMARKS = ROOT / "benchmarks"

#: Options that make a benchmark small, and the ratio (or the count) that each is for.
SMALL = {
    "accepting.py": ("people", "--people", 4),
    "scale.py": ("ratio", "--examples", 300, "--dimension", 16),
    "damaged.py": ("tries", "--count", 2),
    "embedding.py": ("finding_ratio", "--keys", 2000),
    "encoding.py": ("ratio", "--texts", 20, "--repeats", 1),
    "families.py": ("families", "--family", "bert"),
    "faults.py": ("tries", "--count", 2, "--only", "learn"),
    "hostile.py": ("tries", "--count", 6),
    "kills.py": ("tries", "--count", 3, "--only", "learn"),
    "logits.py": ("cosine", "--texts", 20),
    "no_blas.py": ("labels", "--labels", 30, "--dimension", 8, "--repeats", 1),
    "readings.py": ("files", "--count", 20),
    "replace_all.py": ("users", "--users", 4, "--labels", 20, "--pool", 30, "--passes", 5),
    "replacement.py": ("ratio", "--documents", 60, "--budget", 10, "--repeats", 1),
    "sharing.py": ("whole_share", "--rounds", 2, "--seconds", 3),
    "switching.py": ("switched_ratio", "plain.fala", "optional.fala", "--repeats", 3),
    "tasks.py": ("disk_in_releases", "adaptable.fala", "--tasks", 2),
    "users.py": ("users", "--users", 40, "--labels", 20),
}  # fmt: skip


def run(name, *arguments, folder):
    command = [sys.executable, BENCHMARKS / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_every_benchmark_has_a_small_run():
    assert {file.name for file in BENCHMARKS.glob("*.py")} == set(SMALL)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """A folder of bundles for some benchmarks."""
    folder = tmp_path_factory.mktemp("bundles")
    write_release_for_adapters(folder / "adaptable.fala")
    write_onnx(folder / "plain.fala")
    files = {**onnx_files(), ONNX_MODEL: optional_model()}
    write_bundle(folder / "optional.fala", onnx_manifest(), files)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs_with_small_options(name, tmp_path, bundles):
    ratio, *small = SMALL[name]
    small = [bundles / option if str(option).endswith(".fala") else option for option in small]
    done = run(name, *small, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[ratio] > 0
    assert list(tmp_path.iterdir()) == []
