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


def test_table_1_shows_the_papers_figures():
    def row(backbone, method, forward, backward):
        batch = {"examples": 16, "tokens": 128}
        return {
            "backbone": backbone, "method": method, "forward_flops": forward,
            "backward_flops": backward, "batch": batch,
        }  # fmt: skip

    rows = [row("BERT-base", "full", 100, 200), row("BERT-base", "lora", 101, 100)]
    table = TABLES["1"](frame_of({"flops": [{"kind": "flops", "rows": rows}]}))
    assert cell(table, "cheaper", backbone="BERT-base", method="LoRA") == 2
    assert cell(table, "paper: backward", backbone="BERT-base", method="LoRA") == 1.35e12
    assert cell(table, "forward", backbone="BERT-base", method="Adapters") == NOT_RUN
    assert cell(table, "paper: cheaper", backbone="RoBERTa-base", method="The paper's FaLA") == (
        pytest.approx(5.42e12 / 1.09e10)
    )
    assert "16 texts of 128 tokens" in table.caption
