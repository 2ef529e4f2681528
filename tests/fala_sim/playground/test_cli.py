"""``fala-replace`` with simulated users: its figures, data and errors."""

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from random import Random

import pytest

from bundles import make_head, write_onnx_release, write_word_vectors
from command_lines import SCRIPTS, data_rows, done, fails, jsonl, run, works
from fala_sim.playground.walk import conclusion
from program import without_progress
from public_data import write_table

METRICS = ("error_rate", "cross_entropy", "auc", "f1", "accuracy")
MODELS = ["old_personal", "new_global", "instant", "fala"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(data_rows()))
    return path


def check_result(result, budget, bridged=True):
    assert {"old", "new", "data", "bridge", "users", "mean"} <= set(result)
    assert result["budget"] == budget
    assert result["bridge"].startswith("none") != bridged
    assert next(iter(result["mean"])) == "error_rate"
    for figures in (*result["users"], result["mean"]):
        assert figures["documents"] > 0 and figures["seconds"]["total"] > 0
        assert 0 <= figures["forward_passes"] <= budget
        assert (figures["instant"] is not None) == bridged
        assert (figures["f1"]["instant"] is not None) == bridged
        assert all(list(figures[metric]) == MODELS for metric in METRICS)
    for metric in METRICS:
        values = [user[metric]["fala"] for user in result["users"]]
        if None not in values:
            assert result["mean"][metric]["fala"] == pytest.approx(sum(values) / len(values))


def test_a_walk_prints_a_table(tiny, data):
    walk = works(*tiny, "--users", 1)
    for part in (
        "synthetic", "error rate (%)", "\nlog loss ", "\nAUC ", "\nF1 of 1 ",
        "F1 is of the label 1,", "FaLA, no ", "forward pass", "decision", "\nrows left out: none\n",
        "at most 20 forward passes", "bridge: learned on 2000", "\nu1 ", "\nmean ",
        "sample, 1 user, seed 0: 1 user, ", " of 1 user.", "the comparison is inconclusive.",
    ):  # fmt: skip
        assert part in walk.stdout
    figures = walk.stdout.partition("\n\n")[2].partition("\nOld personal: ")[0]
    assert max(map(len, figures.splitlines())) < 100
    assert without_progress(walk.stderr) == ""
    shown = works(*tiny, "--data", data, "--budget", 7).stdout
    assert "at most 7 forward passes" in shown
    assert str(data) in shown and "synthetic" not in shown
    assert "\nFaLA keeps the personal model for " in shown and " of 2 users" in shown
    assert re.search(
        r"2 users (is|are) worse off than .* (is|are) not, and for \d the comparison is", shown
    )


def test_a_walk_without_a_bridge_reports_the_reason(tiny, tmp_path):
    (tmp_path / "few.jsonl").write_text(jsonl(data_rows(public=8)))
    command = *tiny, "--data", tmp_path / "few.jsonl"
    check_result(done(*command), 100, bridged=False)
    shown = works(*command).stdout
    assert "at most 100 forward passes" in shown
    assert "bridge: none: 8 distinct public texts are too few" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("u0 ")]
    assert row.split().count("-") == 2


@pytest.mark.parametrize("matching", [False, True])
def test_data_are_read_from_a_file_or_standard_input(tmp_path, matching):
    task = "matching" if matching else "classification"
    write_word_vectors(tmp_path / "old.fala")
    write_onnx_release(tmp_path / "new.fala", make_head(task))
    command = "--old", tmp_path / "old.fala", "--new", tmp_path / "new.fala", "--budget", 13
    content = jsonl(data_rows(matching))
    (tmp_path / "rows.jsonl").write_text(content)
    read = done(*command, "--data", tmp_path / "rows.jsonl")
    check_result(read, 13)
    assert [(user["user"], user["documents"]) for user in read["users"]] == [("u0", 30), ("u1", 30)]
    piped = done(*command, "--data", "-", "--users", 1, stdin=content)
    assert piped["data"] == "standard input"
    (first,) = piped["users"]
    for figures in (first, read["users"][0]):
        del figures["seconds"], figures["instant"]["seconds"]
    losses = [user.pop("cross_entropy") for user in (first, read["users"][0])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)  # a busy machine adds in another order
    assert first == read["users"][0]


def named(tiny, folder, labels):
    """A command for rows whose labels 0 and 1 have these names, or are one of them at random."""
    random = Random(0)  # people who judge a fifth of the texts at random
    rows = [
        {**row, "label": labels[row["label"]] if random.random() < 0.8 else random.choice(labels)}
        for row in data_rows(users=1, train=60)
    ]
    path = folder / f"{'-'.join(labels)}.jsonl"
    path.write_text(jsonl(rows))
    return (*tiny, "--data", path, "--budget", 5)


def test_f1_is_of_a_natural_or_a_named_label_and_else_of_all(tiny, tmp_path, data):
    """So a conclusion does not depend on the order of the labels' names."""
    first, second = (named(tiny, tmp_path, it) for it in (("not", "ironic"), ("no", "yes-ironic")))
    shown, other = (works(*each).stdout.split("\nmeans ")[1] for each in (first, second))
    assert "\nmacro-F1 " in shown and "F1 of" not in shown
    assert shown == other
    values = done(*second)
    assert values["positive"] is None and "f1" not in values["mean"]
    natural = done(*named(tiny, tmp_path, ("YES", "no")))
    chosen = done(*named(tiny, tmp_path, ("a", "z")), "--positive", "a")
    assert (natural["positive"], chosen["positive"]) == ("YES", "a")
    assert [user["f1"] for user in natural["users"]] == [user["f1"] for user in chosen["users"]]
    command = (*tiny, "--data", data, "--positive")
    fails(run(*command, "d"), "--positive must be one of 0, 1, not 'd'")
    fails(run(*command, "1", "--rating", 1, 5), "--positive is for exclusive labels")
    assert "\nF1 of 0 " in works(*command, "False", "--users", 1).stdout


def users_of(gains):
    """Return results of users whose new model alone has an error rate of 30 % plus a gain."""
    return [
        {
            "error_rate": {
                "old_personal": 20.0,
                "new_global": 30.0 + gain,
                "instant": 1.0,
                "fala": 20.0,
            }
        }
        for gain in gains
    ]


def test_the_conclusion_compares_with_both_models():
    result = conclusion(users_of([1, 2, 3]))
    assert result["new_global"]["verdict"] == "better" and result["fala"] == 20
    low, high = result["new_global"]["interval"]
    reach = 4.302653 / 3**0.5  # Student's quantile at 2 degrees of freedom
    assert (low, high) == pytest.approx((-12 - reach, -12 + reach), rel=1e-3)
    assert result["old_personal"] == {
        "value": 20, "difference": 0, "interval": [0, 0], "verdict": "inconclusive",
    }  # fmt: skip
    assert conclusion(users_of([-19, -20, -21]))["new_global"]["verdict"] == "worse"
    assert conclusion(users_of([1, 2]))["new_global"]["interval"] is None


def test_a_bad_row_names_its_line_or_is_skipped_on_request(tiny, data):
    data.write_text(data.read_text() + '{"split": "train"\n{"split": "test"}\n')
    number = data.read_text().count("\n")
    fails(run(*tiny, "--data", data), f"line {number - 1}: ")
    fails(run(*tiny, "--data", "-", stdin=data.read_text()), f"line {number - 1}: ")
    walk = works(*tiny, "--data", data, "--users", 1, "--budget", 3, "--skip-bad-rows")
    assert f"{data}: 2 bad rows left out, lines {number - 1}, {number}; the first" in walk.stderr


@pytest.mark.parametrize("spelled", [("0.0", "1.0"), ("False", "True"), ("no", "yes")])
def test_heads_are_used_for_the_labels_of_any_spelling(data, tmp_path, spelled):
    """A release's own head decides on 0 and 1 as a table spells them; of others both are named."""
    old, new = tmp_path / "old.fala", tmp_path / "new.fala"
    write_word_vectors(old)
    write_onnx_release(new, make_head())
    rows = [{**row, "label": spelled[row["label"]]} for row in data_rows()]
    table = write_table(tmp_path / "a.csv", rows[0], [row.values() for row in rows])
    walk = works("--old", old, "--new", new, "--data", table, "--users", 1, "--budget", 3)
    fitted = spelled == ("no", "yes")
    assert ("tiny encoder its own" in walk.stdout) != fitted, walk.stdout
    said = f"{new}: its head is for classification with labels 0, 1, and the rows are for "
    assert (said + "classification with labels no, yes: its head" in walk.stderr) == fitted


def test_mistakes_are_one_line(tiny, data, tmp_path):
    fails(run(*tiny, "--data", "-", stdin=""), "no rows")
    fails(run(*tiny, "--data", tmp_path / "none.jsonl"), "none.jsonl", "No such file")
    fails(run(*tiny, "--data", tmp_path), tmp_path)
    fails(run(*tiny, "--data", data, "--users", 3), "--users 3", "2 users")
    fails(run(*tiny, "--users", 1000), "1000")
    fails(run(*tiny, "--data", data, "--seconds", "nan"), "seconds")
    fails(run("--old", data, "--new", "bert"), data)
    for name in ("roberta", "missing/file.fala"):
        for command in (("--old", name, "--new", "bert"), ("--old", "glove", "--new", name)):
            fails(run(*command), repr(name), "bert", "glove", "fala-export")


def test_wrong_combinations_of_options_are_usage_errors(tiny, data, tmp_path):
    device = "--device", tmp_path
    for arguments, parts in (
        ((), ["--new"]),
        (("--new", "bert"), ["--old"]),
        (("--old", "glove"), ["--new"]),
        ((*tiny, "--refine"), ["--refine", "--device"]),
        ((*tiny, "--trust", "x"), ["--trust", "--device"]),
        ((*tiny, "--budget", "-1"), ["--budget"]),
        ((*tiny, "--budget", "many"), ["--budget"]),
        ((*tiny, "--users", "0"), ["--users"]),
        (device, ["--new", "--refine"]),
        ((*device, *tiny[2:], "--refine"), ["--refine", "--new"]),
        ((*device, "--refine", "--allow-older"), ["--allow-older", "--new"]),
        ((*device, "--new", "bert", "--data", data), ["--data", "--device"]),
        ((*device, "--new", "bert", "--old", "glove"), ["--old", "--device"]),
        ((*device, "--new", "bert", "--users", 2), ["--users", "--device"]),
        ((*device, "--new", "bert", "--positive", "1"), ["--positive", "--device"]),
    ):
        fails(run(*arguments), *parts, status=2)


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_deletes_temporary_folders(tiny, tmp_path):
    process = subprocess.Popen(
        [SCRIPTS / "fala-replace", *tiny, "--users", "20"],
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


@pytest.mark.skipif(os.name == "nt", reason="needs a shell of POSIX")
def test_a_closed_pipe_is_no_error(tiny, data):
    command = shlex.join(map(str, [SCRIPTS / "fala-replace", *tiny, "--data", data]))
    result = subprocess.run(f"{command} | true", shell=True, capture_output=True, text=True)
    assert without_progress(result.stderr) == ""


def test_an_operating_system_error_is_one_line(tiny, data, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    fails(run(*tiny, "--data", data), "/nonexistent")
