"""The paper's tables, of handwritten records."""

import pytest

from fala_sim.report.table import NOT_RUN
from sim_tables import (
    TABLES,
    cell,
    column,
    frame_of,
    replaced,
)


def test_table_2_tests_against_the_best_baseline():
    runs = (
        replaced("fala", 0.05) + replaced("lora", 0.02) + replaced("global") + replaced("old", 0.1)
    )
    table = TABLES["2"](frame_of({"replacement": runs}))
    assert cell(table, "p", method="LoRA") == "best baseline"
    assert cell(table, "p", method="FaLA") == 2 / 32
    assert cell(table, "p (Holm)", method="FaLA") == 6 / 32
    assert table.notes == (
        "tweets: against LoRA. With 5 users the smallest p possible is 0.0625, before Holm's "
        "correction over 3 methods.",
    )


@pytest.mark.parametrize("name", ["2", "cost", "headline"])
def test_a_method_that_was_not_run_has_no_row(name):
    table = TABLES[name](frame_of({"replacement": replaced("fala")}))
    assert column(table, "method") == ["FaLA"]
    assert NOT_RUN not in table.text()
    if name == "2":
        assert cell(table, "p", method="FaLA") is None  # no baseline to test against


def test_table_2_without_an_auc():
    runs = replaced("fala", users={"Ann": 0.7}) + replaced("global", users={"Ann": 0.6})
    for record in runs:
        record["scores"]["auc"] = None
    table = TABLES["2"](frame_of({"replacement": runs}))
    assert cell(table, "AUC", method="FaLA") is None
    assert cell(table, "accuracy", method="FaLA").mean == 0.8
