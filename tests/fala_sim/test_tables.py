"""Tables from records that are written here by hand: arithmetic, rendering, and what is missing."""

import json
import math

import numpy as np
import pytest

from fala import DataError
from fala_sim.methods.registry import METHODS
from fala_sim.metric.value import Value, number
from fala_sim.show.entry import made
from fala_sim.show.tables import paper
from fala_sim.show.tables.heat_map import heat_map
from fala_sim.show.tables.records import Records, title
from fala_sim.show.tables.registry import TABLES, find_table
from fala_sim.show.tables.table import NOT_RUN, Table

USERS = {"Ann": 0.60, "Ben": 0.65, "Cem": 0.70, "Dee": 0.75, "Eva": 0.80}


def about(user="Ann", seed=0, method="fala", **fields):
    record = {
        "data": "tweets",
        "task": "classification",
        "old": "glove",
        "new": "minilm",
        "user": user,
        "seed": seed,
        "method": method,
        "variant": "",
        "train": 100,
        "test": 200,
    }
    return record | fields


def scores(auc, f1=0.5, accuracy=0.8):
    return {"auc": auc, "f1": f1, "accuracy": accuracy}


def cost(passes, forward=1e9, backward=0.0, seconds=2.0, peak=300e6, batch=None):
    total = {
        "seconds": seconds,
        "cpu_seconds": 1.5 * seconds,
        "peak_memory": peak,
        "forward_passes": passes,
        "backward_passes": 0,
        "forward_flops": forward,
        "backward_flops": backward,
    }
    return {"total": total, "start_memory": 100e6, "stored_bytes": 4000, "batch": batch}


def replaced(method, gain=0.0, users=USERS, seeds=(0,), **fields):
    """A method's replacements: every user's AUC is ``gain`` above ``USERS``."""
    flips = {"negative": 10, "positive": 30}
    fields = {"cost": cost(50), "flips": {"old": flips, "vendor": flips}, **fields}
    return [
        about(user, seed, method, kind="replacement", scores=scores(auc + gain), **fields)
        for user, auc in users.items()
        for seed in seeds
    ]


def column(table, name, **where):
    """The cells of a column, of the rows that have these words in these columns."""
    place = table.header.index(name)
    return [
        row[place]
        for row in table.rows
        if all(row[table.header.index(key)] == word for key, word in where.items())
    ]


def cell(table, name, **where):
    (found,) = column(table, name, **where)
    return found


# --- a table ---------------------------------------------------------------------------------

SMALL = Table(
    "small",
    "Small",
    "What is shown.",
    ("method", "AUC", "passes"),
    [("LoRA", Value(0.812, 0.03, 0.79, 0.83, 5), 1234), ("a|b", NOT_RUN, None)],
    ("A note.",),
)


def test_text_is_aligned():
    assert SMALL.text().splitlines() == [
        "Small",
        "What is shown.",
        "",
        "method                           AUC  passes",
        "------  ----------------------------  ------",
        "LoRA    0.812 ± 0.030 [0.790, 0.830]   1,234",
        "a|b                          not run       –",
        "A note.",
    ]


def test_markdown():
    assert SMALL.markdown().splitlines() == [
        "**Small.** What is shown.",
        "",
        "| method | AUC | passes |",
        "| --- | ---: | ---: |",
        "| LoRA | 0.812 ± 0.030 [0.790, 0.830] | 1,234 |",
        "| a\\|b | not run | – |",
        "",
        "- A note.",
    ]


def test_json_keeps_numbers():
    row = json.loads(json.dumps(SMALL.to_dict()))["rows"][0]
    assert row[1]["mean"] == 0.812
    assert row[1]["high"] == 0.83
    assert row[2] == 1234


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        Table("t", "T", "", ("a", "b"), [(1,)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.81249, "0.812"), (0.0625, "0.0625"), (0.0, "0"), (12.34, "12.3"), (999.7, "1,000"),
        (999.4, "999"), (123_456, "123,456"), (5.45e9, "5.45e+09"), (-0.03, "-0.030"), (7, "7"),
        (0.0001, "0.0001"), (0.8, "0.800"), (12.0, "12.0"), (1e-5, "1e-05"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value(0.812, 0.03, 0.79, 0.83), "0.812 ± 0.030 [0.790, 0.830]"),
        (Value(0.0003, 0.01499, -0.0101, 0.0122), "0.0003 ± 0.0150 [-0.0101, 0.0122]"),
        (Value(0.0, 0.0, 0.0, 0.0), "0.000 ± 0.000 [0.000, 0.000]"),
        (Value(1.0, 0.0), "1.00 ± 0.00"),
        (Value(1234.5, 12.0), "1,234 ± 12"),
        (Value(5.4e9, 1e8), "5.40e+09 ± 1.00e+08"),
    ],
)
def test_a_means_parts_have_as_many_decimals(value, text):
    assert str(value) == text


def test_users_left_out_are_shown():
    assert str(Value(0.8, None, None, None, 4, 1)) == "0.800 (4 of 5 users)"


# --- the paper's tables ----------------------------------------------------------------------


def test_table_2_means_paper_and_flips():
    records = Records({"replacement": replaced("fala-paper", 0.05) + replaced("lora")})
    table = TABLES["2"](records)
    value = cell(table, "AUC", method="FaLA (paper)")
    assert value.mean == pytest.approx(0.75)
    assert value.low < 0.75 < value.high
    assert cell(table, "F1", method="LoRA").mean == pytest.approx(0.5)
    assert cell(table, "negative flips, old", method="LoRA") == pytest.approx(0.05)
    assert cell(table, "forward passes", method="LoRA") == 50
    assert cell(table, "paper: F1, BERT", method="FaLA (paper)") == Value(0.5094, 0.0649, n=5)
    assert "paper: AUC, BERT" not in table.header  # its AUC is of matching
    assert "tweets (classification; glove → minilm; 5 users)" in table.caption


def test_table_2_tests_against_the_best_baseline():
    runs = (
        replaced("fala", 0.05) + replaced("lora", 0.02) + replaced("global") + replaced("old", 0.1)
    )
    table = TABLES["2"](Records({"replacement": runs}))
    assert cell(table, "p", method="LoRA") == "best baseline"
    assert cell(table, "p", method="FaLA") == 2 / 32
    assert cell(table, "p (Holm)", method="FaLA") == 6 / 32
    assert table.notes == (
        "tweets: against LoRA. With 5 users the smallest p possible is 0.0625, before Holm's "
        "correction over 3 methods.",
    )


def test_table_2_names_what_was_not_run():
    table = TABLES["2"](Records({"replacement": replaced("fala")}))
    assert len(table.rows) == len(METHODS)
    assert cell(table, "AUC", method="LoRA") == NOT_RUN
    assert cell(table, "p", method="FaLA") is None  # no baseline to test against
    assert cell(table, "seeds", method="LoRA") is None
    assert NOT_RUN in table.text()


def test_table_2_without_an_auc():
    runs = replaced("fala", users={"Ann": 0.7}) + replaced("global", users={"Ann": 0.6})
    for record in runs:
        record["scores"]["auc"] = None
    table = TABLES["2"](Records({"replacement": runs}))
    assert cell(table, "AUC", method="FaLA") is None
    assert cell(table, "accuracy", method="FaLA").mean == 0.8


def test_table_2_compares_like_with_like():
    """A trained method has one seed; the others' further seeds are other divisions."""
    runs = replaced("fala", 0.02) + replaced("fala", 0.3, seeds=(1, 2)) + replaced("lora", 0.01)
    table = TABLES["2"](Records({"replacement": runs}))
    assert column(table, "seeds", method="FaLA") == [3]
    assert column(table, "seeds", method="LoRA") == [1]
    found = TABLES["comparisons"](Records({"replacement": runs}))
    assert cell(found, "difference in AUC", against="LoRA").mean == pytest.approx(0.01)


def test_table_1_stands_beside_the_papers():
    def row(backbone, method, forward, backward):
        batch = {"examples": 16, "tokens": 128}
        return {
            "backbone": backbone, "method": method, "forward_flops": forward,
            "backward_flops": backward, "batch": batch,
        }  # fmt: skip

    rows = [row("BERT-base", "base", 100, 200), row("BERT-base", "LoRA", 101, 100)]
    table = TABLES["1"](Records({"flops": [{"kind": "flops", "rows": rows}]}))
    assert cell(table, "cheaper", backbone="BERT-base", method="LoRA") == 2
    assert cell(table, "paper: backward", backbone="BERT-base", method="LoRA") == 1.35e12
    assert cell(table, "forward", backbone="BERT-base", method="Adapter") == NOT_RUN
    assert cell(table, "paper: cheaper", backbone="RoBERTa-base", method="FaLA (paper)") == (
        pytest.approx(5.42e12 / 1.09e10)
    )
    assert "16 texts of 128 tokens" in table.caption


def test_costs_by_method_and_against_fala():
    batch = {"examples": 16, "forward_flops": 5e9, "backward_flops": 9e9}
    trained = cost(2000, 4e11, 8e11, seconds=60.0, peak=900e6, batch=batch)
    runs = replaced("full", cost=trained) + replaced("fala", cost=cost(50, 1e9))
    table = TABLES["cost"](Records({"replacement": runs}))
    assert cell(table, "one batch's backward FLOPs (as the paper counts)", method="Full") == 9e9
    assert cell(table, "whole replacement: FLOPs", method="Full") == pytest.approx(1.2e12)
    assert cell(table, "FLOPs × FaLA", method="Full") == pytest.approx(1200)
    assert cell(table, "FLOPs × FaLA", method="FaLA") == 1
    assert cell(table, "seconds × FaLA", method="Full") == 30
    assert cell(table, "growth × FaLA", method="Full") == pytest.approx(4)
    assert cell(table, "stored (kB)", method="FaLA") == 4
    assert cell(table, "seconds", method="LoRA") == NOT_RUN


def test_table_3():
    def old(which, gain):
        return [
            about(
                user, method="fala-paper", variant=f"table3-old-{which}", scores=scores(auc + gain)
            )
            for user, auc in USERS.items()
        ]

    table = TABLES["3"](Records({"ablation": old("global", 0) + old("personal", 0.1)}))
    assert cell(table, "personal", metric="AUC").mean == pytest.approx(0.8)
    assert cell(table, "p", metric="AUC") == 2 / 32
    assert cell(table, "paper: personal", metric="accuracy") == Value(0.8386, 0.069, n=5)
    assert cell(table, "paper: personal", metric="AUC") is None


def ablation(variant, auc=0.7, **fields):
    return [
        about(user, method="fala-paper", variant=variant, scores=scores(auc), **fields)
        for user in USERS
    ]


def test_table_4():
    table = TABLES["4"](Records({"ablation": ablation("table4-kmeans", task="matching")}))
    assert cell(table, "AUC", initialization="K-means").mean == pytest.approx(0.7)
    assert cell(table, "paper: AUC, BERT", initialization="K-means") == pytest.approx(0.6629)
    assert cell(table, "AUC", initialization="Random") == NOT_RUN


def test_table_5_by_objective_and_lambda():
    runs = ablation("table5-mse+ce-0.0001", 0.8) + ablation("table5-ce-1e-1", 0.6)
    table = TABLES["5"](Records({"ablation": runs}))
    where = {"metric": "AUC", "lambda": 0.0001}
    assert cell(table, "MSE + CE", **where).mean == pytest.approx(0.8)
    assert cell(table, "MSE", **where) == NOT_RUN
    assert cell(table, "CE", **{"metric": "AUC", "lambda": 0.1}).mean == pytest.approx(0.6)
    assert cell(table, "paper: CE", **{"metric": "accuracy", "lambda": 0.0}) == 0.846
    assert cell(table, "paper: CE", **{"metric": "AUC", "lambda": 0.0}) is None


def test_table_6_has_the_papers_rows_below():
    table = TABLES["6"](Records({"ablation": ablation("table6-own-labels", 0.55)}))
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
    table = TABLES["7"](Records({"ablation": runs}))
    assert column(table, "top k", data="tweets") == [10, 100]
    assert column(table, "user 1", data="tweets") == [40.5, 9]
    assert column(table, "user 3", data="tweets") == [None, None]
    assert column(table, "user 4", data="paper: NR (MIND)", new="RoBERTa") == [418]
    assert table.notes == ("tweets: user 1 is Ann, user 2 is Ben.",)


# --- beyond the paper ------------------------------------------------------------------------


def curve(method, size, aucs):
    return [
        about(user, method=method, variant=size, scores=scores(auc), kind="curve")
        for user, auc in zip(USERS, aucs, strict=False)
    ]


def test_curves_are_in_order_of_size():
    runs = [
        record
        for size in ("all", "10", "0", "200")
        for record in curve("fala", size, [0.5, 0.6, 0.7])
    ]
    table = TABLES["curves"](Records({"curve": runs}))
    assert table.header[3:] == ("0 examples", "10 examples", "200 examples", "all examples")
    assert cell(table, "10 examples", method="FaLA").mean == pytest.approx(0.6)


def test_cold_users_against_the_vendors_model():
    runs = curve("global", "0", [0.6, 0.6, 0.6, 0.6]) + curve("fala", "10", [0.5, 0.58, 0.6, 0.9])
    table = TABLES["cold"](Records({"curve": runs}))
    where = {"method": "FaLA", "examples": 10}
    assert cell(table, "share below", **where) == 0.5
    assert cell(table, "mean loss below", **where) == pytest.approx(0.06)
    assert cell(table, "largest loss", **where) == pytest.approx(0.1)
    assert cell(table, "difference in AUC", **where).mean == pytest.approx(0.045)


def test_cold_users_take_the_vendors_model_from_replacements():
    records = Records({"curve": curve("fala", "0", [0.6, 0.65]), "replacement": replaced("global")})
    table = TABLES["cold"](records)
    assert cell(table, "share below", method="FaLA", examples=0) == 0
    assert cell(table, "largest loss", method="FaLA", examples=0) is None
    assert not TABLES["cold"](Records({"curve": curve("fala", "0", [0.6])})).rows


def test_chains_by_step():
    def steps(auc, decision):
        return [
            {"backbone": "glove", "scores": scores(0.6), "vendor": scores(0.5)},
            {
                "backbone": "bert",
                "scores": scores(auc),
                "vendor": scores(0.5),
                "decision": decision,
            },
        ]

    runs = [
        about("Ann", kind="chain", steps=steps(0.7, "personal")),
        about("Ben", kind="chain", steps=steps(0.8, "vendor")),
    ]
    table = TABLES["chains"](Records({"chain": runs}))
    assert cell(table, "AUC", step=1).mean == pytest.approx(0.75)
    assert cell(table, "backbone", step=1) == "bert"
    assert cell(table, "decisions", step=1) == "personal 1, vendor 1"
    assert cell(table, "decisions", step=0) is None


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
    before = TABLES["search"](Records({"search": runs}))
    assert cell(before, "settings tried", method="LoRA") == 3
    assert cell(before, "chosen", method="LoRA") == "learning rate 0.0001"
    assert cell(before, "best AUC", method="LoRA") == pytest.approx(0.7)
    assert cell(before, "worst AUC", method="LoRA") == pytest.approx(0.5)
    # What the replacements were run with is told, be it the best or not.
    used = replaced("lora", settings={"learning_rate": 1e-3})
    after = TABLES["search"](Records({"search": runs, "replacement": used}))
    assert cell(after, "chosen", method="LoRA") == "learning rate 0.001"
    assert cell(after, "chosen's AUC", method="LoRA") == pytest.approx(0.65)


def test_profiles_keep_measured_and_predicted_apart():
    limits = {"cores": {"device": 4}, "memory": {"device": 512_000_000}}
    measured = {"report": {"seconds": {"total": 3.0}}, "peak_memory": 200e6}
    predicted = [{"by": "LINPACK fp64", "total": 9.0}, {"by": "peak fp32", "total": 8.0}]
    runs = [
        about(kind="profile", profile="phone", outcome="done", limits=limits, measured=measured,
              predicted=predicted),
        about(kind="profile", profile="watch", outcome="out of memory", message="no more",
              limits=limits, measured={"work": "replace"}, predicted=None),
    ]  # fmt: skip
    table = TABLES["profiles"](Records({"profile": runs}))
    assert cell(table, "measured: seconds", device="phone") == 3
    assert cell(table, "predicted: seconds", device="phone") == 9
    assert cell(table, "predicted by", device="phone") == "LINPACK fp64"
    assert cell(table, "limit: memory (MB)", device="phone") == 512
    assert cell(table, "measured: outcome", device="watch") == "out of memory"
    assert cell(table, "measured: seconds", device="watch") is None
    assert cell(table, "predicted: seconds", device="watch") is None
    assert table.notes == ("watch: out of memory: no more",)


def test_comparisons_of_all_data_sets_together():
    runs = [
        record | {"data": data}
        for data in ("tweets", "films")
        for record in replaced("fala", 0.05) + replaced("lora")
    ]
    table = TABLES["comparisons"](Records({"replacement": runs}))
    assert cell(table, "p", data="films") == 2 / 32
    assert cell(table, "users", data="all") == 10
    assert cell(table, "p", data="all") == 2 / 1024
    assert cell(table, "users above", data="all") == 10


def test_headline_tells_date_machine_and_interval():
    provenance = {
        "commit": "abc1234",
        "changed": False,
        "machine": {"cpu": "A Chip", "cores": 2, "memory": 8 * 2**30},
    }
    fields = {"date": "2026-11-21T14:00:00+00:00", "provenance": provenance}
    table = TABLES["headline"](
        Records({"replacement": replaced("fala", **fields) + replaced("knn", **fields)})
    )
    text = table.markdown()
    assert "Measured 2026-11-21 on A Chip, 2 cores, 8 GiB, fala at abc1234." in text
    assert cell(table, "AUC", method="FaLA").deviation is None
    assert cell(table, "AUC", method="FaLA").low is not None
    assert cell(table, "memory growth (MB)", method="FaLA") == pytest.approx(200)
    assert "k nearest neighbours" not in text
    assert "| tweets | LoRA | not run |" in text


# --- what is missing -------------------------------------------------------------------------


def test_nothing_run_says_what_is_missing_and_what_makes_it():
    for name, entry in TABLES.items():
        with pytest.raises(DataError, match=f"table {name} needs; `fala-sim table {name} --run`"):
            entry(Records())
    tables, missing = made(TABLES.values(), Records())
    assert not tables
    assert all(sum(f"{entry}" in line for line in missing) for entry in TABLES.values())
    assert "no records of kind 'curve' (table curves, table cold, table twenty)" in missing


def test_a_table_is_asked_for_by_what_it_needs():
    with pytest.raises(DataError, match="no records of kind 'replacement', which table frontier"):
        TABLES["frontier"](Records({"frontier": [about()]}))


def test_other_ablations_than_the_tables_say_so():
    with pytest.raises(DataError, match=r"no records of table4 .*`fala-sim table 4 --run`"):
        TABLES["4"](Records({"ablation": ablation("table5-ce-0.1")}))


def test_an_unknown_table_names_those_there_are():
    with pytest.raises(DataError, match="no table '8'; one of headline, 1, cost, 2"):
        find_table("8")


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_all_tables_of_replacements_can_be_shown(seeds):
    runs = replaced("fala", seeds=seeds) + replaced("lora", users={"Ann": 0.5})
    tables, _ = made(TABLES.values(), Records({"replacement": runs}))
    assert [table.name for table in tables] == ["headline", "cost", "table-2", "comparisons"]
    for table in tables:
        assert table.title in table.text()
        assert table.header[0] in table.markdown()
        json.dumps(table.to_dict(), allow_nan=False)


def test_methods_are_called_as_their_records_say_or_as_the_catalogue_does():
    assert title("knn") == "k nearest neighbours"
    assert title("knn", [about(method="knn"), about(method="knn", title="KNN")]) == "KNN"
    assert title("mine") == "mine"


def test_the_papers_rows_are_whole():
    assert len(paper.TABLE_2) == 36
    assert len(paper.TABLE_4) == len(paper.TABLE_5) == 30


# --- figures 2 and 3 -------------------------------------------------------------------------


def crossed(user, own, others, seed=0):
    cross = {other: scores(auc) for other, auc in others.items()}
    return about(user, seed, "full", kind="replacement", scores=scores(own), cross=cross)


def test_heat_map_compares_with_the_column_users_own_model():
    runs = [crossed("Ann", 0.9, {"Ben": 0.6}), crossed("Ben", 0.8, {"Ann": 0.5})]
    found = heat_map(Records({"replacement": runs}), "tweets", "full")
    assert found.users == ("Ann", "Ben")
    np.testing.assert_allclose(found.matrix, [[0, 0.6 - 0.8], [0.5 - 0.9, 0]])


def test_heat_map_pairs_seeds_and_marks_what_is_missing():
    runs = [
        crossed("Ann", 0.9, {"Ben": 0.6}),
        crossed("Ann", 0.7, {"Ben": 0.4}, seed=1),
        crossed("Ben", 0.8, {"Ann": None}),
        crossed("Cem", 0.5, {"Ann": 0.8, "Ben": 0.9}),
    ]
    matrix = heat_map(Records({"replacement": runs}), "tweets", "full").matrix
    # Ben has no model of seed 1 that Ann's could be compared with.
    assert matrix[0, 1] == pytest.approx(-0.2)
    assert math.isnan(matrix[1, 0])
    assert math.isnan(matrix[0, 2])
    assert matrix[2, 0] == pytest.approx(-0.1)


def test_heat_map_needs_two_users():
    with pytest.raises(DataError, match="no models of full on tweets"):
        heat_map(Records({"replacement": [crossed("Ann", 0.9, {"Ben": 0.6})]}), "tweets", "full")


# --- the old personal model blended in ---------------------------------------------------------


def blended(method, gains, **fields):
    """Replacements whose AUC is higher by ``gains[weight]`` with the old model blended in."""
    records = replaced(method, settings={"rate": 1}, **fields)
    for record in records:
        flips = {"negative": 5, "positive": 1}
        record["blends"] = {
            weight: scores(record["scores"]["auc"] + gain)
            | {"flips": {"old": flips, "vendor": flips}}
            for weight, gain in gains.items()
        }
    return records


def searched(method, aucs, settings):
    """A search whose validation user has these AUCs by weight, with these settings."""
    tried = {"settings": settings, "scores": scores(0.5)}
    tried["blends"] = {weight: scores(auc) for weight, auc in aucs.items()}
    return about("Val", method=method, kind="search", tried=[tried])


def test_peers_have_a_row_with_the_old_model_by_the_weight_that_validation_chose():
    gains = {"0.1": 0.01, "0.3": 0.03, "0.5": 0.05}
    runs = [record for name in ("old", "global", "top", "fala") for record in blended(name, gains)]
    searches = [
        searched("top", {"0.1": 0.6, "0.3": 0.7, "0.5": 0.65}, {"rate": 1}),
        searched("top", {"0.1": 0.9, "0.3": 0.1, "0.5": 0.1}, {"rate": 2}),  # not the chosen ones
    ]
    records = Records({"replacement": runs, "search": searches})
    table = find_table("2")(records)
    shown = [
        name for name in column(table, "method") if name not in column(table, "method", AUC=NOT_RUN)
    ]
    assert shown == ["Old personal", "Global", "Global + old", "Top", "Top + old", "FaLA"]
    assert cell(table, "AUC", method="Top + old").mean == pytest.approx(0.70 + 0.03)
    assert cell(table, "AUC", method="Global + old").mean == pytest.approx(0.70 + 0.05)
    assert cell(table, "negative flips, old", method="Top + old") == 5 / 200
    # A blend may be the best baseline.
    assert cell(table, "p", method="Global + old") == "best baseline"
    against = find_table("comparisons")(records)
    assert cell(against, "difference in AUC", against="Top + old").mean == pytest.approx(-0.03)


def test_our_own_threshold_has_a_row_and_no_test_of_the_same_auc():
    ours = replaced("fala", 0.05)
    for record in ours:
        turned = {"negative": 2, "positive": 1}
        record["decided"] = record["scores"] | {
            "f1": 0.9,
            "flips": {"old": turned, "vendor": turned},
        }
    table = find_table("2")(Records({"replacement": [*ours, *replaced("top")]}))
    own = {"method": "FaLA, own threshold"}
    assert cell(table, "F1", **own).mean == pytest.approx(0.9)
    assert cell(table, "negative flips, old", **own) == 2 / 200
    assert cell(table, "p", **own) is None
    assert cell(table, "p", method="FaLA") < 0.1
    assert cell(table, "F1", method="FaLA").mean == pytest.approx(0.5)


def test_records_of_before_blends_have_no_second_row():
    table = find_table("2")(Records({"replacement": replaced("top")}))
    assert "Top + old" not in column(table, "method")


# --- our own method ----------------------------------------------------------------------------


def budgeted(passes, gain, f1, **fields):
    """Frontier records: AUC is ``gain`` above ``USERS``, F1 at the device's threshold ``f1``."""
    records = replaced("fala", gain, variant=str(passes), cost=cost(passes), **fields)
    for record in records:
        record["decided"] = {"f1": f1, "accuracy": 0.8}
    return records


def test_frontier_tells_each_budgets_share_of_the_gain():
    ends = [*replaced("global"), *replaced("fala-all", 0.10)]
    for record in ends[len(USERS) :]:
        record["decided"] = {"f1": 0.6, "accuracy": 0.8}
    # Who has no frontier is not in its ends either.
    ends += [*replaced("global", users={"Fay": 0.1}), *replaced("fala-all", users={"Fay": 0.1})]
    runs = [*budgeted(100, 0.09, 0.6), *budgeted(25, 0.08, 0.55), *budgeted(0, 0.05, 0.5)]
    table = find_table("frontier")(Records({"replacement": ends, "frontier": runs}))
    assert column(table, "budget (passes)") == ["Global", 0, 25, 100, "FaLA, all documents"]
    assert column(table, "share of the gain in AUC") == pytest.approx([0, 0.5, 0.8, 0.9, 1])
    assert column(table, "share of the gain in F1") == pytest.approx([0, 0, 0.5, 1, 1])
    assert column(table, "forward passes") == [50, 0, 25, 100, 50]
    assert cell(table, "F1 at zero", **{"budget (passes)": 25}).mean == 0.5
    assert cell(table, "AUC", **{"budget (passes)": "Global"}).mean == pytest.approx(0.7)


def test_a_share_of_no_gain_or_without_its_ends():
    runs = budgeted(0, 0.05, 0.5)
    others = replaced("lora")
    table = find_table("frontier")(Records({"replacement": others, "frontier": runs}))
    assert column(table, "share of the gain in AUC") == [NOT_RUN] * 3
    ends = [*replaced("global"), *replaced("fala-all", -0.01)]
    table = find_table("frontier")(Records({"replacement": ends, "frontier": runs}))
    assert column(table, "share of the gain in AUC") == [None] * 3


def test_verdicts_are_counted_where_the_personal_model_was_kept():
    def judged(user, decision, gain, loss, auc=0.7):
        ours = scores(None if auc is None else auc + gain) | {"loss": 0.5 - loss}
        report = {"decision": decision}
        own = {"report": report, "vendor": scores(auc) | {"loss": 0.5}, "cost": cost(50)}
        return about(user, kind="replacement", scores=ours, **own)

    runs = [
        judged("Ann", "personal", 0.02, 0.1),
        judged("Ben", "personal", -0.01, 0.1),
        judged("Cem", "personal", 0.02, -0.1),
        judged("Dee", "personal", 0.0, 0.1, auc=None),
        judged("Eva", "vendor", 0.0, 0.0),
    ]
    table = find_table("verdicts")(Records({"replacement": runs}))
    (row,) = table.rows
    assert row[3:] == (5, 4, 3, 2, 2 / 3, 3, 3 / 4)
    with pytest.raises(DataError, match="run it again"):
        find_table("verdicts")(Records({"replacement": replaced("fala")}))


def test_at_twenty_examples_users_are_counted_above_and_below():
    gains = {"Ann": 0.02, "Ben": 0.0, "Cem": -0.004, "Dee": -0.03, "Eva": 0.01}
    runs = [
        *curve("fala", "20", [USERS[user] + gain for user, gain in gains.items()]),
        *curve("fala", "50", USERS.values()),
        *curve("global", "20", USERS.values()),
    ]
    table = find_table("twenty")(Records({"curve": runs}))
    (row,) = table.rows
    assert row[2:8] == ("FaLA", 5, 2 / 5, 2 / 5, 1, pytest.approx(0.03))
    assert row[8].mean == pytest.approx(sum(gains.values()) / 5)
