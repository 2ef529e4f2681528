"""The power-cut simulator finds missing flushes, and reports no others."""

import os
import sqlite3
import time
from contextlib import closing

import pytest

from fala.base.errors import DataError, FalaError
from fala.testing import PowerCuts, run_apart


def write(folder, text, *, flush, rename):
    """Write a note, with or without a flush and a rename."""
    path = folder / ("part" if rename else "note")
    with path.open("w") as stream:
        stream.write(text)
        stream.flush()
        if flush:
            os.fsync(stream.fileno())
    if rename:
        path.replace(folder / "note")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "start"
    folder.mkdir()
    write(folder, "old", flush=True, rename=True)
    return folder


def notes_after(folder, scratch, unsynced, **how):
    """Return the possible notes after power cuts, and whether the new one was reported."""

    def work(path, report):
        write(path, "new", **how)
        report("written")
        (path / "last").mkdir()

    cuts = PowerCuts(work, folder, scratch=scratch)
    return {
        (bool(cut.said), (cut.folder / "note").read_text())
        for cut in cuts.at_operations(unsynced=unsynced)
    }


def test_with_flush_and_rename_a_cut_leaves_old_or_new(folder, tmp_path):
    for unsynced in ("kept", "lost", "some"):
        notes = notes_after(folder, tmp_path, unsynced, flush=True, rename=True)
        assert notes <= {(False, "old"), (False, "new"), (True, "new")}
        assert {(False, "old"), (True, "new")} <= notes


def test_missing_flushes_are_detected(folder, tmp_path):
    """Without a flush the new name may exist without the content."""
    assert (True, "") in notes_after(folder, tmp_path, "lost", flush=False, rename=True)
    assert (True, "") not in notes_after(folder, tmp_path, "kept", flush=False, rename=True)
    assert (False, "") in notes_after(folder, tmp_path, "kept", flush=True, rename=False)


@pytest.mark.parametrize(("synchronous", "loses"), [("FULL", False), ("NORMAL", True)])
def test_sqlite_without_flushes_loses_commits(tmp_path, synchronous, loses):
    def work(path, report):
        path.mkdir(exist_ok=True)
        with closing(sqlite3.connect(path / "a.sqlite3", isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute("CREATE TABLE numbers (number)")
            for number in range(2):
                db.execute("INSERT INTO numbers VALUES (?)", (number,))
                report(number)

    missing = 0
    kinds = {"sync", "create", "truncate"}  # of the checkpoint too, but not every write
    for cut in PowerCuts(work, scratch=tmp_path).at_operations(kinds, unsynced="lost"):
        if cut.said:
            with closing(sqlite3.connect(cut.folder / "a.sqlite3")) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                table = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                rows = {row for (row,) in db.execute("SELECT * FROM numbers")} if table else ()
            missing += not set(cut.said) <= set(rows)
    assert (missing > 0) == loses


def test_cuts_at_instants_and_sampled_operations(folder, tmp_path):
    def work(path, report):
        for number in range(6):
            write(path, str(number), flush=True, rename=True)
            report(number)
            time.sleep(0.005)

    cuts = PowerCuts(work, folder, scratch=tmp_path)
    course = cuts.course()
    assert (course.said, len(course.operations)) == (tuple(range(6)), 24)

    def sampled():
        return cuts.at_operations({"rename"}, count=4, seed=2)

    for cut in [*cuts.at_instants(2), *sampled()]:
        assert not cut.folder.exists()  # deleted before the next one
        assert cut.said == tuple(range(len(cut.said)))
    where = [cut.where for cut in sampled()]
    assert where == [cut.where for cut in sampled()] and len(set(where)) == 4
    assert all("rename note" in each for each in where)


def test_mistakes_are_errors(folder, tmp_path):
    def work(path, report):
        raise ValueError("a mistake of the app's")

    with pytest.raises(FalaError, match="a mistake of the app's"):
        PowerCuts(work, folder, scratch=tmp_path).course()
    with pytest.raises(FalaError, match=r"did not end within 0\.2 s"):
        PowerCuts(lambda *_: time.sleep(60), folder, scratch=tmp_path, limit=0.2).course()
    with pytest.raises(DataError, match="no operation"):
        list(PowerCuts(lambda *_: None, folder, scratch=tmp_path).at_operations())
    with pytest.raises(FalaError, match="exit code 3"):
        run_apart(lambda report: os._exit(3))
