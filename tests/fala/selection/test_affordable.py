"""Which texts are worth a forward pass, and how far a batch of them moved the probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fala.selection.affordable import affordable
from fala.selection.next_texts import move

WORDS = st.lists(st.sampled_from("abcdefghij"), max_size=5, unique=True)


def complete(missing, taken):
    return [example for example, texts in enumerate(missing) if set(texts) <= set(taken)]


def test_documents_go_by_importance():
    assert affordable([["c"], ["a"], ["b"], ["a"]], 2) == ["c", "a"]


@given(st.lists(WORDS, max_size=12), st.integers(0, 12))
def test_the_limit_holds_and_nothing_is_wasted(missing, limit):
    taken = affordable(missing, limit)
    assert len(taken) == len(set(taken)) <= limit
    done = [missing[example] for example in complete(missing, taken)]
    assert set(taken) == {text for texts in done for text in texts}
    for texts in missing:  # nothing more could have been completed
        assert set(texts) <= set(taken) or len(set(texts) - set(taken)) > limit - len(taken)


def test_a_move_is_the_mean_change_of_probability():
    before, after = np.zeros((4, 1)), np.array([[0.0], [0.0], [50.0], [-50.0]])
    assert move(before, before) == 0
    assert move(before, after) == pytest.approx(0.25)
    # A softmax does not change when all logits move together.
    logits = np.random.default_rng(0).normal(size=(5, 3))
    assert move(logits, logits + 1) == pytest.approx(0)
