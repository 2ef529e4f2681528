"""Every benchmark runs, on little: what it measures then says nothing, but that it measures."""

import json
import subprocess
import sys

import pytest

from checkout import ROOT

BENCHMARKS = ROOT / "benchmarks"

#: Options that make a benchmark small, and the ratio that each is for.
SMALL = {
    "clustering.py": ("ratio_to_kmeans", "--examples", 300, "--dimension", 16, "--groups", 10),
    "encoding.py": ("ratio", "--texts", 20, "--repeats", 1),
    "hostile.py": ("bundles", "--count", 6),
    "imports.py": ("ratio", "--repeats", 1, "--limit", 1000),
    "learning.py": ("ratio", "--examples", 60, "--further", 3, "--dimension", 20),
    "ngrams.py": ("times_as_fast", "--texts", 20, "--repeats", 1),
    "replacement.py": ("ratio", "--documents", 60, "--budget", 10, "--repeats", 1),
    "solve.py": (
        "clock_ratio", "--examples", 20, "--dimension", 30, "--repeats", 2, "--labels", 60,
    ),
    "word_vectors.py": ("processor_ratio", ".", "--words", 500, "--dimension", 20),
}  # fmt: skip


def run(name, *arguments, folder):
    command = [sys.executable, BENCHMARKS / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_every_benchmark_is_here():
    assert {file.name for file in BENCHMARKS.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures_a_ratio_to_its_peer(name, tmp_path):
    ratio, *small = SMALL[name]
    done = run(name, *small, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[ratio] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_import_above_its_limit_fails(tmp_path):
    done = run("imports.py", "--repeats", 1, "--limit", 0.01, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.endswith(", at most 0.01\n")
