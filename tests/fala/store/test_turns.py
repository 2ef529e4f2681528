"""Writers take turns, as threads of one process and as processes of one folder."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from fala.base.errors import DeviceError, UsageError
from fala.store.turns import Turns


@pytest.fixture
def pair(tmp_path):
    """Make the turns of two processes."""
    (tmp_path / "store").touch()
    pair = [Turns(tmp_path / "store", 5) for _ in range(2)]
    yield pair
    for turns in pair:
        turns.close("closed")


def refused(turns, wait=False):
    with pytest.raises(DeviceError, match="another process uses it; try again"):
        turns.turn(wait=wait).__enter__()


def test_one_writes_at_a_time(pair):
    first, second = pair
    with first.turn():
        assert first.mine and not second.mine
        with first.turn():
            refused(second)
    with second.turn(wait=False):
        refused(first)
    assert not first.mine and not second.mine


def test_a_turn_that_does_not_end_is_an_error(pair, tmp_path):
    first, second = pair[0], Turns(tmp_path / "store", 0.1)
    with first.turn(), ThreadPoolExecutor(1) as pool:
        pool.submit(refused, second, wait=True).result()
    with second.turn():
        assert second.mine


def test_a_thread_does_not_wait_for_itself(pair):
    """An app's function may have another object on the folder."""
    first, second = pair
    with first.turn(), pytest.raises(UsageError, match="another Device object"):
        second.turn().__enter__()
    with second.turn():
        assert second.mine


@contextmanager
def beside(act, threads=1):
    """Let threads do something again and again, until the block ends."""
    ended = threading.Event()

    def repeat():
        while not ended.is_set():
            act()

    with ThreadPoolExecutor(threads) as pool:
        acting = [pool.submit(repeat) for _ in range(threads)]
        try:
            yield
        finally:
            ended.set()
    for each in acting:
        each.result()


def test_a_turn_is_had_while_other_threads_open_devices(tmp_path, pair):
    first, _ = pair
    with beside(lambda: Turns(tmp_path / "other", 5), threads=2):
        for _ in range(300):
            with first.turn():
                assert first.mine


@pytest.mark.parametrize("of", ["processes", "threads"])
def test_who_waits_is_next(pair, of):
    """This holds however often another one writes."""
    first, second = pair if of == "processes" else [pair[0]] * 2
    taken, before = [], []

    def write():
        with first.turn():
            taken.append(None)
            time.sleep(0.01)

    with beside(write):
        for _ in range(20):
            time.sleep(0.005)
            start = len(taken)
            with second.turn():
                before.append(len(taken) - start)
    assert sorted(before)[10] <= 1 and max(before) <= 8
    assert len(taken) >= 5


def test_the_turn_of_a_killed_process_ends(pair, tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from fala.store.turns import Turns\n"
        "with Turns(Path(sys.argv[1]), 5).turn():\n    print('taken', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, tmp_path / "store"]
    turns, _ = pair
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        refused(turns)
        process.kill()
    with turns.turn(wait=False):
        assert turns.mine


def test_a_file_system_without_locks_has_turns_of_threads(pair, monkeypatch):
    """SQLite's own locks keep processes apart there."""

    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)

    def mine():
        with pair[1].turn():
            return pair[1].mine

    with pair[0].turn(), ThreadPoolExecutor(1) as pool:
        assert pair[0].mine and pool.submit(mine).result()


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path):
    turns = Turns(tmp_path / "store", 1)
    with pytest.raises(DeviceError, match="was erased"):
        turns.turn().__enter__()
    (tmp_path / "store").touch()
    (tmp_path / "store.turn").mkdir()
    with pytest.raises(DeviceError, match="directory"):
        turns.turn().__enter__()
