import pytest

pytest.importorskip("pandas")

from checkout import ROOT
from runs import rows

RESULTS = ROOT / "device_sim" / "results"


def test_fala_of_one_run_is_compared_with_methods_of_another():
    lines = list(rows(RESULTS / "layersbase", RESULTS / "trained"))
    assert lines[0] == "| | AUC | FaLA minus it | FaLA, all documents minus it |"
    # As docs/figures.md has them, rounded.
    expected = "| LoRA | 0.8916 | -0.0015 (-0.0132 to 0.0102) | +0.0060 (-0.0045 to 0.0164) |"
    assert expected in lines


def test_a_run_differs_from_itself_by_nothing():
    lines = list(rows(RESULTS / "layersbase", RESULTS / "layersbase"))
    (own,) = [line for line in lines if line.startswith("| FaLA |")]
    assert "+0.0000 (0.0000 to 0.0000)" in own
