"""A function is called for items in other processes, some of which end."""

import itertools
import os

import pytest

import in_other_processes as functions
from fala.many import workers
from fala.many.workers import in_processes

pytestmark = pytest.mark.slow


def test_items_are_done_in_other_processes_of_one_thread(capfd):
    done = list(in_processes(functions.thread_and_process, range(20), 2))
    items, processes, threads, priorities = zip(*done, strict=True)
    assert sorted(items) == list(range(20))
    assert os.getpid() not in processes and len(set(processes)) == 2
    assert set(threads) == {"1"}
    # Of one session, or else a lower priority would not count on Linux.
    assert set(priorities) == {(os.getsid(0), min(os.nice(0) + 10, 19))}
    # What is printed there does not come between the results.
    printed = capfd.readouterr()
    assert printed.out == "" and "a line of a library" in printed.err


def test_an_item_whose_process_ends_is_tried_in_another(tmp_path):
    mark = str(tmp_path / "mark")
    assert list(in_processes(functions.die_once, [mark], 1)) == [mark]


def test_an_item_that_ends_every_process_is_left_out_and_after_some_in_a_row_all(monkeypatch):
    monkeypatch.setattr(workers, "ATTEMPTS", 1)
    monkeypatch.setattr(workers, "MOST_LOST", 2)
    assert list(in_processes(functions.die_at, [1, -2, 3, -4, -5, 6], 1)) == [1, 3]


def test_where_no_process_starts_all_is_done_here(monkeypatch, caplog):
    monkeypatch.setattr("sys.executable", "no such program")
    done = list(in_processes(str, [1, 2, 3], 2))
    assert sorted(done) == ["1", "2", "3"]
    assert "everything is done in this one" in caplog.text


def test_processes_end_when_no_more_results_are_wanted():
    results = in_processes(functions.thread_and_process, range(1_000), 2)
    processes = {process for _, process, *_ in itertools.islice(results, 10)}
    results.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
