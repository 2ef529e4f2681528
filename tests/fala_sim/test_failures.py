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

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "small", annotators=5, documents=40)


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


def test_a_bad_data_set_does_not_stop_the_other_data_sets(folder, results, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: InProcess())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "Bad_train.json").write_text("{")
    bad = [f"lewidi:{tmp_path / name}" for name in ("broken", "nowhere")]
    arguments = options(results, bad[0], f"lewidi:{folder}", bad[1])
    for _ in range(2):  # what is left out and not learned is printed again when the run resumes
        done = sim_command.run("table", "2", "--run", *arguments, "--methods", "old,global")
        assert done.exit_code == 1
        *lines, last = done.stderr.splitlines()
        assert last.startswith(f"fala-sim: 2 failed, the first: {bad[0]}: ")
        assert any(f"{bad[1]}: left out: " in line for line in lines)
        data = f"lewidi:{folder}: "
        assert sum(line.startswith(data + "left out ") for line in lines) == 1
        (reason,) = [line for line in lines if line.startswith(data + "no bridge: ")]
        assert "are too few" in reason
    recorded = read_records(results, "replacement")
    assert {record["method"] for record in recorded} == {"old", "global"}
    assert "New head alone" in done.stdout


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


def test_few_labels_report_missing_searches_and_indivisible_data(
    folder, results, submitted, monkeypatch
):
    plan = PeoplePlan(
        results=results, data=(f"lewidi:{folder}",), users=2, old="glove", new="bert",
        methods=("global", "top", "knn"),
    )  # fmt: skip
    failures = people.run(plan, by_labels.EXPERIMENTS, LocalEngine(2), print)
    assert failures[-1].endswith(
        "knn, top: not run, because they have no settings; see why their search failed"
    )
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


def test_methods_that_train_run_once_unless_people_take_turns_or_on_fewer_people():
    def jobs(trained_users, divisions):
        tested = [
            people.Participants(data, seed, "test", "classification", dict.fromkeys(users, 9))
            for data, seed, users in divisions
        ]
        study = SimpleNamespace(tested=tested, plan=SimpleNamespace(trained_users=trained_users))
        for division, method, (key,) in replacement.EXPERIMENTS[1].keys(study, ["top", "lora"]):
            yield method, division.data, division.seed, key.user

    posts, films = [("posts", seed, ["ada"]) for seed in (0, 1)], ("films", 0, ["bob"])
    turns = [*posts, films, ("films", 1, ["cem"])]
    assert list(jobs(None, turns)) == [
        ("lora", "posts", 0, "ada"), ("lora", "films", 0, "bob"), ("lora", "films", 1, "cem"),
        *(("top", data, seed, user) for data, seed, (user,) in turns),
    ]  # fmt: skip
    assert list(jobs(2, [("posts", 0, ["ada", "bob", "cem"])])) == [
        *(("lora", "posts", 0, user) for user in ("ada", "bob")),
        *(("top", "posts", 0, user) for user in ("ada", "bob", "cem")),
    ]


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
    failures, lines = run(tmp_path, tasks, InProcess())
    assert failures == ["bad: no such thing", "bad too: no such thing"]
    assert RecordStore(tmp_path).get(KEY)["given"] == 0
    assert sum("no such thing" in line for line in lines) == 1
