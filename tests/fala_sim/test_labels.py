"""Methods at few labels, from a run to its table."""

from types import SimpleNamespace

import pandas as pd
import pytest

from fala_sim.data.users import User
from fala_sim.experiments.labels import jobs
from fala_sim.experiments.labels.jobs import EXPERIMENTS, drawn_labels, draws
from fala_sim.experiments.labels.tables import over_draws
from fala_sim.experiments.people import Participants
from fala_sim.records.store import RecordStore, read_records
from sim_command import run_small

METHODS = ("global-words", "calibrated", "knn", "fala-instant")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two draws of 5 and of 50 labels, and all labels of a user who has fewer than 200."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jobs, "SIZES", {"5": 5, "50": 50, "200": 200, "all": None})
        patched.setattr(jobs, "DRAWS", 2)
        return run_small(
            tmp_path_factory, "labels", "lewidi", "--methods", ",".join(METHODS),
            documents=84, annotators=4,
        )  # fmt: skip


def test_every_method_has_a_record_of_each_draw(results):
    records = read_records(results, "labels")
    (examples,) = {record["train"] for record in records if record["variant"] == "all.0"}
    drawn = ["5.0", "5.1", "50.0", "50.1", "all.0"]
    by_draw = {(record["method"], record["variant"]): record for record in records}
    assert set(by_draw) == {(method, draw) for method in METHODS for draw in drawn}
    for (method, draw), record in by_draw.items():
        size = draw.partition(".")[0]
        assert record["train"] == (examples if size == "all" else int(size))
        assert ("decision" in record) == (method == "fala-instant")
    # A slope and a bias leave the ranking as it is.
    vendor, calibrated = (by_draw[method, "50.0"]["scores"] for method in METHODS[:2])
    assert calibrated["auc"] == pytest.approx(vendor["auc"])
    assert calibrated["loss"] != pytest.approx(vendor["loss"])


def test_settings_are_chosen_on_validation_users_at_each_size(results):
    searched = read_records(results, "labels-search")
    assert {record["method"] for record in searched} == {"knn"}
    for record in read_records(results, "labels"):
        size = record["variant"].partition(".")[0]
        # At a number that validation users do not have, all of theirs.
        sizes = {search["variant"] for search in searched}
        size = size if size in sizes else "all"
        tried = [search["tried"] for search in searched if search["variant"] == size]
        if record["method"] == "knn":
            options = [search["settings"] for search in tried[0]]
            means = [sum(person[number]["scores"]["auc"] for person in tried)
                     for number in range(len(options))]  # fmt: skip
            assert means[options.index(record["settings"])] == pytest.approx(max(means))
        else:
            assert record["settings"] == {}


def test_draws_of_a_method_are_one_row_after_its_title_has_changed():
    draw = {"data": "posts", "user": "ada", "seed": 0, "new": "minilm", "method": "top"}
    runs = pd.DataFrame(
        [
            {**draw, "title": "Top", "variant": "5.0", "scores.auc": 0.6},
            {**draw, "title": "Trained top layer", "variant": "5.1", "scores.auc": 0.7},
        ]
    )
    (row,) = over_draws(runs).to_dict("records")
    assert (row["labels"], row["title"]) == ("5", "Trained top layer")
    assert row["scores.auc"] == pytest.approx(0.65)


def test_numbers_of_labels_that_a_user_has_are_drawn_three_times():
    assert draws(20) == ["5.0", "5.1", "5.2", "10.0", "10.1", "10.2", "all.0"]


def test_smaller_draws_are_subsets_of_larger_draws():
    user = User(
        "ada", [f"text {n}" for n in range(60)], ["yes", "no"] * 30, ["a", "b"], ["yes"] * 2
    )
    five, ten = (drawn_labels(user, f"{size}.1") for size in (5, 10))
    assert len(five.train) == len(five.train_labels) == 5
    assert set(five.train) < set(ten.train)
    assert set(five.train) != set(drawn_labels(user, "5.2").train)
    assert ten.train == sorted(ten.train, key=user.train.index)
    assert (
        dict(zip(ten.train, ten.train_labels, strict=True)).items()
        <= dict(zip(user.train, user.train_labels, strict=True)).items()
    )


def test_a_user_with_few_labels_has_one_draw_and_a_user_without_labels_none(tmp_path):
    users = {"ada": 3, "bob": 0}
    study = SimpleNamespace(
        store=RecordStore(tmp_path),
        tested=[Participants("posts", 0, "test", "classification", users)],
        prepared=lambda *_: tmp_path,
    )
    *_, few = EXPERIMENTS
    (job,) = few.jobs(study, ["global"], {})
    call = job.make()
    assert call.job.args[0].user == "ada"
    assert call.job.keywords == {"done": frozenset(), "settings": {}}
