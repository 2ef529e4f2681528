"""The layer between a process and its disk records operations, and fails like a disk."""

import contextlib
import errno
import os
import shutil
import sqlite3

import pytest

from fala.base.errors import DataError
from fala.testing import counted, failing_disk, run_apart, watching


def use_files(folder):
    """Change a folder in Python's own ways."""
    (folder / "made").mkdir()
    part = folder / "made" / "part"
    with part.open("wb") as stream:
        stream.write(b"first")
        stream.flush()
        os.fsync(stream.fileno())
        stream.write(b"second")
    part.replace(folder / "whole")
    shutil.copyfile(folder / "whole", folder / "copy")
    with (folder / "whole").open("r+") as stream:
        stream.truncate(3)
    shutil.rmtree(folder / "made")
    (folder / "copy").unlink()


def use_sqlite(folder):
    with contextlib.closing(sqlite3.connect(folder / "a.sqlite3", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE numbers (number)")
        db.execute("INSERT INTO numbers VALUES (1)")


def test_pythons_operations_are_recorded_in_order(tmp_path):
    with counted(tmp_path) as operations:
        use_files(tmp_path)
    recorded = [(each.kind, each.path.name) for each in operations]
    before, copied = recorded[:6], [each for each in recorded[6:] if each[1] == "copy"]
    assert before == [
        ("mkdir", "made"), ("create", "part"), ("write", "part"), ("sync", "part"),
        ("write", "part"), ("rename", "whole"),
    ]  # fmt: skip
    assert copied[0] == ("create", "copy")
    assert set(copied[1:-1]) == {("write", "copy")}
    assert recorded[-3:] == [("truncate", "whole"), ("rmdir", "made"), ("delete", "copy")]
    assert [each.number for each in operations] == list(range(1, len(operations) + 1))


def test_sqlites_operations_are_recorded_in_order(tmp_path):
    with counted(tmp_path) as operations:
        use_sqlite(tmp_path)
    recorded = [(each.kind, each.path.name.partition("sqlite3")[2]) for each in operations]
    logged = recorded.index(("create", "-wal"))
    assert ("write", "-wal") in recorded[logged:]
    assert ("sync", "-wal") in recorded[logged:]
    # A commit is in the log and flushed before it is in the file.
    assert recorded.index(("sync", "-wal"), logged) < recorded.index(("write", ""), logged)
    assert recorded[-1] == ("delete", "-wal")


def test_one_folder_is_watched_by_one_layer(tmp_path):
    (tmp_path / "in").mkdir()
    with failing_disk(tmp_path / "in", 1) as fault:
        (tmp_path / "out").write_text("written")
        (tmp_path / "inside").mkdir()
    assert fault.count == 0
    (tmp_path / "in" / "later").write_text("written")
    with watching(tmp_path, lambda _: None) as layer:
        with pytest.raises(DataError, match="one layer at a time"), counted(tmp_path):
            pass
        (tmp_path / "file").touch()
    assert layer.count == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_operation_of_python_fails_with_the_error(error, tmp_path):
    at, ended = 0, False
    while not ended:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        with failing_disk(folder, at, error) as fault:
            try:
                use_files(folder)
            except OSError as raised:
                assert raised.errno == error
                assert fault.failed
            else:
                ended = at > fault.count
        if error == errno.EIO:
            assert len(fault.failed) == (not ended)
    assert at > 10


def errors_of_sqlite(folder, at, error):
    """Return SQLite's error when writes to its log begin to fail."""
    with contextlib.closing(sqlite3.connect(folder / "a.sqlite3", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE numbers (number)")
    with (
        failing_disk(folder, at, error),
        contextlib.closing(sqlite3.connect(folder / "a.sqlite3", isolation_level=None)) as db,
    ):
        with pytest.raises(sqlite3.OperationalError) as raised:
            db.execute("INSERT INTO numbers VALUES (randomblob(100000))")
        assert db.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
    with contextlib.closing(sqlite3.connect(folder / "a.sqlite3")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return str(raised.value)


def test_a_broken_disk_is_an_error_of_sqlite(tmp_path):
    assert errors_of_sqlite(tmp_path, 5, errno.EIO) == "disk I/O error"


def test_a_fork_is_watched_and_its_parent_is_not(tmp_path):
    def work(report):
        with counted(tmp_path) as operations:
            use_sqlite(tmp_path)
        report(len(operations))

    (count,) = run_apart(work).said
    assert count > 10
    with failing_disk(tmp_path, 10**6) as fault:
        pass
    assert fault.count == 0
