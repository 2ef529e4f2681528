"""The mark by which the tests on real data can be run alone."""

import pytest

import checkout
from checkout import ROOT, names_used


def helper():
    return [checkout.real_data(name) for name in ("movielens-small", "hs-brexit")]


def calls_a_helper():
    return helper()


def calls_none():
    return calls_none, ROOT


def test_a_call_is_found_directly_and_behind_a_function():
    assert "real_data" in names_used([helper])
    assert "real_data" in names_used([calls_a_helper])
    assert "real_data" not in names_used([calls_none])


def test_a_call_that_the_search_does_not_see_is_a_mistake():
    with pytest.raises(LookupError, match="does not see"):
        getattr(checkout, "real" + "_data")("hs-brexit")
