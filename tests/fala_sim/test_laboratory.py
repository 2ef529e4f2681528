"""Runs of the laboratory, from data to records, in real processes on small data."""

import json
import os
import shutil
import signal
import sqlite3
import time
from functools import partial

import pytest

import sim_command
import warm
from fala_sim.records.store import DATABASE, RecordKey, RecordStore, key_of, read_records
from laboratory import write_data
from sim_command import done, failed, run, works

SIZES = {"annotators": 5, "documents": 50}
METHODS = "old,global,fala-paper,fala"
fails = partial(sim_command.fails, notices=True)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_jobs")]


def arguments(folder, results):
    data = f"lewidi:{folder}"
    options = ["--data", data, "--users", "2", "--seeds", "1", "--new", "bert", "--jobs", "2"]
    return [*options, "--methods", METHODS, "--results", str(results)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data") / "small", **SIZES)


@pytest.fixture(scope="module")
def results(folder, tmp_path_factory):
    """The records of table 2 from one run, which later runs resume by other, absolute paths."""
    results = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(results.parent)
        works("table", "2", "--run", *arguments(os.path.relpath(folder), results.name))
    return results


def records_in(results):
    """The records of the run's database, by key."""
    with sqlite3.connect(results / DATABASE) as database:
        return dict(database.execute("SELECT key, record FROM records"))


def test_every_method_and_user_has_a_record(results):
    records = read_records(results, "replacement")
    assert {(r["method"], r["user"]) for r in records} == {
        (method, user) for method in METHODS.split(",") for user in ("a0", "a2")
    }
    for record in records:
        assert 0 <= record["scores"]["auc"] <= 1
        assert record["provenance"]["machine"]["cores"] == os.cpu_count()
        assert set(record["cross"]) == {"a0", "a2"} - {record["user"]}


def test_costs_are_measured(results):
    by_method = {r["method"]: r for r in read_records(results, "replacement") if r["user"] == "a0"}
    paper, ours = by_method["fala-paper"], by_method["fala"]
    train = paper["train"]
    assert paper["cost"]["total"]["forward_passes"] == train
    assert ours["cost"]["total"]["forward_passes"] == ours["report"]["forward_passes"] <= train
    assert by_method["global"]["cost"]["total"]["forward_passes"] == 0
    for record in (paper, ours):
        assert record["cost"]["stages"]["forward"]["forward_flops"] > 1e6 * train
        assert record["cost"]["total"]["seconds"] > 0
        assert record["cost"]["total"]["peak_memory"] >= record["cost"]["start_memory"] > 1e7


def test_settings_are_the_best_on_validation_users(results):
    searched = [r for r in read_records(results, "search") if r["method"] == "fala-paper"]
    assert not {r["user"] for r in searched} & {"a0", "a2"}
    assert all(len(r["tried"]) == 12 for r in searched)
    means = {}
    for record in searched:
        for attempt in record["tried"]:
            assert len(attempt["logits"]) == len(record["words_logits"]) == len(record["truth"])
            means.setdefault(json.dumps(attempt["settings"]), []).append(attempt["scores"]["auc"])
    best = max(means, key=lambda name: sum(means[name]))
    chosen = {json.dumps(r["settings"]) for r in read_records(results, "replacement")
              if r["method"] == "fala-paper"}  # fmt: skip
    assert sum(means[chosen.pop()]) == sum(means[best])
    assert not chosen


def test_only_a_missing_record_is_made_again(folder, results, tmp_path):
    """Also where the other records are packed; tables read both."""
    copied = tmp_path / "copied"
    shutil.copytree(results, copied)
    before = done("table", "2", "--run", *arguments(folder, copied))
    records = read_records(copied)
    lost = RecordKey("replacement", f"lewidi:{folder}", "global", "a2", 0)
    with sqlite3.connect(copied / DATABASE) as database:
        database.execute('DELETE FROM records WHERE key LIKE \'%"global", "a2"%\'')
        committed = "json_set(record, '$.provenance.changed', json('false'))"
        database.execute(f"UPDATE records SET record = {committed}")  # whatever is edited now
    assert lost not in RecordStore(copied).keys
    RecordStore(copied).pack()
    (copied / DATABASE).unlink()
    after = done("table", "2", "--run", *arguments(folder, copied))
    assert after["rows"] == before["rows"]
    (again,) = map(json.loads, records_in(copied).values())
    (earlier,) = (record for record in records if key_of(record) == lost)
    assert key_of(again) == lost
    assert again["scores"] == earlier["scores"]


def test_a_killed_run_leaves_whole_records_and_resumes(folder, results, tmp_path):
    """The releases are prepared already, and these methods have no settings."""
    shutil.copytree(results, tmp_path / "results")
    results = tmp_path / "results"
    with sqlite3.connect(results / DATABASE) as database:
        database.execute("DELETE FROM records")
    fewer = [*arguments(folder, results), "--methods", "old,global,words"]
    code = "from fala_sim.cli import main; main()"
    program = warm.Program(code, "table", "2", "--run", *fewer, folder=tmp_path)
    warm.until(lambda: len(read_records(results)) >= 2, program)
    program.send_signal(signal.SIGKILL)
    assert program.wait(60).returncode == -signal.SIGKILL
    records = records_in(results)
    assert len(records) >= 2
    time.sleep(1.0)  # its jobs end with it
    assert records_in(results) == records
    works("table", "2", "--run", *fewer)
    after = records_in(results)
    assert len(after) == 1 + 6  # a division, and three methods of two users
    assert {key: after[key] for key in records} == records


def test_a_results_folder_rejects_another_plan(folder, results):
    message = failed("table", "2", "--run", *arguments(folder, results), "--users", "3")
    assert "has records with --users 2, not with --users 3" in message


def test_a_results_folder_rejects_changed_data(folder, results, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(results, copied)
    write_data(folder, seed=1, **SIZES)
    try:
        result = run("table", "2", "--run", *arguments(folder, copied))
    finally:
        write_data(folder, **SIZES)
    assert result.exit_code == 1
    assert "has records of other data with this name" in result.stderr


def test_records_are_read_without_the_data(folder, results, tmp_path):
    """Also without the data and the prepared files."""
    copied = tmp_path / "copied"
    copied.mkdir()
    shutil.copyfile(results / DATABASE, copied / DATABASE)
    moved = folder.rename(tmp_path / "moved")
    try:
        shown = works("table", "2", "--run", *arguments(folder, copied)).stdout
    finally:
        moved.rename(folder)
    assert "FaLA" in shown


def test_methods_that_train_are_left_out_for_a_bundle(folder, results):
    fewer = ("--methods", "global,lora")
    result = works("table", "2", "--run", *arguments(folder, results), *fewer)
    assert "left out, because they train a transformer: lora;" in result.stderr


def test_invalid_options_end_in_one_line(folder, tmp_path):
    command = ("table", "2", "--run", *arguments(folder, tmp_path))
    fails(run(*command, "--methods", "magic"), "no method 'magic'", "fala-paper")
    fails(run(*command, "--data-dir", tmp_path / "none"), "no such folder")
