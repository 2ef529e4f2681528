"""The power-cut simulator finds what an app forgot, and nothing where it forgot nothing."""

import os
import sqlite3
import time
from contextlib import closing

import pytest

from fala.errors import DataError, FalaError
from fala.testing import PowerCuts, run_apart


def write(folder, text, *, flush, rename):
    """Write a note, carefully or not."""
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
    """What a reader may find after power cuts while a note is written; acknowledged and not."""

    def work(path, say):
        write(path, "new", **how)
        say("written")
        (path / "last").mkdir()

    cuts = PowerCuts(work, folder, scratch=scratch)
    return {
        (bool(cut.said), (cut.folder / "note").read_text())
        for cut in cuts.at_operations(unsynced=unsynced)
    }


def test_a_careful_app_has_the_old_or_the_new(folder, tmp_path):
    for unsynced in ("kept", "lost", "some"):
        found = notes_after(folder, tmp_path, unsynced, flush=True, rename=True)
        assert found <= {(False, "old"), (False, "new"), (True, "new")}
        assert {(False, "old"), (True, "new")} <= found


def test_a_careless_app_is_caught(folder, tmp_path):
    """Without a flush the new name may be there, and not what was written."""
    assert (True, "") in notes_after(folder, tmp_path, "lost", flush=False, rename=True)
    assert (True, "") not in notes_after(folder, tmp_path, "kept", flush=False, rename=True)
    assert (False, "") in notes_after(folder, tmp_path, "kept", flush=True, rename=False)


def test_sqlite_without_flushes_loses_what_it_committed(tmp_path):
    def lost(synchronous):
        def work(path, say):
            path.mkdir(exist_ok=True)
            with closing(sqlite3.connect(path / "a.sqlite3", isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(f"PRAGMA synchronous = {synchronous}")
                db.execute("CREATE TABLE numbers (number)")
                for number in range(2):
                    db.execute("INSERT INTO numbers VALUES (?)", (number,))
                    say(number)

        missing = 0
        kinds = {"sync", "create", "truncate"}  # of the checkpoint too, but not every write
        for cut in PowerCuts(work, scratch=tmp_path).at_operations(kinds, unsynced="lost"):
            if cut.said:
                with closing(sqlite3.connect(cut.folder / "a.sqlite3")) as db:
                    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                    made = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
                    kept = {each for (each,) in db.execute("SELECT * FROM numbers")} if made else ()
                missing += not set(cut.said) <= set(kept)
        return missing

    assert lost("FULL") == 0
    assert lost("NORMAL") > 0


def test_instants_and_drawn_operations(folder, tmp_path):
    def work(path, say):
        for number in range(6):
            write(path, str(number), flush=True, rename=True)
            say(number)
            time.sleep(0.005)

    cuts = PowerCuts(work, folder, scratch=tmp_path)
    course = cuts.course()
    assert course.said == tuple(range(6))
    assert len(course.operations) == 24
    for cut in [*cuts.at_instants(2), *cuts.at_operations({"rename"}, count=4, seed=2)]:
        assert not cut.folder.exists()  # gone at the next
        assert cut.said == tuple(range(len(cut.said)))
    where = [cut.where for cut in cuts.at_operations({"rename"}, count=4, seed=2)]
    assert where == [cut.where for cut in cuts.at_operations({"rename"}, count=4, seed=2)]
    assert len(set(where)) == 4
    assert all("rename note" in each for each in where)


def test_mistakes_are_errors(folder, tmp_path):
    def work(path, say):
        raise ValueError("a mistake of the app's")

    with pytest.raises(FalaError, match="a mistake of the app's"):
        PowerCuts(work, folder, scratch=tmp_path).course()
    with pytest.raises(FalaError, match=r"did not end within 0\.2 s"):
        PowerCuts(lambda *_: time.sleep(60), folder, scratch=tmp_path, limit=0.2).course()
    with pytest.raises(DataError, match="no operation"):
        list(PowerCuts(lambda *_: None, folder, scratch=tmp_path).at_operations())
    with pytest.raises(FalaError, match="exit code 3"):
        run_apart(lambda say: os._exit(3))
