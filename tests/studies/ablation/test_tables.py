"""What the recorded tables of the paper's ablations do not have, of handwritten records."""

import pytest

from fala import DataError
from fala_sim.report.table import NOT_RUN
from sim_tables import USERS, about, cell, column, frame_of, scores
from studies.ablation.study import STUDY

TABLES = STUDY.tables()


def ablation(variant, auc=0.7, **fields):
    return [
        about(user, method="fala-paper", variant=variant, scores=scores(auc), **fields)
        for user in USERS
    ]


def test_records_of_other_tables_are_named():
    with pytest.raises(
        DataError, match=r"no records of table4 .*`fala-sim study ablation table-4 --run`"
    ):
        TABLES["table-4"](frame_of({"ablation": ablation("table5-ce-0.1")}))


def test_table_5_by_objective_and_lambda():
    runs = ablation("table5-mse+ce-0.0001", 0.8) + ablation("table5-ce-1e-1", 0.6)
    table = TABLES["table-5"](frame_of({"ablation": runs}))
    where = {"metric": "AUC", "lambda": 0.0001}
    assert cell(table, "MSE + CE", **where).mean == pytest.approx(0.8)
    assert cell(table, "MSE", **where) == NOT_RUN
    assert cell(table, "CE", **{"metric": "AUC", "lambda": 0.1}).mean == pytest.approx(0.6)
    assert cell(table, "paper: CE", **{"metric": "accuracy", "lambda": 0.0}) == 0.846
    assert cell(table, "paper: CE", **{"metric": "AUC", "lambda": 0.0}) is None


def test_table_7_counts_clusters_by_user():
    runs = [
        about(
            user, seed, "fala-paper", variant=f"table7-{top_k}", scores=scores(0.7), clusters=count
        )
        for top_k, counts in {100: (9, 9), 10: (40, 41)}.items()
        for user in ("Ann", "Ben")
        for seed, count in enumerate(counts)
    ]
    table = TABLES["table-7"](frame_of({"ablation": runs}))
    assert column(table, "top k", data="tweets") == [10, 100]
    assert column(table, "user 1", data="tweets") == [40.5, 9]
    assert column(table, "user 3", data="tweets") == [None, None]
    assert column(table, "user 4", data="paper: NR (MIND)", new="RoBERTa") == [418]
    assert table.notes == ("tweets: user 1 is Ann, user 2 is Ben.",)
