"""Engines run jobs; the driver alone writes the records, even when a job fails."""

import json
import os
import sys
import time

import pytest

from driver import run, task_of
from fala import DataError
from fala_sim.engine import open_engine
from fala_sim.engine.job import Job, Needs
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.shelf import Shelf, unpack_shelf
from fala_sim.records.provenance import gpus, provenance
from fala_sim.records.store import RecordKey, RecordStore, read_records
from giving import STAYS, die, give, refuse, stay, take, threads


def key(user, variant=""):
    return RecordKey("labels", "d", "m", user, 0, variant)


def test_records_are_written_immediately_and_failures_lose_none(tmp_path):
    tasks = [
        task_of("dead", die, key("dead")),
        task_of("refused", refuse, key("refused")),
        task_of("good", give, *(key("good", str(n)) for n in range(3))),
        task_of("threads", threads, key("threads")),
    ]
    failures, lines = run(tmp_path, tasks)
    assert sorted(failures) == [
        "dead: its process ended (SIGKILL; SIGKILL often means too little memory)",
        "refused: enough of this",
    ]
    numbered = [line for line in lines if line.startswith("[")]  # not that on uncommitted changes
    assert len(numbered) == 4 and numbered[-1].startswith("[4/4]")
    by_key = {(r["user"], r["variant"]): r for r in read_records(tmp_path, "labels")}
    good = {("good", str(n)) for n in range(3)}
    assert set(by_key) == {("dead", ""), ("refused", ""), ("threads", ""), *good}
    processes = {by_key[name]["process"] for name in good}
    assert len(processes) == 1 and processes != {os.getpid()}
    assert by_key["threads", ""]["threads"] == str(max(1, (os.cpu_count() or 1) // 2))
    assert by_key["dead", ""]["provenance"]["machine"]["node"] == "local"


def test_closing_the_events_ends_running_jobs():
    tasks = [task_of(str(n), stay, key(str(n))) for n in range(2)]
    events = LocalEngine(2).run([(task, task.make()) for task in tasks])
    first = next(events)
    start = time.perf_counter()
    events.close()
    assert time.perf_counter() - start < STAYS / 2
    with pytest.raises(ProcessLookupError):
        os.kill(first.item.content["process"], 0)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A container of 5 GiB, and nvidia-smi's report of two GPUs."""
    if os.name == "nt":
        pytest.skip("a shell script stands for nvidia-smi")
    limit, command = tmp_path / "memory.max", tmp_path / "bin" / "nvidia-smi"
    limit.write_text(f"{5 * 2**30}\n")
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho NVIDIA H100\necho NVIDIA L4\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("fala_sim.records.provenance._CONTAINER_LIMITS", (tmp_path / "no", limit))
    gpus.cache_clear()
    yield
    gpus.cache_clear()


def run_together(folder, *needs):
    """Run jobs on four cores, and return their records and the most that ran at once."""
    tasks = []
    for number, each in enumerate(needs):
        task = task_of(str(number), take, key(str(number)), 0.25)
        tasks.append(Job(task.label, task.make, task.done, each))
    failures, _ = run(folder, tasks, jobs=4)
    records = sorted(read_records(folder, "labels"), key=lambda record: int(record["user"]))
    assert not failures and len(records) == len(needs)
    at_once = [
        sum(other["start"] <= one["start"] < other["end"] for other in records) for one in records
    ]
    return records, max(at_once)


def test_no_more_jobs_run_at_once_than_memory_allows(tmp_path, machine):
    _, at_once = run_together(tmp_path / "r", *[Needs(memory=2 * 2**30)] * 4)
    assert at_once == 2
    # A job larger than the machine runs, and alone.
    _, at_once = run_together(tmp_path / "s", *[Needs(memory=9 * 2**30)] * 2)
    assert at_once == 1


def test_jobs_share_the_gpus(tmp_path, machine, monkeypatch):
    small = Needs(memory=2**20, gpu=0.5)
    records, _ = run_together(tmp_path / "r", small, small, small, Needs(memory=2**20))
    assert [record["gpu"] for record in records] == ["0", "1", "0", ""]
    whole = Needs(memory=2**20, gpu=1)
    _, at_once = run_together(tmp_path / "s", whole, whole, whole)
    assert at_once == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # what this process was given
    records, at_once = run_together(tmp_path / "t", whole, whole)
    assert (at_once, [record["gpu"] for record in records]) == (1, ["3", "3"])


def test_a_record_names_the_accelerator(machine, tmp_path, monkeypatch):
    provenance.cache_clear()
    assert provenance()["accelerator"] == "NVIDIA H100, NVIDIA L4"
    monkeypatch.setenv("PATH", str(tmp_path))
    for function in (gpus, provenance):
        function.cache_clear()
    assert provenance()["accelerator"] == "CPU"
    provenance.cache_clear()


def test_spent_files_are_removed_after_their_record_is_written(tmp_path):
    for spent in (tmp_path / "folder", tmp_path / "file"):
        if spent.name == "folder":
            (spent / "inner").mkdir(parents=True)
        else:
            spent.write_text("x")
        task = task_of("one", give, key(spent.name))
        call = task.make()
        call.job.keywords["spent"] = (spent,)
        run(tmp_path / "results", [type(task)("one", lambda call=call: call, task.done)])
        assert RecordStore(tmp_path / "results").get(key(spent.name)) is not None
        assert not spent.exists()


def test_unavailable_engines_are_rejected(monkeypatch):
    with pytest.raises(DataError, match="use it with --engine ray"):
        open_engine("local", jobs=1, address="here:1")
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    with pytest.raises(DataError, match=r"with the extra \[cluster\]"):
        open_engine("ray", jobs=1, address=None)


def test_equal_contents_are_sent_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there"))
    (tmp_path / "there").mkdir()
    (tmp_path / "model" / "inner").mkdir(parents=True)
    for name in ("model/one.json", "model/inner/two.json", "three.fala"):
        (tmp_path / name).write_text(json.dumps(name))
    (tmp_path / "same.fala").write_text(json.dumps("three.fala"))
    store, fetched = {}, []

    def put(content):
        store[len(store)] = content
        return len(store) - 1

    def fetch(where):
        fetched.append(where)
        return store[where]

    shelf = Shelf(put)
    paths = [tmp_path / name for name in ("model", "three.fala", "same.fala")]
    for _ in range(2):
        local_paths = unpack_shelf(shelf.parcels(paths), fetch)
        assert (len(store), len(fetched)) == (3, 4)
    for name in ("model/one.json", "model/inner/two.json"):
        assert (tmp_path / name).read_text() == json.dumps(name)
        inner = name.removeprefix("model/")
        moved = local_paths[str(tmp_path / "model")] + "/" + inner
        assert moved.startswith(str(tmp_path / "there"))
        with open(moved) as file:  # noqa: PTH123
            assert json.load(file) == name
    # A changed file is sent again.
    (tmp_path / "three.fala").write_text("changed")
    unpack_shelf(shelf.parcels(paths), fetch)
    assert (len(store), len(fetched)) == (4, 5)
