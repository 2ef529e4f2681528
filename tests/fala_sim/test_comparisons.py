"""Comparisons use the users and seeds that both sides have, and no others.

Each test has users or seeds of one side alone, whose figures would turn the result.
"""

import pytest

from fala import DataError
from fala_sim.records.frame import framed
from fala_sim.report.groups import comparable
from fala_sim.report.statistics import PairedTest, paired_test
from sim_tables import TABLES, USERS, cell, column, cost, frame_of, replaced

AUC = "scores.auc"


def user_seeds(runs, method):
    runs = runs[runs["method"] == method]
    return set(zip(runs["user"], runs["seed"], strict=True))


def test_methods_are_compared_on_their_common_seeds_if_there_are_any():
    runs = [
        *replaced("fala", seeds=(0, 1, 2)),
        *replaced("top", seeds=(1, 2, 3)),
        *replaced("full", seeds=(2, 3)),
    ]
    compared = comparable(framed(runs))
    for method in ("fala", "top", "full"):
        assert user_seeds(compared, method) == {(user, 2) for user in USERS}
    apart = framed([*replaced("fala", seeds=(0,)), *replaced("top", seeds=(1,))])
    assert comparable(apart).equals(apart)


def test_costs_are_means_over_common_seeds():
    """Only one method was run with a further, much more expensive seed."""
    dear = replaced("fala", seeds=(1,), cost=cost(1000))
    runs = [*replaced("fala", cost=cost(50)), *dear, *replaced("lora", cost=cost(400))]
    table = TABLES["cost"](frame_of({"replacement": runs}))
    assert cell(table, "forward passes", method="FaLA") == 50
    headline = TABLES["headline"](frame_of({"replacement": runs}))
    assert cell(headline, "forward passes", method="FaLA") == 50


def test_differences_are_means_over_common_users_and_seeds():
    """FaLA is .02 above; users and seeds of one side alone would put it below."""
    ours = [
        *replaced("fala", 0.02),
        *replaced("fala", -0.4, seeds=(1,)),
        *replaced("fala", users={"Fay": 0.1}),
    ]
    theirs = [
        *replaced("top"),
        *replaced("top", 0.15, seeds=(2,)),
        *replaced("top", users={"Gus": 0.99}),
    ]
    table = TABLES["comparisons"](frame_of({"replacement": [*ours, *theirs]}))
    value = cell(table, "difference in AUC", against="Trained top layer")
    assert value.mean == pytest.approx(0.02)
    assert (value.n, cell(table, "people", against="Trained top layer")) == (5, 5)
    assert (
        cell(table, "ahead", against="Trained top layer"),
        cell(table, "behind", against="Trained top layer"),
    ) == (5, 0)
    assert cell(table, "verdict", against="Trained top layer") == "better"
    turned = paired_test(framed(theirs), framed(ours), AUC)
    assert turned.difference.mean == pytest.approx(-0.02)
    assert (turned.above, turned.ahead, turned.behind, turned.p) == (0, 0, 5, 2 / 32)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((0.001, 0.002, 0.003), "as good as"),
        ((-0.003, -0.002, -0.001), "as good as"),
        ((0.02, 0.021, 0.022), "better"),
        ((-0.02, -0.021, -0.022), "worse"),
        ((0.02, -0.02, 0.001), "inconclusive"),
        ((0.008, 0.009, 0.012), "better"),
        ((0.5, 0.5), "inconclusive"),
    ],
)
def test_a_verdict_is_of_the_interval(differences, verdict):
    """The mean of the last but one is within the margin, its interval is not; of two is none."""
    assert PairedTest(differences).verdict == verdict


def test_one_person_makes_no_majority():
    """The mean is high by one ruined run of the other method."""
    compared = PairedTest((0.3, 0.004, -0.006, -0.007))
    assert (compared.above, compared.ahead, compared.behind) == (2, 1, 2)


def test_a_comparison_of_several_commits_or_processors_is_marked():
    def runs(method, commit, cpu, **fields):
        origin = {"commit": commit, "changed": False, "machine": {"cpu": cpu}}
        return replaced(method, provenance=origin, **fields)

    ours = runs("fala", "a1", "EPYC")
    others = [
        *runs("top", "a1", "EPYC"),
        *runs("full", "b2", "EPYC"),
        *runs("lora", "b2", "Xeon"),
        # Another commit on a seed that FaLA lacks is in no difference.
        *runs("top", "b2", "Xeon", seeds=(1,)),
    ]
    table = TABLES["comparisons"](frame_of({"replacement": [*ours, *others]}))
    made = {
        name: cell(table, "made by", against=name)
        for name in ("Trained top layer", "Full fine-tuning", "LoRA")
    }
    assert made == {
        "Trained top layer": None,
        "Full fine-tuning": "2 commits",
        "LoRA": "2 commits, 2 processors",
    }
    assert "fala at a1, b2" in table.measured


def test_differences_pair_equal_seeds():
    """Each side is better at one seed; pairing unequal seeds would change the difference."""
    ours = [*replaced("fala", 0.10), *replaced("fala", 0.00, seeds=(1,))]
    theirs = [*replaced("top", 0.09, seeds=(0,)), *replaced("top", -0.03, seeds=(2,))]
    assert paired_test(framed(ours), framed(theirs), AUC).difference.mean == pytest.approx(0.01)


def test_table_2_tests_against_the_best_baseline_on_common_seeds():
    """Top is better at the common seed; Full is better at its other seed."""
    runs = [
        *replaced("fala", 0.05, seeds=(0, 1)),
        *replaced("top", 0.02),
        *replaced("full", 0.01),
        *replaced("full", 0.19, seeds=(1,)),
    ]
    table = TABLES["2"](frame_of({"replacement": runs}))
    assert cell(table, "p", method="Trained top layer") == "best baseline"
    assert cell(table, "p", method="Full fine-tuning") == 2 / 32
    assert "against Trained top layer" in table.notes[0]


def test_shares_of_a_budget_are_over_common_users():
    """Only Ann and Ben were run with 25 passes. With 100, Eva gains much more."""
    few = {user: USERS[user] for user in ("Ann", "Ben")}
    ends = [
        *replaced("global"),
        *replaced("fala-all", 0.10, users=few),
        *replaced("fala-all", 0.19, users={"Eva": USERS["Eva"]}),
    ]
    budgets = [
        *replaced("fala", 0.05, users=few, variant="25"),
        *replaced("fala", 0.10, users={**few, "Eva": USERS["Eva"]}, variant="100"),
    ]
    table = TABLES["frontier"](frame_of({"replacement": ends, "frontier": budgets}))
    share = "share of the gain in AUC"
    assert cell(table, share, **{"budget (passes)": 25}) == pytest.approx(0.5)
    assert cell(table, share, **{"budget (passes)": 100}) == pytest.approx(0.30 / 0.39)


def test_every_method_is_compared_with_a_chosen_one():
    runs = [*replaced("fala", 0.05), *replaced("lora", 0.02), *replaced("top")]
    records = frame_of({"replacement": runs})
    table = TABLES["comparisons"](records, against="lora")
    assert table.title == "Each method against LoRA"
    assert column(table, "against") == ["LoRA"] * 2
    differences = {"Trained top layer": -0.02, "FaLA": 0.03}
    for method, difference in differences.items():
        shown = cell(table, "difference in AUC", method=method)
        assert shown.mean == pytest.approx(difference)
    with pytest.raises(DataError, match="no replacement by 'full' is recorded; recorded are fala,"):
        TABLES["comparisons"](records, against="full")
