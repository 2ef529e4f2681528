"""No byte of a forgotten text is left in the device's folder."""

import random
import sqlite3
import subprocess
from contextlib import closing, contextmanager

import pytest

from bridged import TEXTS
from devices import everything, left_of, sql
from fala import Budget, Device, Forgotten
from fala.testing import PowerCuts

pytestmark = pytest.mark.slow


def test_no_byte_of_a_text_is_left_on_the_disk(tmp_path, releases):
    folder = tmp_path / "device"
    secret = [f"the secret number {at} " + "is long " * (at * 40) for at in range(12)]
    plain = [f"what is plain {at}" for at in range(300)]
    with Device.create(folder, releases["old"]) as device:
        device.learn([*plain, *secret], ["0", "1"] * 156)
        device.replace(releases["mid"], Budget(10))
        assert b"the secret number" in everything(folder)
        device.forget(where=lambda row: "secret" in row.example)
        assert not left_of(folder, secret) and b"what is plain 7" in everything(folder)
    assert not left_of(folder, secret) and b"what is plain 7" in everything(folder)


def test_no_byte_is_left_where_rows_were_moved(tmp_path, releases):
    """SQLite leaves copies of rows that it moves between pages, and overwrites none of them."""
    folder, draw = tmp_path / "device", random.Random(0)
    forgotten = []
    with Device.create(folder, releases["old"]) as device:
        for number in range(2):
            names = [f"{number} {at} {draw.getrandbits(80):x} " for at in range(400)]
            device.remember([name * draw.choice([1, 2, 5, 40]) for name in names])
            for _ in range(3):
                sample = draw.sample([*device.examples()], 100)
                device.forget([row.id for row in sample])
                forgotten += [row.example for row in sample]
    assert len(forgotten) == 600 and not left_of(folder, forgotten)


@contextmanager
def reading(path):
    """Stop another connection in the middle of a read."""
    with closing(sqlite3.connect(path / "store.sqlite3", isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM texts").fetchall()
        yield


def contains(path, text):
    """Return whether a folder has a text, by ``grep``: closing a file here drops SQLite's locks."""
    return not subprocess.run(["grep", "-rqF", "--", text, path], check=False).returncode


@pytest.mark.parametrize("finish", ["learn", "forget", "open", "close"])
def test_forget_reports_what_a_reader_keeps_and_finishes_later(path, finish, monkeypatch):
    monkeypatch.setattr("fala.store.database.READERS_TIMEOUT_MS", 50)
    with Device.open(path) as device:
        assert device.forget([5]).overwritten and device.forget([]).overwritten
        with reading(path):
            gone = device.forget(where=lambda row: row.example == TEXTS[7])
            assert gone == Forgotten(1, overwritten=False)
            assert not device.forget([]).overwritten
            assert contains(path, TEXTS[7])
        if finish == "learn":
            device.learn(["another"], ["1"])
        elif finish == "forget":
            assert device.forget([]).overwritten
        elif finish == "open":
            Device.open(path).close()
        else:
            device.close()
        assert not contains(path, TEXTS[7])


def test_no_byte_is_left_after_a_killed_repair(path, tmp_path):
    sql(path, "INSERT INTO logits VALUES (999, 'model', x'00')")  # an example that is not there
    rebuilt = []
    cuts = PowerCuts(lambda folder, report: Device.repair(folder), path, scratch=tmp_path)
    for cut in cuts.at_operations({"rename"}):
        rebuilt += [file.name for file in cut.folder.glob("rebuilt-*")]
        with Device.open(cut.folder) as device:
            assert not [*cut.folder.glob("rebuilt-*")]
            device.forget(where=lambda row: row.example == TEXTS[5])
        assert TEXTS[5].encode() not in everything(cut.folder)
    assert rebuilt


def test_no_byte_is_left_of_rows_that_were_deleted_but_not_overwritten(path):
    with closing(sqlite3.connect(path / "store.sqlite3")) as db, db:
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("UPDATE device SET overwrites = 0")
        db.execute("CREATE TABLE other (text)")
        db.executemany("INSERT INTO other VALUES (?)", [["an old secret " * 20]] * 50)
        db.execute("DROP TABLE other")
    assert b"an old secret" in everything(path)
    with Device.open(path) as device:
        device.forget([1])
        assert b"an old secret" not in everything(path)


@pytest.mark.parametrize("operation", ["forget", "unlabel"])
def test_no_byte_is_left_in_the_damaged_copy_of_a_repair(path, operation):
    sql(path, "INSERT INTO logits VALUES (999, 'model', x'00')")  # an example that is not there
    aside = path / Device.repair(path).aside
    assert TEXTS[5].encode() in aside.read_bytes()
    with Device.open(path) as device:
        device.unlabel(["never seen"])
        assert aside.exists()  # nothing was withdrawn
        getattr(device, operation)(TEXTS[5:6])
    assert not aside.exists() and (TEXTS[5].encode() in everything(path)) == (operation != "forget")
