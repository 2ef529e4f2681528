import shutil

import pytest

pytest.importorskip("pandas")

from checkout import ROOT
from runs import compared
from sim_tables import cell
from tables import write

RESULTS = ROOT / "device_sim" / "results"


def test_fala_of_one_run_is_compared_with_methods_of_another():
    table = compared(RESULTS / "layersbase", RESULTS / "trained")
    where = {"data": "md-agreement", "against": "LoRA"}
    # As docs/figures.md has it, rounded.
    difference = cell(table, "difference in AUC", **where)
    assert (difference.mean, difference.low, difference.high) == pytest.approx(
        (0.0065, -0.0077, 0.0207), abs=5e-5
    )
    assert cell(table, "verdict", **where) == "inconclusive"
    assert cell(table, "made by", **where) == "2 commits"


def test_a_runs_tables_are_written_again(tmp_path):
    run = shutil.copytree(RESULTS / "profiles", tmp_path / "profiles")
    (run / "tables/profiles.md").write_text("stale")
    write(run)
    recorded = RESULTS / "profiles/tables/profiles.md"
    assert (run / "tables/profiles.md").read_text() == recorded.read_text()
