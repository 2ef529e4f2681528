"""``fala-replace`` simulates users: its figures, its data, its mistakes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from bundles import make_head, write_onnx_release, write_word_vector_release, write_word_vectors
from command_lines import SCRIPTS, data_rows, fails, jsonl, result_of, run, said, told

METRICS = ("auc", "f1", "accuracy")
MODELS = ["old_personal", "new_global", "instant", "fala"]


def untimed(result):
    """A result without its seconds."""
    result = json.loads(json.dumps(result))
    for figures in (*result["users"], result["mean"]):
        del figures["seconds"]
        del figures["instant"]["seconds"]
    return result


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Arguments of a walk from tiny vectors to a tiny transformer."""
    folder = tmp_path_factory.mktemp("tiny")
    write_word_vector_release(folder / "old.fala")
    write_onnx_release(folder / "new.fala")
    return "--old", folder / "old.fala", "--new", folder / "new.fala"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(data_rows()))
    return path


def check_figures(figures):
    assert figures["seconds"]["total"] > 0
    for metric in METRICS:
        assert list(figures[metric]) == MODELS
        assert all(value is None or 0 <= value <= 1 for value in figures[metric].values())


def check_result(result, budget, bridged=True):
    assert {"old", "new", "data", "bridge", "users", "mean"} <= set(result)
    assert result["budget"] == budget
    assert result["bridge"].startswith("none") != bridged
    for user in result["users"]:
        assert isinstance(user["user"], str)
        assert user["documents"] > 0
        assert 0 <= user["forward_passes"] <= budget
        assert user["decision"] in ("personal", "calibrated", "vendor")
        assert (user["instant"] is not None) == bridged
        assert (user["f1"]["instant"] is not None) == bridged
        if bridged:
            assert 0 < user["instant"]["seconds"] < user["seconds"]["total"]
        check_figures(user)
    check_figures(result["mean"])
    for metric in METRICS:
        values = [user[metric]["fala"] for user in result["users"]]
        if None not in values:
            assert result["mean"][metric]["fala"] == pytest.approx(sum(values) / len(values))


def test_the_built_in_models_as_json():
    result = result_of("--old", "glove", "--new", "bert", "--users", 2)
    check_result(result, 20)
    assert (result["old"], result["new"]) == ("glove", "bert")
    assert "synthetic" in result["data"]
    assert result["bridge"] == "learned on 2000 public texts"
    assert len(result["users"]) == 2
    for user in result["users"]:
        assert user["forward_passes"] == 20
    # What is to be seen: the person is there at once, far above the vendor's model, and better
    # after a few passes than on the old backbone.
    auc = result["mean"]["auc"]
    assert auc["new_global"] + 0.05 < auc["instant"] < auc["fala"]
    assert auc["old_personal"] - 0.01 < auc["instant"] and auc["old_personal"] < auc["fala"]


def test_a_walk_as_a_table(tiny, data):
    done = run(*tiny, "--users", 1)
    assert done.returncode == 0
    for part in (
        "synthetic", "AUC", "F1", "accuracy", "instant", "forwards", "decision",
        "at most 20 forward passes", "bridge: learned on 2000", "\nu1 ", "\nmean ",
    ):  # fmt: skip
        assert part in done.stdout
    assert said(done.stderr) == ""
    done = run(*tiny, "--data", data, "--budget", 7)
    assert "at most 7 forward passes" in done.stdout
    assert "\nThe personal model is kept for " in done.stdout and " of 2 users" in done.stdout


def test_a_walk_without_a_bridge_says_so(tiny, tmp_path):
    (tmp_path / "few.jsonl").write_text(jsonl(data_rows(public=8)))
    command = *tiny, "--data", tmp_path / "few.jsonl"
    check_result(result_of(*command), 100, bridged=False)
    done = run(*command)
    assert "at most 100 forward passes" in done.stdout
    assert "bridge: none: 8 distinct public texts are too few" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("u0 ")]
    assert row.split().count("-") == 4


@pytest.mark.parametrize("budget", [0, 1, 13])
def test_the_budget_is_kept(tiny, data, budget):
    result = result_of(*tiny, "--data", data, "--budget", budget)
    check_result(result, budget)


@pytest.mark.parametrize("matching", [False, True])
def test_data_from_a_file_and_from_standard_input(tmp_path, matching):
    task = "matching" if matching else "classification"
    write_word_vectors(tmp_path / "old.fala")
    write_onnx_release(tmp_path / "new.fala", make_head(task))
    bundles = "--old", tmp_path / "old.fala", "--new", tmp_path / "new.fala"
    content = jsonl(data_rows(matching))
    (tmp_path / "rows.jsonl").write_text(content)
    read = result_of(*bundles, "--data", tmp_path / "rows.jsonl")
    check_result(read, 20)
    assert [user["user"] for user in read["users"]] == ["u0", "u1"]
    assert [user["documents"] for user in read["users"]] == [30, 30]
    piped = result_of(*bundles, "--data", "-", stdin=content)
    assert piped["data"] == "standard input"
    assert untimed({**read, "data": ""}) == untimed({**piped, "data": ""})
    assert [user["user"] for user in result_of(*bundles, "--data", tmp_path / "rows.jsonl",
                                               "--users", 1)["users"]] == ["u0"]  # fmt: skip


def test_data_as_a_table_names_its_file(tiny, data):
    done = run(*tiny, "--data", data)
    assert done.returncode == 0
    assert str(data) in done.stdout
    assert "synthetic" not in done.stdout


@pytest.mark.parametrize(
    "line", ['{"split": "train"', '{"user": "u1", "split": "train", "label": 1}', "[]", "{}"]
)
def test_a_bad_row_names_its_line(tiny, data, line):
    content = data.read_text() + line + "\n"
    number = content.count("\n")
    data.write_text(content)
    fails(told(*tiny, "--data", data), f"line {number}: ")
    fails(told(*tiny, "--data", "-", stdin=content), f"line {number}: ")


def test_no_rows(tiny):
    fails(told(*tiny, "--data", "-", stdin=""), "no rows")


def test_missing_data(tiny, tmp_path):
    fails(told(*tiny, "--data", tmp_path / "none.jsonl"), "none.jsonl", "No such file")


def test_data_that_is_a_folder(tiny, tmp_path):
    fails(told(*tiny, "--data", tmp_path), tmp_path)


def test_more_users_than_the_data_has(tiny, data):
    fails(told(*tiny, "--data", data, "--users", 3), "--users 3", "2 users")


def test_more_users_than_the_sample_has(tiny):
    fails(told(*tiny, "--users", 1000), "1000")


@pytest.mark.parametrize("name", ["roberta", "missing/file.fala"])
def test_an_unknown_backbone_lists_what_there_is(name):
    for command in (("--old", name, "--new", "bert"), ("--old", "glove", "--new", name)):
        fails(told(*command), repr(name), "bert", "glove", "fala-export")


def test_a_file_that_is_no_bundle(data):
    fails(told("--old", data, "--new", "bert"), data)


def test_usage_errors(tiny, data, tmp_path):
    fails(told(), "--new", status=2)
    fails(told("--new", "bert"), "--old", status=2)
    fails(told("--old", "glove"), "--new", status=2)
    fails(told(*tiny, "--refine"), "--refine", "--device", status=2)
    fails(told("--device", tmp_path), "--new", "--refine", status=2)
    fails(told("--device", tmp_path, *tiny[2:], "--refine"), "--refine", "--new", status=2)
    fails(told(*tiny, "--budget", "-1"), "--budget", status=2)
    fails(told(*tiny, "--budget", "many"), "--budget", status=2)
    fails(told(*tiny, "--users", "0"), "--users", status=2)
    for option in (("--data", data), ("--old", "glove"), ("--users", 2)):
        done = told("--device", tmp_path, "--new", "bert", *option)
        fails(done, option[0], "--device", status=2)


def test_seconds_that_are_no_number(tiny, data):
    fails(told(*tiny, "--data", data, "--seconds", "nan"), "seconds")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [SCRIPTS / "fala-replace", "--old", "glove", "--new", "bert", "--users", "8"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("fala-*"))) < 2 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "fala-replace: interrupted"
    assert list(tmp_path.glob("fala-*")) == []


@pytest.mark.skipif(os.name == "nt" or not shutil.which("head"), reason="needs head")
def test_a_closed_pipe_is_no_error(tiny):
    arguments = " ".join(f"'{argument}'" for argument in tiny)
    for last in ("head -c 1", "true"):
        done = subprocess.run(
            f"'{SCRIPTS / 'fala-replace'}' {arguments} --users 1 | {last}",
            shell=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert said(done.stderr) == ""


@pytest.mark.parametrize(
    ("program", "parts"),
    [
        (
            "fala-replace",
            ("--old", "--new", "--data", "--device", "--refine", "--budget", "--seconds",
             "--users", "--seed", "--json", "--version", "synthetic", "threshold", "bridge",
             "\n    fala-replace --device DIR --refine\n"),
        ),
        ("fala-export", ("backbone", "word-vectors", "release", "--version")),
        ("fala-sim", ("convert",)),
    ],
)  # fmt: skip
def test_help(program, parts):
    start = time.monotonic()
    done = run("--help", program=program)
    assert time.monotonic() - start < 10  # half a second where nothing else runs
    assert done.returncode == 0
    assert done.stderr == ""
    for part in parts:
        assert part in done.stdout


def test_the_other_commands_end_mistakes_alike(tmp_path):
    missing = tmp_path / "none"
    done = run("word-vectors", missing, "--out", tmp_path / "x.fala", program="fala-export")
    fails(done, missing, program="fala-export")
    fails(run("convert", "lewidi", missing, program="fala-sim"), missing, program="fala-sim")
    for program in ("fala-export", "fala-sim"):
        fails(run("bogus", program=program), "bogus", status=2)
        assert run("--version", program=program).returncode in (0, 2)


def test_an_operating_system_error_is_one_line(tiny, data):
    if os.name == "nt":
        pytest.skip("TMPDIR is of POSIX")
    done = subprocess.run(
        [sys.executable, "-c",
         "import tempfile; tempfile.tempdir = '/nonexistent'; import sys; "
         "sys.argv[0] = 'fala-replace'; from fala.playground.command import main; main()",
         *map(str, tiny), "--data", str(data)],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "/nonexistent" in done.stderr
    assert done.stderr.count("\n") == 1
