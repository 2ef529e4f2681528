"""The mark by which the tests on real data can be run alone."""

import pytest

import checkout
from checkout import ROOT, asks_for_real_data


def helper():
    return [checkout.real_data(name) for name in ("movielens-small", "hs-brexit")]


def calls_a_helper():
    return helper()


def calls_none():
    return calls_none, ROOT


def test_a_call_is_found_directly_and_behind_a_function():
    assert asks_for_real_data(helper)
    assert asks_for_real_data(calls_a_helper)
    assert not asks_for_real_data(calls_none)


def test_a_call_that_the_search_does_not_see_is_a_mistake():
    with pytest.raises(LookupError, match="does not see"):
        getattr(checkout, "real" + "_data")("hs-brexit")
