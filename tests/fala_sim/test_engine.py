"""Where jobs run: what they give is written by the driver alone, whatever becomes of them."""

import json
import os
import sys
import time

import pytest

from driver import run, task_of
from fala import DataError
from fala_sim.engine import open_engine
from fala_sim.engine.local import LocalEngine
from fala_sim.engine.shelf import Shelf, unpack
from fala_sim.records import Key, Store, read_records
from giving import STAYS, die, give, refuse, stay, threads


def key(user, variant=""):
    return Key("labels", "d", "m", user, 0, variant)


def test_records_come_as_they_are_made_and_a_bad_end_loses_none(tmp_path):
    tasks = [
        task_of("dead", die, key("dead")),
        task_of("refused", refuse, key("refused")),
        task_of("good", give, *(key("good", str(n)) for n in range(3))),
        task_of("threads", threads, key("threads")),
    ]
    failures, said = run(tmp_path, tasks)
    assert sorted(failures) == [
        "dead: its process ended (SIGKILL; SIGKILL is often too little memory)",
        "refused: enough of this",
    ]
    assert len(said) == 4 and said[-1].startswith("[4/4]")
    found = {(one["user"], one["variant"]): one for one in read_records(tmp_path, "labels")}
    good = {("good", str(n)) for n in range(3)}
    assert set(found) == {("dead", ""), ("refused", ""), ("threads", ""), *good}
    processes = {found[name]["process"] for name in good}
    assert len(processes) == 1 and processes != {os.getpid()}
    assert found["threads", ""]["threads"] == str(max(1, (os.cpu_count() or 1) // 2))
    assert found["dead", ""]["provenance"]["machine"]["node"] == "local"


def test_to_stop_asking_ends_what_runs():
    tasks = [task_of(str(n), stay, key(str(n))) for n in range(2)]
    events = LocalEngine(2).run([(task, task.make()) for task in tasks])
    first = next(events)
    start = time.perf_counter()
    events.close()
    assert time.perf_counter() - start < STAYS / 2
    with pytest.raises(ProcessLookupError):
        os.kill(first.item.content["process"], 0)


def test_what_was_made_of_is_removed_after_the_record_that_it_made(tmp_path):
    for spent in (tmp_path / "folder", tmp_path / "file"):
        if spent.name == "folder":
            (spent / "inner").mkdir(parents=True)
        else:
            spent.write_text("x")
        task = task_of("one", give, key(spent.name))
        call = task.make()
        call.job.keywords["spent"] = (spent,)
        run(tmp_path / "results", [type(task)("one", lambda call=call: call, task.done)])
        assert Store(tmp_path / "results").get(key(spent.name)) is not None
        assert not spent.exists()


def test_engines_that_cannot_be_had_are_refused(monkeypatch):
    with pytest.raises(DataError, match="use it with --engine ray"):
        open_engine("local", jobs=1, address="here:1")
    with pytest.raises(DataError, match="no engine 'slurm'; one of local, ray"):
        open_engine("slurm", jobs=1, address=None)
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    with pytest.raises(DataError, match=r"with the extra \[cluster\]"):
        open_engine("ray", jobs=1, address=None)


def test_contents_travel_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there"))
    (tmp_path / "there").mkdir()
    (tmp_path / "model" / "inner").mkdir(parents=True)
    for name in ("model/one.json", "model/inner/two.json", "three.fala"):
        (tmp_path / name).write_text(json.dumps(name))
    (tmp_path / "same.fala").write_text(json.dumps("three.fala"))
    store, asked = {}, []

    def put(content):
        store[len(store)] = content
        return len(store) - 1

    def fetch(where):
        asked.append(where)
        return store[where]

    shelf = Shelf(put)
    paths = [tmp_path / name for name in ("model", "three.fala", "same.fala")]
    for _ in range(2):
        stands = unpack(shelf.parcels(paths), fetch)
        assert len(store) == len(asked) == 3
    for name in ("model/one.json", "model/inner/two.json"):
        assert (tmp_path / name).read_text() == json.dumps(name)
        inner = name.removeprefix("model/")
        moved = stands[str(tmp_path / "model")] + "/" + inner
        assert moved.startswith(str(tmp_path / "there"))
        with open(moved) as file:  # noqa: PTH123
            assert json.load(file) == name
    # What changed is another content.
    (tmp_path / "three.fala").write_text("changed")
    unpack(shelf.parcels(paths), fetch)
    assert len(store) == len(asked) == 4
