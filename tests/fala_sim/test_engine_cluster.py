"""Jobs on a Ray cluster of several node processes, one of which is killed in mid-run."""

import os
import shutil

import pytest

pytest.importorskip("ray", reason="Ray comes with the extra [cluster]")

import ray
from ray.cluster_utils import Cluster

from driver import run, task_of
from fala_sim.engine.cluster import RayEngine
from fala_sim.engine.task import Call, Task
from fala_sim.experiments.runner import run_tasks
from fala_sim.records import Key, Store, read_records
from giving import die, give, read
from laboratory import write_data
from sim_command import works

#: What differs between two runs of the same job, by the name of its field.
TIMES = {"seconds", "cpu_seconds", "peak_memory", "start_memory", "date", "provenance", "cost"}


def key(user, variant=""):
    return Key("labels", "d", "m", user, 0, variant)


@pytest.fixture(scope="module")
def cluster():
    """A head that runs no jobs, and three nodes that do."""
    with pytest.MonkeyPatch.context() as patched:
        here = os.pathsep.join([*os.sys.path, os.environ.get("PYTHONPATH", "")])
        patched.setenv("PYTHONPATH", here)  # nodes import what this process does
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        made.nodes = [made.add_node(num_cpus=1) for _ in range(3)]
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    return RayEngine(cluster.address, 2)


def test_what_a_job_reads_travels(engine, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "one").write_text("1")
    (tmp_path / "file").write_text("two")
    task = task_of("read", read, key("read"), tmp_path / "file", tmp_path / "model")
    call = Call(task.make().job, lambda: [tmp_path / "file", tmp_path / "model"])
    nowhere = Call(call.job, lambda: [], tmp_path / "nowhere")
    tasks = [
        Task("read", lambda: call, lambda: False),
        Task("elsewhere", lambda: nowhere, lambda: False),
        task_of("dead", die, key("dead")),
    ]
    failures, _ = run(tmp_path / "results", tasks, engine)
    assert len(failures) == 2
    assert any("name a shared one with --results" in line for line in failures)
    assert any("dead: its process ended (SIGKILL" in line for line in failures)
    found = {one["user"]: one for one in read_records(tmp_path / "results", "labels")}
    assert set(found) == {"read", "dead"}
    assert (found["read"]["text"], found["read"]["files"]) == ("two", ["one"])
    assert found["read"]["moved"]
    assert found["read"]["provenance"]["machine"]["node"] != "local"


def test_records_are_those_of_one_machine(cluster, engine, tmp_path):
    folder = write_data(tmp_path / "small")
    given = ["--data", f"lewidi:{folder}", "--users", "2", "--new", "bert", "--jobs", "2"]
    given += ["--methods", "old,global,fala"]
    made = {}
    for name, more in {
        "local": [],
        "ray": ["--engine", "ray", "--address", cluster.address],
    }.items():
        results = tmp_path / name
        if made:  # the vendor's part is the same
            shutil.copytree(tmp_path / "local" / "work", results / "work")
        works("table", "2", "--run", *given, "--results", results, *more)
        found = [without(one) for one in read_records(results, "replacement")]
        passes = [one["cost"]["total"]["forward_passes"]
                  for one in read_records(results, "replacement")]  # fmt: skip
        made[name] = (found, passes)
    assert len(made["ray"][0]) == 6
    assert made["ray"] == made["local"]


def without(value):
    """A record without what is different every time."""
    if isinstance(value, dict):
        return {name: without(one) for name, one in value.items() if name not in TIMES}
    return [without(one) for one in value] if isinstance(value, list) else value


def test_a_node_that_dies_loses_nothing_and_nothing_comes_twice(cluster, engine, tmp_path):
    keys = {str(user): [key(str(user), variant) for variant in "ab"] for user in range(24)}
    tasks = []
    for user, own in keys.items():
        task = task_of(user, give, *own)

        def make(task=task):
            call = task.make()
            call.job.keywords["seconds"] = 0.3
            return call

        tasks.append(Task(user, make, lambda: False))
    said = []

    def say(line):
        said.append(line)
        if len(said) == 4:
            cluster.remove_node(cluster.nodes[0], allow_graceful=False)

    failures = run_tasks(tasks, Store(tmp_path), engine=engine, log=say)
    assert failures == []
    assert len(said) == len(tasks)
    found = read_records(tmp_path, "labels")
    assert sorted((one["user"], one["variant"]) for one in found) == sorted(
        (user, variant) for user in keys for variant in "ab"
    )
    assert len({one["provenance"]["machine"]["node"] for one in found}) == 3
    assert not list(tmp_path.rglob("*.part"))
