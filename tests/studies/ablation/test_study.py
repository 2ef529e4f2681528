"""The study's command, from data to a table."""

import pytest

from driver import InProcess
from fala_sim import engine
from fala_sim.records.store import read_records
from laboratory import write_data
from sim_command import works
from studies.ablation.variants import variants

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def test_the_study_runs_the_papers_method_and_fills_its_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "open_engine", lambda *_, **__: InProcess())
    data = f"lewidi:{write_data(tmp_path / 'small')}"
    results = tmp_path / "results"
    options = ("--run", "--data", data, "--users", 1, "--new", "bert", "--results", results)
    assert "K-means" in works("study", "ablation", "table-4", *options).stdout
    assert {record["method"] for record in read_records(results, "search")} == {"fala-paper"}
    recorded = read_records(results, "ablation")
    assert [record["variant"] for record in recorded] == sorted(variants())
    assert "MSE + CE" in works("study", "ablation", "table-5", "--results", results).stdout
