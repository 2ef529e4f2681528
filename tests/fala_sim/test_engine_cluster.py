"""Jobs on a Ray cluster of several node processes, one of which is killed in mid-run."""

import os
import shutil

import pytest

pytest.importorskip("ray", reason="Ray comes with the extra [cluster]")

import ray
from ray.cluster_utils import Cluster

from driver import run, task_of
from fala_sim.engine.cluster import RayEngine
from fala_sim.engine.job import Call, Job, Needs
from fala_sim.experiments.runner import run_jobs
from fala_sim.records.store import RecordKey, RecordStore, read_records
from giving import die, give, read, take
from laboratory import write_data
from sim_command import works

#: What differs between two runs of the same job, by the name of its field.
TIMES = {"seconds", "cpu_seconds", "peak_memory", "start_memory", "date", "provenance", "cost"}


def key(user, variant=""):
    return RecordKey("labels", "d", "m", user, 0, variant)


@pytest.fixture(scope="module")
def cluster():
    """A head that runs no jobs, and three nodes that do."""
    with pytest.MonkeyPatch.context() as patched:
        python_path = os.pathsep.join([*os.sys.path, os.environ.get("PYTHONPATH", "")])
        patched.setenv("PYTHONPATH", python_path)  # nodes import what this process does
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        ray_cluster.nodes = [ray_cluster.add_node(num_cpus=1, num_gpus=n // 2) for n in range(3)]
        yield ray_cluster
        ray.shutdown()
        ray_cluster.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    return RayEngine(cluster.address, 2)


def test_a_jobs_files_are_copied_to_its_node(engine, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "one").write_text("1")
    (tmp_path / "file").write_text("two")
    task = task_of("read", read, key("read"), tmp_path / "file", tmp_path / "model")
    call = Call(task.make().job, lambda: [tmp_path / "file", tmp_path / "model"])
    nowhere = Call(call.job, lambda: [], tmp_path / "nowhere")
    tasks = [
        Job("read", lambda: call, lambda: False),
        Job("elsewhere", lambda: nowhere, lambda: False),
        task_of("dead", die, key("dead")),
    ]
    failures, _ = run(tmp_path / "results", tasks, engine)
    assert len(failures) == 2
    assert any("name a shared one with --results" in line for line in failures)
    assert any("dead: its process ended (SIGKILL" in line for line in failures)
    by_user = {record["user"]: record for record in read_records(tmp_path / "results", "labels")}
    assert set(by_user) == {"read", "dead"}
    assert (by_user["read"]["text"], by_user["read"]["files"]) == ("two", ["one"])
    assert by_user["read"]["moved"]
    assert by_user["read"]["provenance"]["machine"]["node"] != "local"


def test_a_job_has_its_share_of_a_gpu(engine, tmp_path):
    needs = {"half": Needs(gpu=0.5), "none": Needs(), "large": Needs(gpu=1, memory=2**60)}
    tasks = []
    for name, each in needs.items():
        task = task_of(name, take, key(name), 0.0)
        tasks.append(Job(name, task.make, task.done, each))
    failures, _ = run(tmp_path, tasks, engine)
    assert not failures
    given = {record["user"]: record["gpu"] for record in read_records(tmp_path, "labels")}
    assert given["half"] == given["large"] == "0"
    assert not given["none"]


def test_records_of_a_cluster_equal_those_of_one_machine(cluster, engine, tmp_path):
    folder = write_data(tmp_path / "small")
    options = ["--data", f"lewidi:{folder}", "--users", "2", "--new", "bert", "--jobs", "2"]
    options += ["--methods", "old,global,fala"]
    by_engine = {}
    for name, engine_options in {
        "local": [],
        "ray": ["--engine", "ray", "--address", cluster.address],
    }.items():
        results = tmp_path / name
        if by_engine:  # share the vendor's files
            shutil.copytree(tmp_path / "local" / "work", results / "work")
        works("table", "2", "--run", *options, "--results", results, *engine_options)
        records = [without(record) for record in read_records(results, "replacement")]
        passes = [record["cost"]["total"]["forward_passes"]
                  for record in read_records(results, "replacement")]  # fmt: skip
        by_engine[name] = (records, passes)
    assert len(by_engine["ray"][0]) == 6
    assert by_engine["ray"] == by_engine["local"]


def without(value):
    """A record without the fields that differ between runs."""
    if isinstance(value, dict):
        return {name: without(content) for name, content in value.items() if name not in TIMES}
    return [without(content) for content in value] if isinstance(value, list) else value


def test_a_dead_node_neither_loses_nor_repeats_records(cluster, engine, tmp_path):
    keys = {str(user): [key(str(user), variant) for variant in "ab"] for user in range(24)}
    tasks = []
    for user, user_keys in keys.items():
        task = task_of(user, give, *user_keys)

        def make(task=task):
            call = task.make()
            call.job.keywords["seconds"] = 0.3
            return call

        tasks.append(Job(user, make, lambda: False))
    lines = []

    def log(line):
        lines.append(line)
        if len(lines) == 4:
            cluster.remove_node(cluster.nodes[0], allow_graceful=False)

    failures = run_jobs(tasks, RecordStore(tmp_path), engine=engine, log=log)
    assert failures == []
    assert len(lines) == len(tasks)
    records = read_records(tmp_path, "labels")
    assert sorted((record["user"], record["variant"]) for record in records) == sorted(
        (user, variant) for user in keys for variant in "ab"
    )
    assert len({record["provenance"]["machine"]["node"] for record in records}) == 3
    assert not list(tmp_path.rglob("*.part"))
