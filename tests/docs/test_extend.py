"""A method, a data set and an experiment, a file each as in docs/extend.md, run and are shown."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from checkout import ROOT
from laboratory import write_data
from sim_command import works
from snippets import blocks

pytestmark = pytest.mark.slow

#: Runs commands, with their jobs in the same process, and prints their status and outputs.
PROGRAM = """
import json, sys
from click.testing import CliRunner
from driver import InProcess
from fala_sim import engine
from fala_sim.cli import main
engine.open_engine = lambda *_, **__: InProcess()
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, command, prog_name="fala-sim")
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""


def added_setting():
    """The entry of SETTINGS that the page shows."""
    page = (ROOT / "docs/extend.md").read_text(encoding="utf-8")
    (setting,) = re.findall(r'`("nearest-mean": .+?)`', page)
    return setting


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """Outputs of the commands of an extended laboratory, in a child process."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "fala_sim"
    shutil.copytree(ROOT / "device_sim/fala_sim", package)  # with what Python has compiled
    page = [block.text for block in blocks("python") if block.page == "docs/extend.md"]
    (text,) = [block for block in page if "class NearestMean" in block]
    (package / "methods/nearest_mean.py").write_text(text)
    (text,) = [block for block in page if "def read(" in block]
    (package / "data/formats/answers.py").write_text(text)
    (text,) = [block for block in page if "def length(" in block]
    (package / "experiments/lengths.py").write_text(text)
    tests = (ROOT / "tests/fala_sim/test_methods.py").read_text()
    (root / "test_methods.py").write_text(
        tests.replace("SETTINGS = {\n", f"SETTINGS = {{\n    {added_setting()},\n")
    )
    rows = root / "users.jsonl"
    data = write_data(root / "data", annotators=5, documents=50)
    works("convert", "lewidi", data, "--users", 2, "--out", rows)
    paths = [root, ROOT / "sdk", ROOT / "export", ROOT / "tests/support"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}

    results = ("--results", str(root / "results"))
    run = ("--run", "--data", f"rows:{rows}", "--users", "2", "--new", "bert")
    source = root / "answers"
    source.mkdir()
    posts = [{"text": f"post {n}", "who": who, "label": n % 2} for n in range(30) for who in "abc"]
    (source / "answers.jsonl").write_text("\n".join(map(json.dumps, posts)))
    commands = {
        "headline": [
            "table", "headline", *run, "--methods", "global,nearest-mean", "--json", *results,
        ],
        "table 2": ["table", "2", "--json", *results],
        "figure": ["figure", "scores", *results],
        "convert": ["convert", "answers", str(source), "--users", "1"],
        "experiment": ["table", "lengths", *run, "--json", *results],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(list(commands.values()))],
        env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    outputs = dict(zip(commands, map(json.loads, done.stdout.splitlines()), strict=True))
    return outputs | {"tests": (root, environment)}


def test_a_registered_method_has_its_row_in_the_headline_and_table_2(extended):
    for name in ("headline", "table 2"):
        status, printed, errors = extended[name]
        assert status == 0, errors
        table = json.loads(printed)
        method, area = (table["header"].index(name) for name in ("method", "AUC"))
        assert {row[method]: row[area] for row in table["rows"]}["Nearest mean"]["mean"] > 0.5
    status, printed, errors = extended["figure"]
    assert "Nearest mean 0." in printed, errors


@pytest.mark.thorough
def test_an_added_method_passes_the_tests_of_methods(extended):
    root, environment = extended["tests"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "nearest-mean",
         "test_methods.py"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "passed" in tested.stdout and "failed" not in tested.stdout


def test_an_experiment_is_added_by_one_file(extended):
    """Its command, its options, its jobs and its table."""
    status, printed, errors = extended["experiment"]
    assert status == 0, errors
    table = json.loads(printed)
    assert table["title"] == "Lengths of people's texts"
    (row,) = table["rows"]
    assert row[table["header"].index("characters")]["mean"] > 100


def test_a_data_set_is_added_by_one_file(extended):
    status, printed, errors = extended["convert"]
    assert status == 0, errors
    assert {json.loads(line)["user"] for line in printed.splitlines()} == {"a", "b", "c"}


def test_too_few_people_for_users_are_reported(extended):
    """The second of two people is a validation user."""
    assert "too few people for --users 2: 1 of them are test users" in extended["headline"][2]
