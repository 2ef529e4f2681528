"""Recorded results as one pandas frame, and as Parquet."""

import pandas as pd
import pytest

import fala_sim
from checkout import ROOT
from fala import DataError

STUDIES = sorted(path for path in (ROOT / "device_sim/results").iterdir() if path.is_dir())

#: Studies with records of every family that are read in a second.
SMALL = ("prompts", "ratings", "replacement")


@pytest.mark.parametrize(
    "study",
    [
        path if path.name in SMALL else pytest.param(path, marks=pytest.mark.thorough)
        for path in STUDIES
    ],
    ids=lambda path: path.name,
)
def test_recorded_results_are_a_frame_that_parquet_keeps(study, tmp_path):
    records = fala_sim.frame(study)
    assert {"kind", "data", "method", "user", "seed", "date"} <= set(records)
    records.to_parquet(tmp_path / "records.parquet")
    back = pd.read_parquet(tmp_path / "records.parquet")
    assert list(back) == list(records)
    assert back["method"].tolist() == records["method"].tolist()


def test_fields_within_fields_are_columns(tmp_path):
    records = fala_sim.frame(ROOT / "device_sim/results/replacement", "replacement")
    assert set(records["kind"]) == {"replacement"}
    assert records["scores.auc"].dropna().between(0, 1).all()
    logits = records["logits"].dropna().iloc[0]
    assert len(logits[0]) == 1
    with pytest.raises(DataError, match="no records of any kind"):
        fala_sim.frame(tmp_path)
    (tmp_path / "records.jsonl.gz").write_bytes(b"no records")
    with pytest.raises(DataError, match="damaged"):
        fala_sim.frame(tmp_path)
