"""Records: one winner, packed or not, and told apart by all of their keys."""

import contextlib
import gzip
import json
import multiprocessing
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from checkout import ROOT
from fala import DataError
from fala.testing import run_apart
from fala_sim import packing, records
from fala_sim.cli import main
from fala_sim.origin import commit_of
from fala_sim.packing import pack
from fala_sim.records import (
    KINDS,
    PACKED,
    Key,
    key_of,
    read_record,
    read_records,
    recorded,
    write_record,
)

RECORDS = 60


def keys(count=RECORDS, start=0):
    return [Key("curve", "d", "m", f"u{number % 7}", number, "10") for number in range(count)][
        start:
    ]


def write(results, given):
    for key in given:
        write_record(results, key, {"scores": {"auc": key.seed / 100}})


def loose(results):
    return sorted((results / "records").rglob("*.json"))


def race(results, number, together, wins):
    together.wait()
    won = []
    for key in keys():
        with contextlib.suppress(DataError):
            write_record(results, key, {"writer": number})
            won.append(key.seed)
    wins.put((number, won))


def test_of_many_writers_one_wins(tmp_path):
    forks = multiprocessing.get_context("fork")  # six imports would take longer than the race
    together, wins = forks.Barrier(6), forks.Queue()
    writers = [
        forks.Process(target=race, args=(tmp_path, number, together, wins)) for number in range(6)
    ]
    for writer in writers:
        writer.start()
    won = dict(wins.get(timeout=60) for _ in writers)
    for writer in writers:
        writer.join()
    assert sorted(seed for seeds in won.values() for seed in seeds) == list(range(RECORDS))
    for number, seeds in won.items():
        for seed in seeds:
            assert read_record(tmp_path, keys()[seed])["writer"] == number
    assert not list((tmp_path / "records").rglob("*.part"))


def test_the_loser_of_a_race_is_told(tmp_path, monkeypatch):
    """Both looked before either wrote."""
    key = keys(1)[0]
    write(tmp_path, [key])
    monkeypatch.setattr(records, "recorded", lambda *_: False)
    with pytest.raises(DataError, match="never rewritten"):
        write_record(tmp_path, key, {"scores": {"auc": 0.9}})
    assert read_record(tmp_path, key)["scores"] == {"auc": 0.0}


def test_packed_records_are_read_as_they_were(tmp_path):
    write(tmp_path, keys())
    before = read_records(tmp_path, "curve")
    done = CliRunner().invoke(main, ["pack", "--results", str(tmp_path), "--json"])
    assert json.loads(done.stdout)["added"] == RECORDS
    assert not (tmp_path / "records").exists()
    assert read_records(tmp_path, "curve") == before
    for key in keys():
        assert recorded(tmp_path, key)
        assert read_record(tmp_path, key)["seed"] == key.seed
        assert read_record(tmp_path, key)["provenance"] == before[0]["provenance"]
    other = Key("curve", "d", "m", "u0", RECORDS, "10")
    assert not recorded(tmp_path, other)
    assert read_record(tmp_path, other) is None
    with pytest.raises(DataError, match="never rewritten"):
        write(tmp_path, keys(1))


def test_packing_again_adds(tmp_path):
    write(tmp_path, keys(10))
    assert pack(tmp_path).added == 10
    write(tmp_path, keys(RECORDS, start=10))
    both = read_records(tmp_path, "curve")
    assert len(both) == RECORDS
    assert [r["user"] for r in both] == sorted(r["user"] for r in both)  # packed and loose mingled
    assert (pack(tmp_path).added, pack(tmp_path).added) == (RECORDS - 10, 0)
    assert read_records(tmp_path, "curve") == both
    with pytest.raises(DataError, match="no records"):
        pack(tmp_path / "work")


def test_the_same_records_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, keys())
    shutil.copytree(first, second)
    pack(first)
    for path in loose(second)[::2]:  # in two goes
        path.rename(tmp_path / path.name)
    pack(second)
    for key in keys():
        if (tmp_path / key.path(second).name).exists():
            key.path(second).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / key.path(second).name).rename(key.path(second))
    pack(second)
    assert (first / PACKED).read_bytes() == (second / PACKED).read_bytes()


@pytest.mark.parametrize("step", ["GzipFile", "read_packed", "_sync", "_remove_empty"])
def test_packing_stopped_at_any_step_goes_on(tmp_path, monkeypatch, step):
    write(tmp_path, keys(8))
    pack(tmp_path)
    write(tmp_path, keys(20, start=8))
    before = read_records(tmp_path, "curve")

    def stop(*_args, **_keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if step == "read_packed":  # the reading back, not the first
            real, calls = packing.read_packed, []

            def second(path):
                calls.append(path)
                return stop() if len(calls) > 1 else real(path)

            patched.setattr(packing, step, second)
        else:
            patched.setattr(gzip if step == "GzipFile" else packing, step, stop)
        with pytest.raises(KeyboardInterrupt):
            pack(tmp_path)
    assert read_records(tmp_path, "curve") == before
    pack(tmp_path)
    assert read_records(tmp_path, "curve") == before
    assert not (tmp_path / "records").exists()
    assert not list(tmp_path.glob("*.part"))


def test_packing_killed_at_any_instant_loses_nothing(tmp_path):
    write(tmp_path, keys())
    before = read_records(tmp_path, "curve")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "records", kept)
    killed = 0
    for trial in range(12):
        ended = run_apart(lambda _: pack(tmp_path), kill_after=0.004 * trial)
        killed += ended.killed
        assert read_records(tmp_path, "curve") == before
        (tmp_path / PACKED).unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "records", ignore_errors=True)
        shutil.copytree(kept, tmp_path / "records")
    assert killed
    pack(tmp_path)
    assert read_records(tmp_path, "curve") == before


def test_damage_is_told_and_nothing_is_removed(tmp_path):
    write(tmp_path, keys(5))
    pack(tmp_path)
    whole = (tmp_path / PACKED).read_bytes()
    (tmp_path / PACKED).write_bytes(whole[:-30])
    write_record_of = Key("curve", "d", "m", "new", 0)
    with pytest.raises(DataError, match=r"records\.jsonl\.gz, line \d+: damaged"):
        read_records(tmp_path, "curve")
    (tmp_path / PACKED).write_bytes(whole)
    write(tmp_path, [write_record_of])
    (tmp_path / PACKED).write_bytes(whole[:-30])
    with pytest.raises(DataError, match="damaged"):
        pack(tmp_path)
    assert len(loose(tmp_path)) == 1
    (tmp_path / PACKED).write_bytes(whole)
    changed = json.loads(write_record_of.path(tmp_path).read_text()) | {"user": "u0", "seed": 99}
    write_record_of.path(tmp_path).write_text(json.dumps(changed))
    with pytest.raises(DataError, match="a record of another place"):
        pack(tmp_path)


def test_another_record_of_a_packed_job_is_not_dropped(tmp_path):
    write(tmp_path, keys(1))
    pack(tmp_path)
    other = tmp_path / "other"
    write_record(other, keys(1)[0], {"scores": {"auc": 0.9}})
    shutil.copytree(other / "records", tmp_path / "records")
    with pytest.raises(DataError, match="another record of this job"):
        pack(tmp_path)
    assert len(loose(tmp_path)) == 1


def test_folders_of_one_name_have_their_own_records(tmp_path):
    one, two = (Key("curve", f"lewidi:/{folder}/small", "m", "u", 0) for folder in "ab")
    assert one.place != two.place
    write_record(tmp_path, one, {"scores": {"auc": 0.6}})
    assert not recorded(tmp_path, two)
    # What had a plain name before has its place still.
    assert Key("search", "md-agreement", "lora", "Ann88", 0).place == (
        "search", "md-agreement", "lora", "Ann88-0.json",
    )  # fmt: skip
    assert Key("profile", "d", "fala", "u 1", 0, "n100-box").place[3].startswith("u_1-")


def test_a_commit_is_that_of_the_sources_own_repository(tmp_path):
    def git(*arguments):
        named = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)

    inside = tmp_path / "venv" / "origin.py"
    inside.parent.mkdir()
    inside.write_text("")
    assert commit_of(inside) == ""
    (tmp_path / "theirs.py").write_text("")
    git("init", "-q")
    git("add", "theirs.py")
    git("commit", "-qm", "Theirs")
    assert len(commit_of(tmp_path / "theirs.py")) >= 7
    assert commit_of(inside) == ""


def test_a_job_asks_without_holding_all_records(tmp_path):
    write(tmp_path, keys(3))
    pack(tmp_path)
    records._packed.cache_clear()
    assert recorded(tmp_path, keys(1)[0])
    assert records._packed.cache_info().currsize == 0


@pytest.mark.parametrize("run", ["replacement", "many", "tuned", "adapters", "prompts"])
def test_a_recorded_run_is_packed_and_tells_its_commit(run):
    folder = ROOT / "device_sim" / "results" / run
    found = [record for kind in KINDS for record in read_records(folder, kind)]
    assert len(found) > 190
    assert len(set(map(key_of, found))) == len(found)
    assert all(record["provenance"]["commit"] for record in found)
    assert not (folder / "records").exists()
    assert (folder / PACKED).stat().st_size < 2e6
