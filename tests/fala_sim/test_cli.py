"""Commands on finished results: they read records, and run or write only with an option."""

import shutil
import sqlite3
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fala_sim.cli import runs
from fala_sim.records.store import DATABASE
from sim_command import failed, run, works
from sim_records import write_run
from sim_tables import FIGURES, TABLES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "results"
    write_run(folder)
    return folder


def everything(folder):
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_a_figure_is_printed_as_text_and_drawn_with_out(results, tmp_path):
    before = everything(results)
    printed = works("figure", "3", "--results", results)
    assert ": " in printed.stdout.splitlines()[0]
    drawn = works("figure", "3", "--results", results, "--out", tmp_path / "out")
    assert everything(results) == before
    files = [Path(file) for file in drawn.stdout.split()]
    assert len(files) == 2 * len(printed.stdout.splitlines()) > 0
    assert sorted(files) == sorted((tmp_path / "out").iterdir())
    for drawing, picture in zip(files[::2], files[1::2], strict=True):
        root = ElementTree.parse(drawing).getroot()
        assert len(root.findall(".//{http://www.w3.org/2000/svg}text")) > 5
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_all_writes_the_tables_and_figures_that_have_records(results, tmp_path, monkeypatch):
    shutil.copyfile(results / DATABASE, tmp_path / DATABASE)
    monkeypatch.setattr(runs, "run_missing", lambda *_: [])  # everything is recorded
    done = works("all", "--results", tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert {"tables/headline.md", "tables/table-2.json", "figures/pareto-films.svg"} <= written
    assert {path.partition("/")[0] for path in written} == {DATABASE, "tables", "figures"}
    assert "left out: no records of kind 'flops' (table 1)" in done.stderr


def test_missing_records_are_named_in_one_line_without_making_a_folder(tmp_path):
    for words in (("table", "labels"), ("table", "2"), ("figure", "3")):
        line = failed(*words, "--results", tmp_path / "none")
        assert line.startswith(f"fala-sim: {tmp_path / 'none'}: no records of kind ")
        assert f"`fala-sim {words[0]} {words[1]} --run` makes them" in line
    assert not (tmp_path / "none").exists()


def test_an_empty_figure_is_an_error(results, tmp_path):
    shutil.copyfile(results / DATABASE, tmp_path / DATABASE)
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("DELETE FROM records WHERE key LIKE '%films%'")
    message = failed("figure", "2", "--results", tmp_path)
    assert "figure 2 is empty, because no record has the scores that it shows" in message


def test_run_options_but_those_of_the_environment_require_run(results, monkeypatch):
    message = failed("table", "2", "--results", results, "--users", "3", status=2)
    assert "--users: use this only with --run" in message
    monkeypatch.setenv("FALA_DATA", "/nowhere")
    before = everything(results)
    assert "tweets" in works("table", "2", "--results", results).stdout
    assert everything(results) == before


def test_help_describes_every_table_and_figure():
    for command, registry in (("table", TABLES), ("figure", FIGURES)):
        words = " ".join(run(command, "--help").stdout.split())
        for entry in registry.values():
            assert f"{entry.name} {entry.about}" in words


def test_a_table_has_the_options_of_its_experiments():
    """Benchmarks have no users, and the paper's ablations no other methods."""
    commands = ("table 1", "table headline", "study houlsby adapters", "study ablation table-4")
    takes = {
        command: {word for word in ("--users", "--methods", "--old", "--seeds")
                  if word in run(*command.split(), "-h").stdout}
        for command in commands
    }  # fmt: skip
    assert takes == {
        "table 1": set(),
        "table headline": {"--users", "--methods", "--old", "--seeds"},
        "study houlsby adapters": {"--seeds"},
        "study ablation table-4": {"--users", "--old", "--seeds"},
    }
