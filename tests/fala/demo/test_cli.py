import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

import fala
from bundles import make_head, write_onnx_release, write_word_vector_release, write_word_vectors
from fala.backbones import OnnxEncoder
from fala.demo.command import command as cli

SCRIPTS = Path(sysconfig.get_path("scripts"))
BUILT_IN = resources.files("fala.demo") / "builtin"
METRICS = ("auc", "f1", "accuracy")
MODELS = ["old_personal", "new_global", "instant", "fala"]
GOOD, BAD = ("good", "great", "love", "well made"), ("bad", "awful", "hate", "boring")


def run(*arguments, program="fala-replace", stdin=None):
    return subprocess.run(
        [SCRIPTS / program, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def result_of(*arguments, stdin=None):
    """The one JSON object that a run prints."""
    done = run(*arguments, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def fails(done, *parts, status=1, program="fala-replace"):
    """Check that a run ended as a user's mistake does, and said each of some parts."""
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if status == 1:
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"{program}: ")
    for part in parts:
        assert str(part) in done.stderr


def untimed(result):
    """A result without its seconds, and without the bytes of files that name the data's."""
    result = json.loads(json.dumps(result))
    for figures in (*result["users"], result["mean"]):
        del figures["seconds"]
        del figures["instant"]["seconds"]
    for user in result["users"]:
        for view in (*user["views"], *user["instant"]["views"]):
            del view["bytes"]
    return result


def review(rng, label):
    return f"this film {rng.randrange(10**6)} is {rng.choice(BAD if label else GOOD)}"


def data_rows(matching=False, users=2, train=30, test=20, public=60):
    """Rows of a small data set, in turn of both labels."""
    rng = random.Random(0)

    def row(user, split, number):
        label = number % 2
        if not matching:
            return {"user": user, "split": split, "text": review(rng, label), "label": label}
        taste = rng.randrange(2)
        history = [review(rng, taste) for _ in range(number % 4)]
        candidate = review(rng, taste if label else 1 - taste)
        return {
            "user": user, "split": split, "history": history, "candidate": candidate,
            "label": label,
        }  # fmt: skip

    rows = [row(None, "public", number) for number in range(public)]
    for user in range(users):
        rows += [row(f"u{user}", "train", number) for number in range(train)]
        rows += [row(f"u{user}", "test", number) for number in range(test)]
    return rows


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Arguments of a trial from tiny vectors to a tiny transformer."""
    folder = tmp_path_factory.mktemp("tiny")
    write_word_vector_release(folder / "old.fala")
    write_onnx_release(folder / "new.fala")
    return "--old", folder / "old.fala", "--new", folder / "new.fala"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(data_rows()))
    return path


@pytest.fixture
def device(tmp_path, tiny):
    """A device folder with the tiny old release, which has learned, a fifth of it wrongly."""
    rows = data_rows()
    labels = [row["label"] if number % 5 else 1 - row["label"] for number, row in enumerate(rows)]
    with fala.Device.create(tmp_path / "device", tiny[1]) as opened:
        opened.learn([row["text"] for row in rows], labels)
    return tmp_path / "device"


@pytest.fixture
def bridged(tmp_path, tiny):
    """The tiny new release with a bridge from the tiny old one."""
    shutil.copy(tiny[3], tmp_path / "bridged.fala")
    old, new = fala.Bundle.open(tiny[1]), fala.Bundle.open(tmp_path / "bridged.fala")
    texts = [row["text"] for row in data_rows()]
    vectors = (bundle.backbone().encode(texts) for bundle in (old, new))
    fala.add_bridge(new.path, new, fala.fit_bridge(old.backbone_digest, *vectors), {})
    return new.path


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
        assert user["decision"] in ("personal", "vendor")
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


def test_built_in_trial_as_json():
    result = result_of("--old", "glove", "--new", "bert", "--users", 2)
    check_result(result, 50)
    assert (result["old"], result["new"]) == ("glove", "bert")
    assert "synthetic" in result["data"]
    assert result["bridge"] == "learned on 2000 public texts"
    assert len(result["users"]) == 2
    for user in result["users"]:
        assert user["forward_passes"] == 50
        assert [view["name"] for view in user["views"]] == ["bert", "glove"]
    # What is to be seen: an answer that beats both models at once, and a better one.
    auc = result["mean"]["auc"]
    assert max(auc["old_personal"], auc["new_global"]) < auc["instant"] < auc["fala"]


def test_a_trial_as_a_table(tiny, data):
    done = run(*tiny, "--users", 1)
    assert done.returncode == 0
    for part in (
        "synthetic", "AUC", "F1", "accuracy", "instant", "forwards", "decision",
        "at most 50 forward passes", "bridge: learned on 2000", "\nu1 ", "\nmean ",
    ):  # fmt: skip
        assert part in done.stdout
    assert done.stderr == ""
    done = run(*tiny, "--data", data, "--budget", 7)
    assert "at most 7 forward passes" in done.stdout
    assert "tiny vectors answers beside tiny encoder for 2 of 2 users" in done.stdout


def test_a_trial_without_a_bridge_says_so(tiny, tmp_path):
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
    check_result(read, 50)
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


def test_a_real_device_as_json(device, tiny):
    report = result_of("--device", device, *tiny[2:], "--budget", 10)
    assert (report["old"], report["new"]) == ("tiny vectors", "tiny encoder")
    assert report["decision"] in ("personal", "vendor")
    assert report["reason"]
    assert 0 < report["forward_passes"] <= 10
    assert report["backward_passes"] == 0
    assert report["seconds"]["total"] > 0
    with fala.Device.open(device) as opened:
        assert opened.name == "tiny encoder"
        assert opened.can_roll_back


def test_a_real_device_as_text(device, tiny):
    done = run("--device", device, *tiny[2:], "--budget", 10)
    assert done.returncode == 0
    assert done.stdout.startswith("tiny vectors -> tiny encoder: ")
    for part in ("why", "forward passes", "backward passes 0", "seconds", "total"):
        assert part in done.stdout


def test_a_device_answers_at_once_and_goes_on(device, bridged):
    done = run("--device", device, "--new", bridged, "--budget", 0)
    assert done.returncode == 0
    with fala.Device.open(device) as opened:
        threshold, weight = opened.threshold, opened.view.weight[0]
    for part in (
        "tiny vectors -> tiny encoder: personal model",
        "\ninstant          personal model after ",
        "\nforward passes   0;",
        f"\nanswers          tiny encoder (0.0 MB, a forward pass a text) + {weight:.2f} x tiny "
        "vectors (0.0 MB, no forward pass a text)\n",
        f"\nthreshold        1 above logit {threshold:.3f}\n",
    ):
        assert part in done.stdout
    report = result_of("--device", device, "--refine", "--budget", 10)
    assert (report["old"], report["new"]) == ("tiny encoder", "tiny encoder")
    assert report["forward_passes"] == report["representatives"] == 10
    assert report["instant"] is None
    done = run("--device", device, "--refine", "--budget", 10)
    assert done.stdout.startswith("tiny encoder: personal model\n")
    for part in ("\nforward passes   10;", " 20 through the new backbone", "\nstopped          "):
        assert part in done.stdout
    assert "\ninstant " not in done.stdout
    with fala.Device.open(device) as opened:
        assert opened.threshold != threshold


@pytest.mark.parametrize("options", [("--refine",), ("--new", None)])
def test_ctrl_c_keeps_what_was_encoded(device, bridged, monkeypatch, options):
    if options == ("--refine",):
        assert run("--device", device, "--new", bridged, "--budget", 0).returncode == 0
    else:
        options = "--new", bridged
    real, calls = OnnxEncoder.encode, []

    def encode(self, texts):
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(OnnxEncoder, "encode", encode)
        patched.setattr("fala.replacement.crossing.LEAST_MOVE", 0)
        done = CliRunner().invoke(cli, ["--device", str(device), *map(str, options)])
    assert done.exit_code == 1
    hint, last = done.stderr.splitlines()
    assert last.endswith(": interrupted")
    assert f"{device}: tiny encoder answers" in hint
    assert f"--device {device} --refine" in hint
    report = result_of("--device", device, "--refine", "--budget", 5)
    assert report["representatives"] == calls[0] + 5


def test_ctrl_c_before_the_change_changes_nothing(device, bridged, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fala.replacement.crossing.knowledge_of", stop)
        done = CliRunner().invoke(cli, ["--device", str(device), "--new", str(bridged)])
    assert done.exit_code == 1
    hint, last = done.stderr.splitlines()
    assert (hint, last.endswith(": interrupted")) == (
        f"{device}: the device answers as before",
        True,
    )
    with fala.Device.open(device) as opened:
        assert opened.name == "tiny vectors"


def test_a_device_refuses_what_is_not_for_it(device, tmp_path):
    write_word_vector_release(tmp_path / "other.fala", make_head(labels=("no", "yes")))
    fails(run("--device", device, "--new", tmp_path / "other.fala"), "other.fala", "no, yes")
    fails(run("--device", device, "--new", "bert"), "without a head")
    with fala.Device.open(device) as opened:
        assert opened.name == "tiny vectors"
        assert not opened.can_roll_back


def test_a_folder_that_is_no_device(tmp_path, tiny):
    fails(run("--device", tmp_path, *tiny[2:]), tmp_path, "not a device")
    fails(run("--device", tmp_path / "none", *tiny[2:]), "none", "not a device")
    assert list(tmp_path.iterdir()) == []


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
