"""The layer between a process and its disk records operations, and fails like a disk."""

import contextlib
import errno
import itertools
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
    with watching(tmp_path / "in", lambda _: None) as layer:
        (tmp_path / "out").write_text("written")
        (tmp_path / "inside").mkdir()
        assert layer.count == 0
        with pytest.raises(DataError, match="one layer at a time"), counted(tmp_path):
            pass
        (tmp_path / "in" / "file").touch()
    assert layer.count == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_operation_of_python_fails_with_the_error(error, tmp_path):
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        folder.mkdir()
        with failing_disk(folder, at, error) as fault:
            try:
                use_files(folder)
            except OSError as raised:
                assert raised.errno == error
                assert fault.failed if error == errno.ENOSPC else len(fault.failed) == 1
                continue
        if at > fault.count:
            break
    assert at > 10 and not fault.failed


def test_a_broken_disk_is_an_error_of_sqlite(tmp_path):
    def connect():
        db = sqlite3.connect(tmp_path / "a.sqlite3", isolation_level=None)
        return contextlib.closing(db)

    with connect() as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE numbers (number)")
    with failing_disk(tmp_path, 5, errno.EIO), connect() as db:
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            db.execute("INSERT INTO numbers VALUES (randomblob(100000))")
        assert db.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
    with connect() as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


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
