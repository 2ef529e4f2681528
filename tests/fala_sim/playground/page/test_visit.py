"""The visit behind the page: real devices, from the first label to the last pass."""

import shutil
import threading
from itertools import pairwise

import numpy as np
import pytest

from fala import Budget, DataError, Device
from fala_sim.playground.page.devices import COLUMNS
from fala_sim.playground.page.notes import NAME, Notes
from fala_sim.playground.page.posts import SHOWN, posts_of
from fala_sim.playground.page.view import ViewColumn, column_of, decision_changes, demo_verdict
from fala_sim.playground.page.visit import READER, Visit
from fala_sim.playground.releases import sample_release
from visits import opened, settle

pytestmark = pytest.mark.slow


POSTS = posts_of(0, READER)


def leans_of(view, name="mine"):
    return [post["lean"][name] for post in view["posts"]]


def lasting(view):
    """The parts of a view that a restart must not change."""
    measured = {"version", "costs", "resume"}
    return {name: value for name, value in view.items() if name not in measured}


def test_every_label_changes_the_model_and_unseen_posts_are_not_learned(visit):
    assert visit.view["stage"] == "labelling"
    assert visit.view["next"] == {"post": 0, "text": POSTS.documents[0]}
    views = [leans_of(visit.view)]
    for post in range(3):
        visit.label(post, 1)
        views.append(leans_of(visit.view))
    assert all(earlier != later for earlier, later in pairwise(views))
    assert visit.view["labelled"] == 3
    examples = {stored.example for stored in visit._opened[0].mine.examples()}
    assert examples == set(POSTS.documents)
    assert examples.isdisjoint(POSTS.unseen)


def test_a_reader_labels_all_posts(visit):
    visit.watch(READER)
    settle(visit)
    assert visit.view["labelled"] == len(POSTS.documents)
    labelled = visit._opened[0].labelled()
    assert labelled == dict(zip(POSTS.documents, POSTS.labels, strict=True))
    assert [post["label"] for post in visit.view["posts"]] == list(POSTS.truth[:SHOWN])
    wrong = visit.view["columns"][0]["wrong"]
    assert wrong < sum(POSTS.truth)  # showing every post is wrong that often
    assert visit.view["verdict"] == f"Personal model: error rate {wrong} % ({wrong} of 100)."
    with pytest.raises(DataError, match="an invented reader labels"):
        visit.label(0, 1)
    with pytest.raises(DataError, match="another reader"):
        visit.watch(2)


def test_a_visitor_is_compared_on_unseen_posts(visit):
    visit.label(0, 1)
    with pytest.raises(DataError, match="yourself"):
        visit.watch(READER)
    before = leans_of(visit.view)
    decided = [value > 0 for value in before]
    visit.check(0, int(decided[0]))
    visit.check(1, int(not decided[1]))
    visit.check(2, 1)
    visit.check(2, None)
    assert visit.view["verdict"] == "Personal model: error rate 50 % (1 of 2)."
    assert leans_of(visit.view) == before


def test_every_column_has_its_devices_predictions(shipped, replaced):
    folder, before, after = shipped
    columns = {column["key"]: column["backbone"] for column in after["columns"]}
    assert columns == {"old": "glove", "vendor": "bert", "mine": "bert"}  # "mine" is instant
    assert leans_of(after, "old") == leans_of(before)
    assert leans_of(after, "vendor") != leans_of(after)
    assert after["passes"] == 0
    assert after["costs"]["replace_seconds"] > 0
    assert after["costs"]["disk_megabytes"] > after["costs"]["new_megabytes"]
    devices = replaced._opened[0].devices
    for name, device in devices.items():
        decided = device.predict_proba(POSTS.unseen)[:, 1] > 0.5
        assert column_of(device, POSTS.unseen).decided.tolist() == decided.tolist(), name
    with Device.create(folder.with_name("fresh"), sample_release("bert")) as fresh:
        predicted = column_of(fresh, POSTS.unseen).lean[:SHOWN].tolist()
    assert leans_of(after, "vendor") == predicted
    with pytest.raises(DataError, match="release is installed"):
        replaced.label(30, 1)


TRUTH = {0: 1, 1: 1, 2: 0, 3: 0}


MODELS = {
    name: ViewColumn("bert", np.array(lean))
    for name, lean in {
        "old": [0.9, -0.1, 0.1, -0.8],
        "vendor": [-0.5, -0.5, 0.5, -0.5],
        "instant": [0.9, -0.1, -0.1, -0.8],
        "mine": [0.9, 0.1, 0.0, -0.8],  # 0 is shown
    }.items()
}


@pytest.mark.parametrize(
    ("stage", "mine", "says"),
    [
        ("shipped", "mine", "FaLA: error rate 0 % (0 of 4); new model alone "
         "75 %; old personal model 50 %."),
        ("shipped", "vendor", "FaLA: error rate 75 % (3 of 4); new model "
         "alone 75 %; old personal model 50 %."),
        ("rolled back", "old", "Old personal model (active again): error rate 50 % (2 of 4); "
         "new model alone 75 %."),
    ],
)  # fmt: skip
def test_the_verdict_compares_error_rates(stage, mine, says):
    columns = {**MODELS, "mine": MODELS[mine]}
    assert demo_verdict(columns, TRUTH, 6, "visitor", stage) == says


def test_the_verdict_asks_for_what_is_missing():
    def asked(labelled, labeller, stage):
        return demo_verdict(MODELS, {}, labelled, labeller, stage)

    assert asked(0, None, "labelling").endswith("Label a post, or watch a reader.")
    assert asked(0, "visitor", "labelling").endswith("Label a post.")
    assert asked(1, "visitor", "labelling").startswith("The personal model has learned 1 label.")
    assert "unseen posts" in asked(6, "visitor", "shipped")
    assert demo_verdict(MODELS, TRUTH, 0, None, "labelling").startswith(
        "Model without personalization: "
    )


def test_changed_decisions_are_counted_as_right_or_wrong():
    assert decision_changes(MODELS, TRUTH) == {"right": 2, "wrong": 0}
    worse = {**MODELS, "mine": ViewColumn("bert", np.array([-0.9, -0.1, -0.1, -0.8]))}
    assert decision_changes(worse, TRUTH) == {"right": 1, "wrong": 1}
    assert decision_changes(MODELS, {}) == {"right": 0, "wrong": 0}


def test_a_rollback_shows_the_old_model_and_can_be_undone(replaced):
    new = leans_of(replaced.view)
    replaced.roll_back()
    assert replaced.view["stage"] == "rolled back"
    assert leans_of(replaced.view) == leans_of(replaced.view, "old")
    with pytest.raises(DataError, match="no new model"):
        replaced.refine()
    replaced.roll_back()
    assert replaced.view["stage"] == "shipped"
    assert leans_of(replaced.view) == pytest.approx(new, abs=1e-6)


def test_refining_can_be_stopped_and_continued(replaced):
    replaced.refine()
    with pytest.raises(DataError, match="a job is running"):
        replaced.refine()
    while replaced.view["passes"] < 10:
        threading.Event().wait(0.01)
    replaced.stop()
    settle(replaced)
    done = replaced.view["passes"]
    assert 10 <= done < 60
    assert leans_of(replaced.view) != leans_of(replaced.view, "instant")
    assert replaced._opened[0].mine.refine(Budget(0)).counts.representatives == done


def test_a_restart_keeps_the_visit(replaced):
    replaced.check(3, 1)
    shown = lasting(replaced.view)
    folder = replaced._folder
    replaced.close()
    again = opened(folder)
    try:
        assert lasting(again.view) == shown
        again.again()
        assert again.view["stage"] == "labelling"
        assert (again.view["labelled"], again.view["who"], again.view["tested"]) == (0, None, 0)
        folders = {file.name for file in folder.iterdir() if file.is_dir()}
        assert folders == {"mine"}
    finally:
        again.close()


@pytest.mark.parametrize("state", ["half a copy", "no instant", "an end"])
def test_interrupted_steps_are_completed(shipped, tmp_path, state):
    """Every state is a folder as a killed process leaves it."""
    source, _, after = shipped
    folder = shutil.copytree(source, tmp_path / "visit")
    if state == "an end":
        notes = Notes(folder)
        notes.set(erasing=2)
        notes.close()
        shutil.rmtree(folder / "mine")
    else:
        shutil.rmtree(folder / "instant")
    if state == "half a copy":
        shutil.rmtree(folder / "mine")
        (folder / "old").rename(folder / "mine")
        shutil.rmtree(folder / "vendor")
        (folder / "old.part" / "bundles").mkdir(parents=True)
    visit = opened(folder)
    try:
        if state == "an end":
            assert (visit.view["stage"], visit.view["labelled"]) == ("labelling", 0)
            assert (visit.view["reader"], (folder / "old").exists()) == (2, False)
            return
        assert visit.view["stage"] == "shipped"
        assert set(visit._opened[0].devices) == set(COLUMNS)
        for name in ("old", "vendor", "mine"):
            assert leans_of(visit.view, name) == pytest.approx(leans_of(after, name), abs=1e-9)
    finally:
        visit.close()


def test_a_folder_in_use_or_damaged_is_rejected(visit, tmp_path):
    with pytest.raises(DataError, match="another server"):
        Visit(tmp_path)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / NAME).write_text("not a database, though it has its name")
    with pytest.raises(DataError, match="cannot be read"):
        Visit(tmp_path / "foreign")
