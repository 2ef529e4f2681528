"""How far a batch moved the examples' probabilities."""

import numpy as np
import pytest

from fala.selection.next_texts import move


def test_a_move_is_the_mean_change_of_probability():
    before, after = np.zeros((4, 1)), np.array([[0.0], [0.0], [50.0], [-50.0]])
    assert move(before, before) == 0
    assert move(before, after) == pytest.approx(0.25)
    # A softmax does not change when all logits move together.
    logits = np.random.default_rng(0).normal(size=(5, 3))
    assert move(logits, logits + 1) == pytest.approx(0)
