"""Tables of handwritten records: rendering, and missing records."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fala import DataError
from fala_sim.experiments import paper
from fala_sim.experiments.labels.tables import by_size
from fala_sim.experiments.registry import shown_entries
from fala_sim.experiments.replacement.plots import heat_map
from fala_sim.report.groups import title
from fala_sim.report.table import NOT_RUN, Table
from fala_sim.report.value import UserMean, number_text
from sim_tables import (
    TABLES,
    about,
    cell,
    column,
    cost,
    frame_of,
    replaced,
    scores,
)

SMALL = replace(
    Table.of(
        [
            {
                "method": "LoRA",
                "AUC": UserMean(0.812, 0.03, 0.79, 0.83, 5),
                "passes": np.int64(1234),
            },
            {"method": "a|b", "AUC": NOT_RUN, "passes": math.nan, "paper: AUC": None},
        ],
        "What is shown.",
        ("A note.",),
    ),
    name="small",
    title="Small",
)


def test_text_is_aligned():
    assert SMALL.text().splitlines() == [
        "Small",
        "What is shown.",
        "",
        "method                             AUC    passes",
        "--------  ----------------------------  --------",
        "LoRA      0.812 ± 0.030 [0.790, 0.830]     1,234",
        "a|b                            not run         –",
        "A note.",
    ]


def test_markdown():
    assert SMALL.markdown().splitlines() == [
        "**Small.** What is shown.",
        "",
        "| method   |                          AUC |   passes |",
        "|:---------|-----------------------------:|---------:|",
        "| LoRA     | 0.812 ± 0.030 [0.790, 0.830] |    1,234 |",
        "| a\\|b     |                      not run |        – |",
        "",
        "- A note.",
    ]


def test_json_keeps_numbers():
    row = json.loads(json.dumps(SMALL.to_dict()))["rows"][0]
    assert row[1]["mean"] == 0.812
    assert row[1]["high"] == 0.83
    assert row[2] == 1234


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.81249, "0.812"), (0.0625, "0.0625"), (0.0, "0"), (12.34, "12.3"), (999.7, "1,000"),
        (999.4, "999"), (123_456, "123,456"), (5.45e9, "5.45e+09"), (-0.03, "-0.030"), (7, "7"),
        (0.0001, "0.0001"), (0.8, "0.800"), (12.0, "12.0"), (1e-5, "1e-05"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UserMean(0.812, 0.03, 0.79, 0.83), "0.812 ± 0.030 [0.790, 0.830]"),
        (UserMean(0.0003, 0.01499, -0.0101, 0.0122), "0.0003 ± 0.0150 [-0.0101, 0.0122]"),
        (UserMean(0.0, 0.0, 0.0, 0.0), "0.000 ± 0.000 [0.000, 0.000]"),
        (UserMean(1.0, 0.0), "1.00 ± 0.00"),
        (UserMean(1234.5, 12.0), "1,234 ± 12"),
        (UserMean(5.4e9, 1e8), "5.40e+09 ± 1.00e+08"),
    ],
)
def test_a_means_parts_have_as_many_decimals(value, text):
    assert str(value) == text


def test_users_left_out_are_shown():
    assert str(UserMean(0.8, None, None, None, 4, 1)) == "0.800 (4 of 5 users)"


# --- what is missing -------------------------------------------------------------------------


def test_an_empty_table_names_the_missing_records_and_their_command():
    for name, entry in TABLES.items():
        with pytest.raises(DataError, match=f"table {name} needs; `fala-sim table {name} --run`"):
            entry(frame_of({}))
    tables, missing = shown_entries(TABLES.values(), frame_of({}))
    assert not tables
    assert all(sum(f"{entry}" in line for line in missing) for entry in TABLES.values())
    assert "no records of kind 'labels' (table labels)" in missing


def test_a_table_lists_its_missing_records():
    with pytest.raises(DataError, match="no records of kind 'replacement', which table frontier"):
        TABLES["frontier"](frame_of({"frontier": [about()]}))


def test_titles_of_methods_are_those_of_classes_or_records():
    recorded = frame_of({"replacement": [about(title="Mine")]})
    assert title("knn", recorded) == "k nearest neighbours"
    assert title("mine", recorded) == "Mine"
    assert title("mine") == "mine"


def test_the_papers_numbers_are_as_printed():
    """Scores are printed in percent, FLOPs and clusters as they are."""
    full = paper.reported("2", "matching", "BERT", "auc", "full")
    assert full == UserMean(0.6307, 0.1025, n=5)
    assert paper.reported("5", "classification", "BERT", "accuracy", "mse+ce 0.0001") == 0.8358
    assert paper.reported("1", "matching", "RoBERTa", "backward", "fala-paper") == 1.09e10
    assert paper.reported("7", "classification", "BERT", "clusters", "user 5") == 8
    assert paper.reported("2", "matching", "BERT", "auc", "knn") is None


# --- figures 2 and 3 -------------------------------------------------------------------------


def crossed(user, own_auc, other_aucs, seed=0):
    cross = {other: scores(auc) for other, auc in other_aucs.items()}
    return about(user, seed, "full", kind="replacement", scores=scores(own_auc), cross=cross)


def heat(*runs):
    return heat_map(frame_of({"replacement": runs}), "tweets", "full")


def test_heat_map_shows_differences_from_the_column_users_own_model():
    matrix = heat(crossed("Ann", 0.9, {"Ben": 0.6}), crossed("Ben", 0.8, {"Ann": 0.5}))
    assert list(matrix.index) == list(matrix.columns) == ["Ann", "Ben"]
    assert heat(crossed("Ann", 0.9, {"Ben": 0.6})).empty  # it needs two
    np.testing.assert_allclose(matrix, [[0, 0.6 - 0.8], [0.5 - 0.9, 0]])


def test_heat_map_pairs_seeds_and_leaves_missing_cells_empty():
    matrix = heat(
        crossed("Ann", 0.9, {"Ben": 0.6}),
        crossed("Ann", 0.7, {"Ben": 0.4}, seed=1),
        crossed("Ben", 0.8, {"Ann": None}),
        crossed("Cem", 0.5, {"Ann": 0.8, "Ben": 0.9}),
    )
    # Ben has no model of seed 1 that Ann's could be compared with.
    assert matrix.loc["Ann", "Ben"] == pytest.approx(-0.2)
    assert math.isnan(matrix.loc["Ben", "Ann"])
    assert math.isnan(matrix.loc["Ann", "Cem"])
    assert matrix.loc["Cem", "Ann"] == pytest.approx(-0.1)


# --- the tables beyond the paper -------------------------------------------------------------


def test_search_table_shows_tried_and_chosen_settings():
    def tries(*aucs):
        return [
            {"settings": {"learning_rate": rate}, "scores": scores(auc)}
            for rate, auc in zip((1e-3, 1e-4, 1e-5), aucs, strict=True)
        ]

    runs = [
        about("Val", method="lora", kind="search", tried=tries(0.6, 0.9, 0.5)),
        about("Vic", method="lora", kind="search", tried=tries(0.7, 0.5, 0.5)),
    ]
    before = TABLES["search"](frame_of({"search": runs}))
    assert cell(before, "settings tried", method="LoRA") == 3
    assert cell(before, "chosen", method="LoRA") == "learning rate 0.0001"
    assert cell(before, "best AUC", method="LoRA") == pytest.approx(0.7)
    assert cell(before, "worst AUC", method="LoRA") == pytest.approx(0.5)
    # The settings of the replacements are shown, whether they are the best or not.
    used = replaced("lora", settings={"learning_rate": 1e-3})
    after = TABLES["search"](frame_of({"search": runs, "replacement": used}))
    assert cell(after, "chosen", method="LoRA") == "learning rate 0.001"
    assert cell(after, "chosen's AUC", method="LoRA") == pytest.approx(0.65)


def stars(method, rmse, **fields):
    records = replaced(method, task="rating", data="stars", **fields)
    for record, value in zip(records, rmse, strict=True):
        record["scores"] = {"rmse": value, "rank_correlation": 1 - value}
    return records


def test_ratings_have_a_table_of_their_own_beside_labels():
    runs = [*stars("fala", [0.1] * 5), *replaced("fala")]
    records = frame_of({"replacement": runs, "frontier": stars("fala", [0.1] * 5, variant="100")})
    assert column(TABLES["ratings"](records), "method") == ["FaLA", "FaLA, 100 forward passes"]
    assert set(column(TABLES["headline"](records), "data")) == {"tweets"}
    with pytest.raises(DataError, match="name a data set of such labels with --run --data"):
        TABLES["ratings"](frame_of({"replacement": replaced("fala"), "frontier": [about()]}))


# --- our own method ----------------------------------------------------------------------------


def test_a_share_without_a_gain_or_an_end_is_empty():
    runs = replaced("fala", 0.05, variant="0", cost=cost(0))
    peers = replaced("lora")
    table = TABLES["frontier"](frame_of({"replacement": peers, "frontier": runs}))
    assert column(table, "budget (passes)") == [0]  # and no row of what was not run
    assert column(table, "share of the gain in AUC") == [None]
    ends = [*replaced("global"), *replaced("fala-all", -0.01)]
    table = TABLES["frontier"](frame_of({"replacement": ends, "frontier": runs}))
    assert column(table, "share of the gain in AUC") == [None] * 3


def test_verdicts_need_the_vendors_scores():
    with pytest.raises(DataError, match="run it again"):
        TABLES["verdicts"](frame_of({"replacement": replaced("fala")}))


def test_a_method_without_a_data_set_is_left_out_of_all_together():
    runs = pd.DataFrame({"data": ["a", "b", "a"], "method": ["fala", "fala", "lora"]})
    runs = runs.assign(labels="5")
    ((size, groups, _),) = by_size(runs)
    assert (size, list(groups)) == ("5", ["fala"])
    ((_, groups, _),) = by_size(runs[runs["data"] == "a"])
    assert set(groups) == {"fala", "lora"}


# --- flips -------------------------------------------------------------------------------------


def test_flips_are_from_the_old_model_that_the_user_had():
    """A device's are from the one with words, if it is recorded, else from the one without."""

    def of_four(method, logits):
        (run,) = replaced(method, users={"Ann": 0.7})  # 10 of 200 flip
        examples = {"truth": [0, 0, 1, 1], "logits": logits, "old_logits": [-1, -1, 1, 1]}
        return run | examples | {"digests": {"data": "d"}}

    ours, peer = (of_four(method, [-1, 1, 1, -1]) for method in ("fala", "lora"))
    installed = of_four("old-words", [-1, -1, -1, -1])
    name = "right before, wrong now"

    def made(table, *runs):
        return TABLES[table](frame_of({"replacement": runs}))

    assert cell(made("2", ours, peer), name, method="FaLA") == pytest.approx(5)
    table = made("2", ours, peer, installed)
    assert cell(table, name, method="FaLA") == 25
    assert cell(table, name, method="LoRA") == pytest.approx(5)
