"""Statistics over a few users, against values known by hand."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from fala_sim.records.frame import framed
from fala_sim.report.statistics import holm, interval, mean_over_users, over_users, paired_test
from fala_sim.report.value import UserMean

AUC = "scores.auc"


def records(aucs, seeds=(0,), data="films", **fields):
    """One record for each user and seed; ``aucs`` by user."""
    return framed(
        {"data": data, "user": user, "seed": seed, "scores": {"auc": auc}, **fields}
        for user, auc in aucs.items()
        for seed in seeds
    )


def concat(*runs):
    return pd.concat(runs, ignore_index=True)


def test_mean_and_deviation_over_users():
    value = mean_over_users(records({"a": 0.5, "b": 0.7, "c": 0.9}), AUC)
    assert value.mean == pytest.approx(0.7)
    assert value.deviation == pytest.approx(0.2)
    assert (value.n, value.missing) == (3, 0)
    assert (value.low, value.high) == interval([0.5, 0.7, 0.9])
    assert mean_over_users(records({"a": 0.8}), AUC) == UserMean(0.8)


def test_a_users_seeds_are_averaged_before_users():
    runs = concat(records({"a": 0.9}, seeds=(0, 1, 2)), records({"b": 0.5}))
    value = mean_over_users(runs, AUC)
    assert value.mean == pytest.approx(0.7)  # not (3 x 0.9 + 0.5) / 4
    assert value.n == 2
    seeds = concat(records({"a": 0.2}), records({"a": 0.6}, (1,)))
    assert over_users(seeds, AUC) == {("films", "a"): pytest.approx(0.4)}


def test_a_missing_auc_is_left_out_and_counted():
    value = mean_over_users(records({"a": 0.5, "b": None, "c": 0.7, "d": math.nan}), AUC)
    assert (value.mean, value.n, value.missing) == (pytest.approx(0.6), 2, 2)
    one_good_seed = concat(records({"a": None}), records({"a": 0.6}, (1,)))
    assert mean_over_users(one_good_seed, AUC) == UserMean(0.6)
    assert mean_over_users(records({"a": None}), AUC) is None


def test_interval_equals_values_by_hand():
    """t of three degrees of freedom, at 97.5 %, is 3.18245 in every table."""
    reach = 3.18245 * np.std([1, 2, 3, 4], ddof=1) / 2
    assert interval([1, 2, 3, 4]) == pytest.approx((2.5 - reach, 2.5 + reach), abs=1e-5)
    assert interval([0.5] * 5) == (0.5, 0.5)
    assert interval([0.5] * 2) is None


@pytest.mark.parametrize("users", [2, 3, 6])
def test_p_value_is_that_of_the_exact_sign_flip_test(users):
    differences = np.random.default_rng(users).normal(0.02, 0.05, users)
    ours = records({str(number): 0.5 + value for number, value in enumerate(differences)})
    theirs = records({str(number): 0.5 for number in range(users)})
    means = [np.mean(differences * signs) for signs in itertools.product((1, -1), repeat=users)]
    expected = np.mean(np.abs(means) >= abs(np.mean(differences)) - 1e-12)
    assert paired_test(ours, theirs, AUC).p == pytest.approx(expected)


def test_equal_figures_and_one_user_have_p_value_one():
    same = records({"a": 0.6, "b": 0.9, "c": 0.7})
    assert paired_test(same, same, AUC).p == 1
    comparison = paired_test(records({"a": 0.9}), records({"a": 0.1}), AUC)
    assert (comparison.p, comparison.smallest_p) == (1, 1)


def test_p_value_of_many_users_is_sampled_and_not_below_its_minimum():
    ours = records({str(user): 0.9 for user in range(40)})
    theirs = records({str(user): 0.5 + user / 1000 for user in range(40)})
    comparison = paired_test(ours, theirs, AUC)
    assert comparison.p == comparison.smallest_p == pytest.approx(2 / 10_000)


def test_users_with_one_name_in_two_data_sets_are_two_and_a_user_without_an_auc_is_none():
    ours = concat(records({"a": 0.9, "b": 0.8}), records({"a": 0.8}, data="news"))
    theirs = concat(records({"a": 0.7, "b": None}), records({"a": 0.7}, data="news"))
    assert paired_test(ours, theirs, AUC).difference.n == 2


def test_holm_equals_values_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1, "b": 1}
    assert holm({"a": 0.03}) == {"a": 0.03}
    assert holm({}) == {}


def test_a_frame_has_flip_rates_and_totals_of_costs():
    flips = {"old": {"negative": 10, "positive": 30}, "vendor": {"negative": 4, "positive": 0}}
    total = {"forward_flops": 3e9, "backward_flops": 5e9, "peak_memory": 700}
    cost = {"total": total, "start_memory": 200}
    unmeasured = {"total": {"peak_memory": 0}, "start_memory": 0}  # no account on this system
    runs = framed([{"test": 200, "flips": flips, "cost": cost}, {"test": 0, "cost": unmeasured}])
    assert runs["flips.old.share"].tolist()[0] == 0.05
    assert runs["flips.vendor.share"].tolist()[0] == 0.02
    assert runs["cost.total.flops"].tolist()[0] == 8e9
    assert runs["cost.memory_growth"].tolist()[0] == 500
    assert runs.filter(regex="share|flops|growth").iloc[1].isna().all()
