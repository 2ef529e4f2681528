"""Blends of three models' logits, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fala_sim.experiments.replacement.blends import TRIED, UserLogits, Weights, best


def user(seed=0, n=80, noise=(1.0, 1.0, 1.0)):
    """Examples with three models' logits: the label, plus independent noise."""
    random = np.random.default_rng(seed)
    truth = random.integers(2, size=n)
    models = [
        (2.0 * truth - 1 + level * random.normal(size=n)).round(1)[:, None] for level in noise
    ]
    return UserLogits(truth, *models)


def area(examples, weights):
    z = (1 - weights.words - weights.old) * examples.peer + weights.old * examples.old
    return roc_auc_score(examples.truth, (z + weights.words * examples.words)[:, 0])


def test_best_weights_have_the_highest_mean_auc():
    users = [user(seed, noise=(2.0, 1.5, 1.5)) for seed in range(3)]
    means = [np.mean([area(examples, weights) for examples in users]) for weights in TRIED]
    best_weights = best(users)
    assert means[TRIED.index(best_weights)] == pytest.approx(max(means))
    # Neither alone, nor the peer alone, is as good here.
    assert min(best_weights) > 0
    assert max(means) > means[TRIED.index(Weights(0.0, 0.0))] + 0.05


def test_the_peers_weight_is_at_least_a_tenth():
    assert len(TRIED) == len(set(TRIED)) == 55
    assert max(words + old for words, old in TRIED) == pytest.approx(0.9)
    random = np.random.default_rng(0)
    truth = random.integers(2, size=200)
    peer, knows = 4.0 * random.normal(size=(200, 1)), 2.0 * truth[:, None] - 1
    assert best([UserLogits(truth, peer, knows, np.zeros((200, 1)))]) == Weights(0.0, 0.9)


def test_users_without_an_auc_are_ignored_unless_nobody_has_one():
    examples = user(1, noise=(2.0, 2.0, 0.1))
    same = UserLogits(np.ones(20, int), *(np.ones((20, 1)) for _ in range(3)))
    assert best([examples, same]) == best([examples])
    # Where nobody has one, accuracy decides: the old model alone says what is true.
    wrong = UserLogits(np.ones(20, int), -np.ones((20, 1)), 2 * np.ones((20, 1)), np.zeros((20, 1)))
    assert best([wrong]).old >= 0.4


def test_weights_of_three_labels_have_the_highest_mean_auc():
    random = np.random.default_rng(0)
    truth = random.integers(3, size=60)
    words = 4.0 * np.eye(3)[truth] + random.normal(size=(60, 3))
    examples = UserLogits(truth, random.normal(size=(60, 3)), random.normal(size=(60, 3)), words)
    assert best([examples]).words >= 0.5
