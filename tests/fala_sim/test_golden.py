"""The tables of the recorded results are the ones that lie beside them, cell by cell."""

from functools import cache

import pytest

from checkout import ROOT
from fala_sim import frame
from sim_tables import TABLES

STUDIES = ROOT / "device_sim/results"

#: Studies of many people, whose blends take a minute.
LARGE = ("many", "tuned")

GOLDEN = sorted(STUDIES.glob("*/tables/*.md"))


def cells(text):
    """A Markdown table's rows, whatever their padding."""
    return [
        [cell.strip() for cell in line.split(" | ")]
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith(("|:", "|-", "| ---"))
    ]


records_of = cache(frame)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.thorough) if path.parts[-3] in LARGE else path
        for path in GOLDEN
    ],
    ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_a_recorded_table_is_made_again(path):
    table = TABLES[path.stem.removeprefix("table-")](records_of(path.parents[1]))
    assert cells(table.markdown()) == cells(path.read_text(encoding="utf-8"))


def test_every_table_that_can_be_made_of_recorded_results_is_beside_them():
    recorded = {path.stem for path in GOLDEN}
    lacking = {"history", *(f"table-{number}" for number in (1, 3, 4, 5, 6, 7))}
    names = {f"table-{name}" if name.isdigit() else name for name in TABLES}
    assert recorded == names - lacking
