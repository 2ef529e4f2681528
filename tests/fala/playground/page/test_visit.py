"""The visit behind the page: real devices, from the first label to the last pass."""

import shutil
import threading
from itertools import pairwise

import numpy as np
import pytest

from fala import Budget, DataError, Device, sample_release
from fala.playground.page.devices import COLUMNS
from fala.playground.page.notes import NAME, Notes
from fala.playground.page.posts import SHOWN, posts_of
from fala.playground.page.view import Column, column_of, verdict, warnings
from fala.playground.page.visit import READER, Visit
from visits import opened, settle

pytestmark = pytest.mark.slow


POSTS = posts_of(0, READER)


def answers(view, name="mine"):
    return [post["lean"][name] for post in view["posts"]]


def lasting(view):
    """What a restart must not change."""
    measured = {"version", "costs", "resume"}
    kept = {name: value for name, value in view.items() if name not in measured}
    columns = [{**column, "megabytes": None} for column in view["columns"]]
    return {**kept, "columns": columns}


def test_every_label_moves_the_model_and_no_unseen_post_is_learned(visit):
    assert visit.view["stage"] == "labelling"
    assert visit.view["next"] == {"post": 0, "text": POSTS.documents[0]}
    seen = [answers(visit.view)]
    for post in range(3):
        visit.label(post, 1)
        seen.append(answers(visit.view))
    assert all(earlier != later for earlier, later in pairwise(seen))
    assert visit.view["labelled"] == 3
    known = {stored.example for stored in visit._opened[0].mine.examples()}
    assert known == set(POSTS.documents)
    assert known.isdisjoint(POSTS.unseen)


def test_a_reader_labels_all_and_says_what_the_unseen_posts_are(visit):
    visit.watch(READER)
    settle(visit)
    assert visit.view["labelled"] == len(POSTS.documents)
    labelled = visit._opened[0].labelled()
    assert labelled == dict(zip(POSTS.documents, POSTS.labels, strict=True))
    assert [post["label"] for post in visit.view["posts"]] == list(POSTS.truth[:SHOWN])
    assert visit.view["columns"][0]["auc"] > 0.6
    wrong = visit.view["columns"][0]["wrong"]
    assert visit.view["verdict"] == (
        f"Of 100 new posts the personal model is wrong about the reader on {wrong}."
    )
    with pytest.raises(DataError, match="an invented reader labels"):
        visit.label(0, 1)
    with pytest.raises(DataError, match="another reader"):
        visit.watch(2)


def test_a_visitor_is_compared_by_labels_of_unseen_posts(visit):
    visit.label(0, 1)
    with pytest.raises(DataError, match="yourself"):
        visit.watch(READER)
    before = answers(visit.view)
    decided = [value > 0 for value in before]
    visit.check(0, int(decided[0]))
    visit.check(1, int(not decided[1]))
    visit.check(2, 1)
    visit.check(2, None)
    assert visit.view["verdict"] == "Of your 2 posts the personal model is wrong about you on 1."
    assert answers(visit.view) == before


def test_four_devices_answer_after_the_release(shipped, replaced):
    folder, before, after = shipped
    columns = {column["key"]: column["backbone"] for column in after["columns"]}
    assert columns == {"old": "glove", "vendor": "bert", "mine": "bert"}  # at once is yours
    assert answers(after, "old") == answers(before)
    assert answers(after, "vendor") != answers(after)
    assert after["passes"] == 0
    assert after["costs"]["replace_seconds"] > 0
    assert after["costs"]["disk_megabytes"] > 10
    devices = replaced._opened[0].devices
    for name, device in devices.items():
        decided = device.predict(POSTS.unseen)[:, 1] > 0.5
        assert column_of(device, POSTS.unseen).decided.tolist() == decided.tolist(), name
    with Device.create(folder.with_name("fresh"), sample_release("bert")) as fresh:
        predicted = column_of(fresh, POSTS.unseen).lean[:SHOWN].tolist()
    assert answers(after, "vendor") == predicted
    with pytest.raises(DataError, match="has shipped"):
        replaced.label(30, 1)


TRUTH = {0: 1, 1: 1, 2: 0, 3: 0}


def columns_of(**leans):
    return {name: Column("bert", np.array(lean)) for name, lean in leans.items()}


def test_the_verdict_counts_the_wrong_decisions_of_every_model():
    better = columns_of(
        old=[0.9, -0.1, 0.1, -0.8],
        vendor=[-0.5, -0.5, 0.5, -0.5],
        instant=[0.9, -0.1, -0.1, -0.8],
        mine=[0.9, 0.1, -0.1, -0.8],
    )
    assert verdict(better, TRUTH, "visitor", 60, "shipped") == (
        "Of your 4 posts the vendor's model is wrong about you on 3, your old one on 2, "
        "yours at once on 1, after 60 texts on 0."
    )
    assert list(warnings(better, TRUTH)) == []


def test_the_verdict_says_where_personalization_does_not_help():
    worse = columns_of(
        old=[0.9, 0.2, -0.2, -0.9], vendor=[0.9, 0.2, 0.2, -0.9], mine=[0.9, -0.3, -0.2, -0.9]
    )
    assert verdict(worse, TRUTH, "reader", 0, "shipped").endswith(
        "the new one at once on 1. On these posts personalization does not help the reader."
    )
    lines = " ".join(warnings(worse, TRUTH))
    assert "On 1 of 4 posts the old model was right and the new one is wrong" in lines
    assert "The old model is wrong on fewer of these posts" in lines
    assert "The old model orders these posts better" in lines


def test_a_rollback_answers_as_the_old_model_and_comes_back(replaced):
    new = answers(replaced.view)
    replaced.roll_back()
    assert replaced.view["stage"] == "rolled back"
    assert answers(replaced.view) == answers(replaced.view, "old")
    with pytest.raises(DataError, match="no new backbone"):
        replaced.refine()
    replaced.roll_back()
    assert replaced.view["stage"] == "shipped"
    assert answers(replaced.view) == pytest.approx(new, abs=1e-6)


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
    assert answers(replaced.view) != answers(replaced.view, "instant")
    assert replaced._opened[0].mine.refine(Budget(0)).counts.representatives == done


def test_a_restart_continues(replaced):
    replaced.check(3, 1)
    shown = lasting(replaced.view)
    folder = replaced._folder
    replaced.close()
    again = opened(folder)
    try:
        assert lasting(again.view) == shown
        again.again()
        assert again.view["stage"] == "labelling"
        assert (again.view["labelled"], again.view["who"], again.view["counted"]) == (0, None, "")
        left = {file.name for file in folder.iterdir() if file.is_dir()}
        assert left == {"mine"}
    finally:
        again.close()


@pytest.mark.parametrize("left", ["half a copy", "no instant", "an end"])
def test_what_was_broken_off_is_finished(shipped, tmp_path, left):
    """Each is a folder as a kill leaves it on the way."""
    source, _, after = shipped
    folder = shutil.copytree(source, tmp_path / "visit")
    if left == "an end":
        notes = Notes(folder)
        notes.set(erasing=2)
        notes.close()
        shutil.rmtree(folder / "mine")
    else:
        shutil.rmtree(folder / "instant")
    if left == "half a copy":
        shutil.rmtree(folder / "mine")
        (folder / "old").rename(folder / "mine")
        shutil.rmtree(folder / "vendor")
        (folder / "old.part" / "bundles").mkdir(parents=True)
    visit = opened(folder)
    try:
        if left == "an end":
            assert (visit.view["stage"], visit.view["labelled"]) == ("labelling", 0)
            assert (visit.view["reader"], (folder / "old").exists()) == (2, False)
            return
        assert visit.view["stage"] == "shipped"
        assert set(visit._opened[0].devices) == set(COLUMNS)
        for name in ("old", "vendor", "mine"):
            assert answers(visit.view, name) == pytest.approx(answers(after, name), abs=1e-9)
    finally:
        visit.close()


def test_one_server_has_a_folder(visit, tmp_path):
    with pytest.raises(DataError, match="another server"):
        Visit(tmp_path)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / NAME).write_text("not a database, though it has its name")
    with pytest.raises(DataError, match="cannot be read"):
        Visit(tmp_path / "foreign")
