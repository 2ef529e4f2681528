"""Every benchmark runs with small options; its figures are not checked."""

import json
import signal
import subprocess
import sys
import time

import pytest

from adapter_releases import write_release_for_adapters
from checkout import ROOT

BENCHMARKS = ROOT / "benchmarks"

#: Options that make a benchmark small, and the ratio (or the count) that each is for.
SMALL = {
    "scale.py": ("ratio", "--examples", 300, "--dimension", 16),
    "costs.py": ("one_more_label_to_fit", "--examples", 220, "--repeats", 1),
    "damaged.py": ("tries", "--count", 2),
    "families.py": ("families", "--family", "bert"),
    "faults.py": ("tries", "--count", 2, "--only", "learn"),
    "hostile.py": ("tries", "--count", 6),
    "kills.py": ("tries", "--count", 3, "--only", "learn"),
    "logits.py": ("cosine", "--texts", 20),
    "no_blas.py": ("labels", "--labels", 30, "--dimension", 8, "--repeats", 1),
    "readings.py": ("files", "--count", 20),
    "release_scale.py": ("rows", "--rows", 8000),
    "replacement.py": ("ratio", "--documents", 60, "--budget", 10, "--repeats", 1),
    "sharing.py": ("whole_share", "--rounds", 2, "--seconds", 3, "--examples", 50),
    "tasks.py": ("disk_in_releases", "adaptable.fala", "--tasks", 2, "--repeats", 3),
    "threads.py": ("answers", "--seconds", 0.3, "--readers", 2),
    "users.py": (
        "disk_after_kilobytes_a_user", "--users", 20, "--labels", 20, "--pool", 30, "--passes", 5,
        "--old", "glove", "--new", "bert",
    ),
}  # fmt: skip


def run(name, *arguments, folder):
    command = [sys.executable, BENCHMARKS / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_every_benchmark_has_a_small_run():
    assert {file.name for file in BENCHMARKS.glob("*.py")} == set(SMALL)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """A folder of bundles for a benchmark."""
    folder = tmp_path_factory.mktemp("bundles")
    write_release_for_adapters(folder / "adaptable.fala")
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


@pytest.mark.thorough
def test_an_interrupted_benchmark_reports_its_results_and_resumes(tmp_path):
    journal = tmp_path / "journal.jsonl"
    command = [
        sys.executable, BENCHMARKS / "hostile.py", "--count", "5", "--journal", journal, "--json",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        deadline = time.monotonic() + 90
        while not (journal.exists() and journal.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    record = json.loads(printed)
    assert process.returncode == 130
    assert record["interrupted"] == f"after {record['tries']} of 5"
    recorded = journal.read_text()
    journal.write_text(recorded + '[{"how": "cut sh')  # as after a kill in the middle of a line
    done = run("hostile.py", "--count", 5, "--journal", journal, "--json", folder=tmp_path)
    assert json.loads(done.stdout)["tries"] == 5
    assert journal.read_text().startswith(recorded)
    assert journal.read_text().count("\n") == 5
