"""A method that is not ours, added as docs/extend.md says, is run and has its row everywhere."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from checkout import ROOT
from fala_sim.cli import main
from laboratory import write_data
from snippets import blocks

pytestmark = pytest.mark.slow

PROGRAM = "from fala_sim.cli import main; main(prog_name='fala-sim')"


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """Call a command of a laboratory that has the page's method, in a process of its own."""
    root = tmp_path_factory.mktemp("extended")
    package = root / "fala_sim"
    shutil.copytree(ROOT / "device_sim/fala_sim", package,
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    page = [one.text for one in blocks("python") if one.page == "docs/extend.md"]
    (text,) = [one for one in page if "class NearestMean" in one]
    (package / "methods/nearest_mean.py").write_text(text)
    (text,) = [one for one in page if "def read(" in one]
    (package / "convert/answers.py").write_text(text)
    rows = root / "users.jsonl"
    converted = CliRunner().invoke(
        main,
        ["convert", "lewidi", str(write_data(root / "data")), "--users", "2", "--out", str(rows)],
    )
    assert converted.exit_code == 0, converted.output
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), str(ROOT / "sdk"), str(ROOT / "export")])
    }

    def call(*words):
        more = () if words[0] == "convert" else ("--results", str(root / "results"))
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *words, *more],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    ran = call(
        "table", "headline", "--run", "--data", f"rows:{rows}", "--users", "2", "--new", "bert",
        "--methods", "global,fala,nearest-mean", "--jobs", "2", "--json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return call, ran


def test_a_registered_method_has_its_row_in_the_headline_and_table_2(extended):
    call, ran = extended
    for shown in (ran, call("table", "2", "--json")):
        assert shown.returncode == 0, shown.stderr
        table = json.loads(shown.stdout)
        method, area = (table["header"].index(name) for name in ("method", "AUC"))
        assert {row[method]: row[area] for row in table["rows"]}["Nearest mean"]["mean"] > 0.5
    drawn = call("figure", "scores")
    assert "Nearest mean 0." in drawn.stdout, drawn.stderr


def test_a_data_set_is_one_file(extended, tmp_path):
    rows = [{"text": f"post {n}", "who": who, "label": n % 2} for n in range(30) for who in "abc"]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = extended[0]("convert", "answers", str(tmp_path), "--users", "1")
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["user"] for line in done.stdout.splitlines()} == {"a", "b", "c"}


def test_too_few_people_for_the_users_asked_for_are_named(extended):
    """The second of two people is a validation user, which the run says."""
    assert "too few people for --users 2: 1 of them are tested" in extended[1].stderr
