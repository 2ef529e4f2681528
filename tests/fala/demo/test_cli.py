import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from replace_command import SCRIPTS, fails, run


@pytest.mark.parametrize(
    "line", ['{"split": "train"', '{"user": "u1", "split": "train", "label": 1}', "[]", "{}"]
)
def test_a_bad_row_names_its_line(tiny, data, line):
    content = data.read_text() + line + "\n"
    number = content.count("\n")
    data.write_text(content)
    fails(run(*tiny, "--data", data), f"line {number}: ")
    fails(run(*tiny, "--data", "-", stdin=content), f"line {number}: ")


def test_no_rows(tiny):
    fails(run(*tiny, "--data", "-", stdin=""), "no rows")


def test_missing_data(tiny, tmp_path):
    fails(run(*tiny, "--data", tmp_path / "none.jsonl"), "none.jsonl", "No such file")


def test_data_that_is_a_folder(tiny, tmp_path):
    fails(run(*tiny, "--data", tmp_path), tmp_path)


def test_more_users_than_the_data_has(tiny, data):
    fails(run(*tiny, "--data", data, "--users", 3), "--users 3", "2 users")


def test_more_users_than_the_sample_has(tiny):
    fails(run(*tiny, "--users", 1000), "1000")


@pytest.mark.parametrize("name", ["roberta", "missing/file.fala"])
def test_an_unknown_backbone_lists_what_there_is(name):
    for command in (("--old", name, "--new", "bert"), ("--old", "glove", "--new", name)):
        fails(run(*command), repr(name), "bert", "glove", "fala-export")


def test_a_file_that_is_no_bundle(data):
    fails(run("--old", data, "--new", "bert"), data)


def test_usage_errors(tiny, data, tmp_path):
    fails(run(), "--new", status=2)
    fails(run("--new", "bert"), "--old", status=2)
    fails(run("--old", "glove"), "--new", status=2)
    fails(run(*tiny, "--refine"), "--refine", "--device", status=2)
    fails(run("--device", tmp_path), "--new", "--refine", status=2)
    fails(run("--device", tmp_path, *tiny[2:], "--refine"), "--refine", "--new", status=2)
    fails(run(*tiny, "--budget", "-1"), "--budget", status=2)
    fails(run(*tiny, "--budget", "many"), "--budget", status=2)
    fails(run(*tiny, "--users", "0"), "--users", status=2)
    for option in (("--data", data), ("--old", "glove"), ("--users", 2)):
        done = run("--device", tmp_path, "--new", "bert", *option)
        fails(done, option[0], "--device", status=2)


def test_seconds_that_are_no_number(tiny, data):
    fails(run(*tiny, "--data", data, "--seconds", "nan"), "seconds")


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
    assert process.returncode == 1
    assert errors.strip() == "fala-replace: interrupted"
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
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("program", "parts"),
    [
        (
            "fala-replace",
            ("--old", "--new", "--data", "--device", "--refine", "--budget", "--seconds",
             "--users", "--seed", "--json", "--version", "synthetic", "threshold", "bridge",
             "\n    fala-replace --device DIR --refine\n"),
        ),
        ("fala-export", ("backbone", "word-vectors", "train", "--version")),
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
         "sys.argv[0] = 'fala-replace'; from fala.demo.command import main; main()",
         *map(str, tiny), "--data", str(data)],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "/nonexistent" in done.stderr
    assert done.stderr.count("\n") == 1
