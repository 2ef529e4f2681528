"""The tables of the paper's ablations, of handwritten records."""

import pytest

from fala import DataError
from fala_sim.report.table import NOT_RUN
from fala_sim.report.value import UserMean
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


def test_table_3():
    def old(which, gain):
        return [
            about(
                user, method="fala-paper", variant=f"table3-old-{which}", scores=scores(auc + gain)
            )
            for user, auc in USERS.items()
        ]

    table = TABLES["table-3"](frame_of({"ablation": old("global", 0) + old("personal", 0.1)}))
    assert cell(table, "personal", metric="AUC").mean == pytest.approx(0.8)
    assert cell(table, "p", metric="AUC") == 2 / 32
    assert cell(table, "paper: personal", metric="accuracy") == UserMean(0.8386, 0.069, n=5)
    assert cell(table, "paper: personal", metric="AUC") is None


def test_table_5_by_objective_and_lambda():
    runs = ablation("table5-mse+ce-0.0001", 0.8) + ablation("table5-ce-1e-1", 0.6)
    table = TABLES["table-5"](frame_of({"ablation": runs}))
    where = {"metric": "AUC", "lambda": 0.0001}
    assert cell(table, "MSE + CE", **where).mean == pytest.approx(0.8)
    assert cell(table, "MSE", **where) == NOT_RUN
    assert cell(table, "CE", **{"metric": "AUC", "lambda": 0.1}).mean == pytest.approx(0.6)
    assert cell(table, "paper: CE", **{"metric": "accuracy", "lambda": 0.0}) == 0.846
    assert cell(table, "paper: CE", **{"metric": "AUC", "lambda": 0.0}) is None


def test_table_6_has_the_papers_rows_below():
    table = TABLES["table-6"](frame_of({"ablation": ablation("table6-own-labels", 0.55)}))
    ours = cell(table, "AUC", data="tweets", model="own labels, no global training")
    assert ours.mean == pytest.approx(0.55)
    assert cell(table, "AUC", data="tweets", model="FaLA (paper), with global training") == NOT_RUN
    there = column(table, "F1", data="paper: HS (Wikipedia Detox)", new="RoBERTa")
    assert [value.mean for value in there] == pytest.approx([0.4251, 0.4842])


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
