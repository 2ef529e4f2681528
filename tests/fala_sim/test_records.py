"""Records are appended once, and read alike from a run and from a packed study."""

import contextlib
import gzip
import multiprocessing
import runpy
import sqlite3
import subprocess
from pathlib import Path

import pytest

from fala import DataError
from fala_sim.records import provenance as origin
from fala_sim.records.provenance import commit_of_source
from fala_sim.records.store import DATABASE, PACKED, RecordKey, RecordStore, read_records
from sim_command import fails, run, works

RECORDS = 60
COMMITTED = {"commit": "a1b2c3d", "changed": False}


def keys(count=RECORDS, start=0):
    return [RecordKey("labels", "d", "m", f"u{n % 7}", n, "10") for n in range(start, count)]


def write(results, record_keys):
    for key in record_keys:
        RecordStore(results).append(key, {"scores": {"auc": key.seed / 100}}, origin=COMMITTED)


def race(results, number, barrier, wins):
    store = RecordStore(results)
    assert not store.keys  # of an empty folder: nobody has written yet
    barrier.wait()
    won = []
    for key in keys():
        with contextlib.suppress(DataError):
            store.append(key, {"writer": number})
            won.append(key.seed)
    wins.put((number, won))


def test_concurrent_writers_append_each_record_once(tmp_path):
    forks = multiprocessing.get_context("fork")  # six imports would take longer than the race
    barrier, wins = forks.Barrier(4), forks.Queue()
    writers = [forks.Process(target=race, args=(tmp_path, n, barrier, wins)) for n in range(4)]
    for writer in writers:
        writer.start()
    won = dict(wins.get(timeout=60) for _ in writers)
    for writer in writers:
        writer.join()
    assert sorted(seed for seeds in won.values() for seed in seeds) == list(range(RECORDS))
    by_seed = {record["seed"]: record["writer"] for record in read_records(tmp_path, "labels")}
    assert by_seed == {seed: number for number, seeds in won.items() for seed in seeds}


def test_a_record_is_appended_once_and_with_its_origin(tmp_path):
    store, (key, second) = RecordStore(tmp_path / "new" / "run"), keys(2)
    store.append(key, {"scores": {"auc": 0.5}}, origin={"node": "far"})
    for target in (store, RecordStore(tmp_path / "new" / "run")):
        with pytest.raises(DataError, match="recorded already"):
            target.append(key, {"scores": {"auc": 0.6}})
    with pytest.raises(DataError, match="not plain values"):
        store.append(second, {"scores": float("nan")})
    record = store.get(key)
    assert (record["scores"], record["provenance"]) == ({"auc": 0.5}, {"node": "far"})
    assert store.get(second) is None and store.keys == {key}


def test_packed_records_are_unchanged_and_a_run_resumes(tmp_path):
    write(tmp_path, keys())
    before = read_records(tmp_path)
    works("pack", "--results", tmp_path)
    first = (tmp_path / PACKED).read_bytes()
    (tmp_path / DATABASE).unlink()
    assert read_records(tmp_path, "labels") == before
    with pytest.raises(DataError, match="recorded already"):
        write(tmp_path, keys(1))
    assert RecordStore(tmp_path).pack().read_bytes() == first  # the same records, the same bytes
    write(tmp_path, keys(RECORDS + 5, start=RECORDS))
    both = read_records(tmp_path, "labels")
    assert len(both) == RECORDS + 5
    assert [r["user"] for r in both] == sorted(r["user"] for r in both)
    RecordStore(tmp_path).pack()
    assert gzip.decompress((tmp_path / PACKED).read_bytes()).count(b"\n") == RECORDS + 5
    fails(run("pack", "--results", tmp_path / "none"), "no records to pack")
    assert not (tmp_path / "none").exists()


def test_damaged_records_are_an_error(tmp_path):
    write(tmp_path, keys(5))
    whole = RecordStore(tmp_path).pack().read_bytes()
    for damaged in (whole[:-30], gzip.compress(b'{"kind": "labels"}\n')):
        (tmp_path / PACKED).write_bytes(damaged)
        with pytest.raises(DataError, match=r"records\.jsonl\.gz, line \d+: damaged"):
            read_records(tmp_path, "labels")
        with pytest.raises(DataError, match="damaged"):
            RecordStore(tmp_path).pack()
    (tmp_path / PACKED).unlink()
    (tmp_path / DATABASE).write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"records\.sqlite: damaged"):
        read_records(tmp_path)
    with pytest.raises(DataError, match=r"records\.sqlite"):
        write(tmp_path, keys(1))


def test_a_damaged_kind_does_not_affect_another_kind(tmp_path):
    write(tmp_path, keys(1))
    RecordStore(tmp_path).append(RecordKey("search", "d", "m", "u", 0), {})
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("UPDATE records SET record = 'damaged' WHERE kind = 'search'")
    assert len(read_records(tmp_path, "labels")) == 1
    fails(run("table", "search", "--results", tmp_path), "search", "damaged")


def test_records_of_uncommitted_changes_are_not_packed(tmp_path):
    write(tmp_path, keys(2))
    RecordStore(tmp_path).append(
        RecordKey("labels", "d", "m", "u", 9), {}, origin={"changed": True}
    )
    message = "uncommitted changes of the code made 1 of 3 records, the first: labels d m u seed 9"
    fails(run("pack", "--results", tmp_path), message)
    assert not (tmp_path / PACKED).exists()


@pytest.mark.parametrize("packed", [False, True])
def test_one_record_is_read_without_the_others(tmp_path, packed):
    write(tmp_path, keys(9))
    store, (first, second) = RecordStore(tmp_path), keys(2)
    if packed:
        store.pack()
        (tmp_path / DATABASE).unlink()
        lines = gzip.decompress((tmp_path / PACKED).read_bytes()).splitlines(keepends=True)
        damaged = [line if b'"user":"u0"' in line else b"damaged\n" for line in lines]
        (tmp_path / PACKED).write_bytes(gzip.compress(b"".join(damaged)))
    else:
        with sqlite3.connect(tmp_path / DATABASE) as database:
            database.execute("UPDATE records SET record = 'damaged' WHERE key NOT LIKE '%\"u0\"%'")
    assert store.get(first)["scores"] == {"auc": 0.0}
    with pytest.raises(DataError, match="damaged"):
        store.read()
    if not packed:
        with pytest.raises(DataError, match="damaged"):
            store.get(second)


def git(folder, *arguments):
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


CODE, TABLE = "device_sim/fala_sim/records/provenance.py", "device_sim/results/a.md"


@pytest.fixture
def repository(tmp_path):
    """A function that returns the provenance of records by the code of a repository."""
    for name in (CODE, TABLE):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(Path(origin.__file__).read_text())
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    return lambda: runpy.run_path(str(tmp_path / CODE))["provenance"]()


def test_a_record_says_whether_the_code_was_changed(repository, tmp_path):
    """A changed test or table does not change what is measured."""
    code, table = tmp_path / CODE, tmp_path / TABLE

    def changed():
        return repository()["changed"]

    assert not changed()
    table.write_text("another")
    assert not changed()
    code.write_text(code.read_text() + "\n")
    assert changed()


def test_an_untracked_file_of_a_package_is_a_change(repository, tmp_path):
    """A method, or a module of the device, which no commit has; names are as they are."""
    added = ["device_sim/fala_sim/methods/mine ä.py", "sdk/fala/new.py"]
    for name in ("notes.py", "device_sim/fala_sim/__pycache__/a.pyc", *added):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        told = repository()
        assert told["changed"] == bool(told["untracked"])
    assert told["untracked"] == added
    RecordStore(tmp_path / "results").append(keys(1)[0], {}, origin=told)
    fails(run("pack", "--results", tmp_path / "results"), "not in a commit", *added)


def test_commit_of_ignores_an_enclosing_repository(tmp_path):
    inside = tmp_path / "venv" / "origin.py"
    inside.parent.mkdir()
    inside.write_text("")
    assert commit_of_source(inside) == ""
    (tmp_path / "theirs.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "theirs.py")
    git(tmp_path, "commit", "-qm", "Theirs")
    assert len(commit_of_source(tmp_path / "theirs.py")) >= 7
    assert commit_of_source(inside) == ""
