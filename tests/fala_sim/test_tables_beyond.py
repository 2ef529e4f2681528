"""The tables beyond the paper, of records that are written by hand."""

import pytest

from fala import DataError
from fala_sim.report.table import NOT_RUN
from sim_tables import TABLES, USERS, about, cell, column, cost, curve, frame_of, replaced, scores


def test_cold_users_against_the_vendors_model():
    runs = curve("global", "0", [0.6, 0.6, 0.6, 0.6]) + curve("fala", "10", [0.5, 0.58, 0.6, 0.9])
    table = TABLES["cold"](frame_of({"curve": runs}))
    where = {"method": "FaLA", "examples": 10}
    assert cell(table, "share below", **where) == 0.5
    assert cell(table, "mean loss below", **where) == pytest.approx(0.06)
    assert cell(table, "largest loss", **where) == pytest.approx(0.1)
    assert cell(table, "difference in AUC", **where).mean == pytest.approx(0.045)


def test_cold_users_take_the_vendors_model_from_replacements():
    records = frame_of(
        {"curve": curve("fala", "0", [0.6, 0.65]), "replacement": replaced("global")}
    )
    table = TABLES["cold"](records)
    assert cell(table, "share below", method="FaLA", examples=0) == 0
    assert cell(table, "largest loss", method="FaLA", examples=0) is None
    assert not TABLES["cold"](frame_of({"curve": curve("fala", "0", [0.6])})).rows


def test_search_tells_what_was_tried_and_chosen():
    def tried(*aucs):
        return [
            {"settings": {"learning_rate": rate}, "scores": scores(auc)}
            for rate, auc in zip((1e-3, 1e-4, 1e-5), aucs, strict=True)
        ]

    runs = [
        about("Val", method="lora", kind="search", tried=tried(0.6, 0.9, 0.5)),
        about("Vic", method="lora", kind="search", tried=tried(0.7, 0.5, 0.5)),
    ]
    before = TABLES["search"](frame_of({"search": runs}))
    assert cell(before, "settings tried", method="LoRA") == 3
    assert cell(before, "chosen", method="LoRA") == "learning rate 0.0001"
    assert cell(before, "best AUC", method="LoRA") == pytest.approx(0.7)
    assert cell(before, "worst AUC", method="LoRA") == pytest.approx(0.5)
    # What the replacements were run with is told, be it the best or not.
    used = replaced("lora", settings={"learning_rate": 1e-3})
    after = TABLES["search"](frame_of({"search": runs, "replacement": used}))
    assert cell(after, "chosen", method="LoRA") == "learning rate 0.001"
    assert cell(after, "chosen's AUC", method="LoRA") == pytest.approx(0.65)


def rated(method, rmse, **fields):
    records = replaced(method, task="rating", data="stars", **fields)
    for record, value in zip(records, rmse, strict=True):
        record["scores"] = {"rmse": value, "rank_correlation": 1 - value}
    return records


def test_ratings_have_a_table_of_their_own_beside_labels():
    runs = [*rated("global-words", [0.2] * 4 + [0.4]), *rated("fala", [0.1] * 2 + [0.3] * 3)]
    budgets = rated("fala", [0.1] * 5, variant="100")
    records = frame_of({"replacement": [*runs, *replaced("fala")], "frontier": budgets})
    table = TABLES["ratings"](records)
    assert column(table, "method") == ["Vendor with words", "FaLA", "FaLA, 100 passes"]
    where = {"method": "FaLA"}
    assert cell(table, "RMSE", **where).mean == pytest.approx(0.22)
    assert cell(table, "rank correlation", **where).mean == pytest.approx(0.78)
    assert cell(table, "RMSE less the vendor's", **where).mean == pytest.approx(-0.02)
    assert cell(table, "people below", **where) == 3
    assert set(column(TABLES["headline"](records), "data")) == {"tweets"}


# --- our own method ----------------------------------------------------------------------------


def budgeted(passes, gain, f1, **fields):
    """Frontier records: AUC is ``gain`` above ``USERS``, F1 at the device's threshold ``f1``."""
    records = replaced("fala", gain, variant=str(passes), cost=cost(passes), **fields)
    for record in records:
        record["decided"] = {"f1": f1, "accuracy": 0.8}
    return records


def test_a_share_of_no_gain_or_without_its_ends():
    runs = budgeted(0, 0.05, 0.5)
    others = replaced("lora")
    table = TABLES["frontier"](frame_of({"replacement": others, "frontier": runs}))
    assert column(table, "share of the gain in AUC") == [NOT_RUN] * 3
    ends = [*replaced("global"), *replaced("fala-all", -0.01)]
    table = TABLES["frontier"](frame_of({"replacement": ends, "frontier": runs}))
    assert column(table, "share of the gain in AUC") == [None] * 3


def test_at_twenty_examples_users_are_counted_above_and_below():
    gains = {"Ann": 0.02, "Ben": 0.0, "Cem": -0.004, "Dee": -0.03, "Eva": 0.01}
    runs = [
        *curve("fala", "20", [USERS[user] + gain for user, gain in gains.items()]),
        *curve("fala", "50", USERS.values()),
        *curve("global", "20", USERS.values()),
    ]
    table = TABLES["twenty"](frame_of({"curve": runs}))
    (row,) = table.rows
    assert row[2:8] == ("FaLA", 5, 2 / 5, 2 / 5, 1, pytest.approx(0.03))
    assert row[8].mean == pytest.approx(sum(gains.values()) / 5)


def test_verdicts_need_the_vendors_scores():
    with pytest.raises(DataError, match="run it again"):
        TABLES["verdicts"](frame_of({"replacement": replaced("fala")}))
