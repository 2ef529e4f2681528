"""The tables beyond the paper, of records that are written by hand."""

import pytest

from fala import DataError
from fala_sim.show.tables.records import Records
from fala_sim.show.tables.registry import TABLES, find_table
from fala_sim.show.tables.table import NOT_RUN
from sim_tables import USERS, about, cell, column, cost, curve, replaced, scores


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
    assert cell(table, "AUC", method="LoRA") == NOT_RUN


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
        judged("Fay", "calibrated", 0.0, 0.2),
    ]
    table = find_table("verdicts")(Records({"replacement": runs}))
    (row,) = table.rows
    assert row[3:] == (6, 4, 1, 3, 2, 2 / 3, 3, 3 / 4)
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
