"""Second rows of a method: the old personal model blended in, and the own threshold."""

import pytest

from fala_sim.show.tables.records import Records
from fala_sim.show.tables.registry import find_table
from fala_sim.show.tables.table import NOT_RUN
from sim_tables import about, cell, column, replaced, scores


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
