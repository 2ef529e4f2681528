"""The recorded results: their tables, cell by cell, as one pandas frame, and as Parquet."""

from functools import cache

import pandas as pd
import pytest

from checkout import ROOT
from fala import DataError
from fala_sim import frame
from fala_sim.records.store import DATABASE, PACKED
from fala_sim.report.table import NOT_RUN
from sim_tables import TABLES

STUDIES = ROOT / "device_sim/results"

#: Studies of many people, whose blends take a minute.
LARGE = ("labels",)

GOLDEN = sorted(STUDIES.glob("*/tables/*.md"))


def cells(text):
    """A Markdown table's rows, whatever their padding, but those of methods that were not run.

    A method that came later is in no recorded table.
    """
    return [
        [cell.strip() for cell in line.split(" | ")]
        for line in text.splitlines()
        if line.startswith("|")
        and not line.startswith(("|:", "|-", "| ---"))
        and f" {NOT_RUN} " not in line
    ]


records_of = cache(frame)


def by_size(paths):
    """Tests of large studies have a mark."""
    return [
        pytest.param(path, marks=pytest.mark.thorough) if set(LARGE) & set(path.parts) else path
        for path in paths
    ]


@pytest.mark.parametrize("path", by_size(GOLDEN), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_recorded_table_is_made_again(path):
    table = TABLES[path.stem.removeprefix("table-")](records_of(path.parents[1]))
    assert cells(table.markdown()) == cells(path.read_text(encoding="utf-8"))


def test_every_table_of_recorded_results_is_committed():
    recorded = {path.stem for path in GOLDEN}
    names = {f"table-{name}" if name.isdigit() else name for name in TABLES}
    assert names - {"table-1"} <= recorded <= names


@pytest.mark.parametrize(
    "study",
    by_size(path for path in sorted(STUDIES.iterdir()) if (path / PACKED).exists()),
    ids=lambda path: path.name,
)
def test_a_recorded_study_is_packed(study):
    records = records_of(study)
    assert not records.duplicated(["kind", "data", "method", "user", "seed", "variant"]).any()
    assert records["provenance.commit"].all() and records["date"].notna().all()
    assert not (study / DATABASE).exists()
    assert (study / PACKED).stat().st_size < 3.5e6


def test_records_survive_parquet(tmp_path):
    """Also those with empty objects, which Parquet cannot write."""
    records = records_of(STUDIES / "ratings")
    records.to_parquet(tmp_path / "records.parquet")
    back = pd.read_parquet(tmp_path / "records.parquet")
    assert list(back) == list(records)
    assert back["method"].tolist() == records["method"].tolist()


def test_nested_fields_become_columns(tmp_path):
    records = frame(STUDIES / "ratings", "replacement")
    assert set(records["kind"]) == {"replacement"}
    assert records["scores.rmse"].dropna().between(0, 1).all()
    assert len(records["logits"].dropna().iloc[0][0]) == 1
    with pytest.raises(DataError, match="no records of any kind"):
        frame(tmp_path)
    (tmp_path / PACKED).write_bytes(b"no records")
    with pytest.raises(DataError, match="damaged"):
        frame(tmp_path)
