"""A failure does not stop the other jobs, and is reported at the end."""

from types import SimpleNamespace

import pytest

import sim_command
from driver import InProcess, run, task_of
from fala import DataError
from fala_sim import engine
from fala_sim.engine.job import Job
from fala_sim.engine.local import LocalEngine
from fala_sim.experiments import people
from fala_sim.experiments.chosen import chosen_settings
from fala_sim.experiments.labels import jobs as by_labels
from fala_sim.experiments.plan import PeoplePlan
from fala_sim.experiments.replacement import jobs as replacement
from fala_sim.experiments.runner import time_left
from fala_sim.records.store import RecordKey, RecordStore, read_records
from giving import give
from laboratory import write_data

KEY = RecordKey("labels", "d", "m", "u", 0)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_jobs")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture
def results(tmp_path, tmp_path_factory):
    """A folder of results, whose work folder with prepared releases is that of other tests."""
    work = tmp_path_factory.getbasetemp() / "work of failures"
    work.mkdir(exist_ok=True)
    (folder := tmp_path / "results").mkdir()
    (folder / "work").symlink_to(work)
    return folder


def options(results, *data):
    return ["--data", ",".join(data), "--users", 2, "--new", "bert", "--results", results]


def plan_of(results, folder, methods):
    data = (f"lewidi:{folder}",)
    return PeoplePlan(results=results, data=data, users=2, old="glove", new="bert", methods=methods)


def test_a_bad_data_set_does_not_stop_the_other_data_sets(folder, results, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: InProcess())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "Bad_train.json").write_text("{")
    bad = [f"lewidi:{tmp_path / name}" for name in ("broken", "nowhere")]
    arguments = options(results, bad[0], f"lewidi:{folder}", bad[1])
    done = sim_command.run("table", "2", "--run", *arguments, "--methods", "old,global")
    assert done.exit_code == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"fala-sim: 2 failed, the first: {bad[0]}: ")
    assert any(f"{bad[1]}: left out: " in line for line in done.stderr.splitlines())
    assert {record["method"] for record in read_records(results, "replacement")} == {
        "old", "global",
    }  # fmt: skip
    assert "New head alone" in done.stdout


def test_what_is_left_out_and_not_learned_is_printed(folder, results, monkeypatch):
    """Once, also when the run resumes."""
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: InProcess())
    arguments = options(results, f"lewidi:{folder}")
    for _ in range(2):
        done = sim_command.run("table", "2", "--run", *arguments, "--methods", "old,global")
        lines = done.stderr.splitlines()
        data = f"lewidi:{folder}: "
        assert sum(line.startswith(data + "left out ") for line in lines) == 1
        (reason,) = [line for line in lines if line.startswith(data + "no bridge: ")]
        assert "are too few" in reason


@pytest.mark.parametrize(
    ("elapsed", "done", "count", "words"),
    [
        (10.0, 1, 4, "; about 30 s left"), (300.0, 3, 4, "; about 1.7 min left"),
        (3600.0, 1, 3, "; about 2.0 h left"), (36.0, 1, 26, "; about 15 min left"), (9.0, 4, 4, ""),
    ],
)  # fmt: skip
def test_progress_says_how_long_the_other_jobs_take(elapsed, done, count, words):
    assert time_left(elapsed, done, count) == words


@pytest.fixture
def submitted(monkeypatch):
    """The tasks that the laboratory submits; every search task fails."""
    tasks = []

    def run(batch, store, *, engine, log):
        batch = list(batch)
        tasks.extend(batch)
        return [f"{task.label}: broken" for task in batch if "search" in task.label]

    monkeypatch.setattr(people, "run_jobs", run)
    return tasks


@pytest.mark.thorough
def test_a_method_without_its_search_is_skipped_and_the_rest_run(folder, tmp_path, submitted):
    plan = plan_of(tmp_path, folder, ("old", "fala", "top", "fala-paper"))
    failures = people.run(plan, replacement.EXPERIMENTS, LocalEngine(2), print)
    labels = [task.label for task in submitted]
    assert {label.split()[2] for label in labels if label.startswith("search")} == {
        "top", "fala-paper",
    }  # fmt: skip
    ready = {label.split()[2] for label in labels if label.startswith("replacement")}
    assert ready == {"old", "fala"}
    assert failures[-1].endswith(
        "fala-paper, top: not run, because they have no settings; see why their search failed"
    )


def test_few_labels_report_missing_searches_and_indivisible_data(
    folder, results, submitted, monkeypatch
):
    plan = plan_of(results, folder, ("global", "top"))
    failures = people.run(plan, by_labels.EXPERIMENTS, LocalEngine(2), print)
    assert failures[-1].endswith("they have no settings; see why their search failed")
    assert [task.label.split()[2] for task in submitted if task.label.startswith("labels ")] == (
        ["global"] * 2
    )
    participants = people.PeopleStudy.participants

    def divide(study, data, role, seed):
        if role == "validation":
            raise DataError("too few people")
        return participants(study, data, role, seed)

    monkeypatch.setattr(people.PeopleStudy, "participants", divide)
    failures = people.run(plan, by_labels.EXPERIMENTS, LocalEngine(2), print)
    assert failures[0].endswith(": too few people")


def test_methods_that_train_run_once_unless_people_take_turns():
    users = {"posts": ("ada", "ada"), "films": ("bob", "cem")}
    tested = [
        people.Participants(data, seed, "test", "classification", {user: 9})
        for data, in_turn in users.items()
        for seed, user in enumerate(in_turn)
    ]
    _, replaced, _ = replacement.EXPERIMENTS
    plan = SimpleNamespace(trained_users=None)
    jobs = replaced.keys(SimpleNamespace(tested=tested, plan=plan), ["top", "lora"])
    run = [(method, division.data, division.seed) for division, method, _ in jobs]
    assert run[:3] == [("lora", "posts", 0), ("lora", "films", 0), ("lora", "films", 1)]
    assert run[3:] == [("top", data, seed) for data in users for seed in (0, 1)]


def test_methods_that_train_may_run_on_fewer_people():
    users = dict.fromkeys(("ada", "bob", "cem"), 9)
    tested = [people.Participants("posts", 0, "test", "classification", users)]
    study = SimpleNamespace(tested=tested, plan=SimpleNamespace(trained_users=2))
    jobs = replacement.EXPERIMENTS[1].keys(study, ["top", "lora"])
    assert [(method, key.user) for _, method, (key,) in jobs] == [
        ("lora", "ada"), ("lora", "bob"), ("top", "ada"), ("top", "bob"), ("top", "cem"),
    ]  # fmt: skip


def test_settings_without_scores_are_not_chosen(tmp_path):
    tried = [{"settings": {"k": 1}, "scores": {"auc": None, "accuracy": None}}]
    RecordStore(tmp_path).append(RecordKey("search", "d", "knn", "u", 0), {"tried": tried})
    assert chosen_settings(tmp_path, "search") == {}


def test_a_job_that_cannot_be_prepared_does_not_stop_the_others(tmp_path):
    def broken():
        raise DataError("no such thing")

    tasks = [
        Job("bad", broken, bool),
        task_of("good", give, KEY),
        Job("bad too", broken, bool),
    ]
    failures, lines = run(tmp_path, tasks, jobs=1)
    assert failures == ["bad: no such thing", "bad too: no such thing"]
    assert RecordStore(tmp_path).get(KEY)["given"] == 0
    assert sum("no such thing" in line for line in lines) == 1
