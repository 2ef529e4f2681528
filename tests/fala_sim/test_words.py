"""The laboratory's peer that has words alone."""

from dataclasses import replace

import numpy as np
import pytest

from fala import DataError, Match
from fala_export.fit.heads import fit_head
from fala_sim.data.users import User
from fala_sim.methods.quality import label_figures, positions
from fala_sim.methods.registry import find_method
from situations import situation

PRAISE, BLAME = ("good", "great", "lovely"), ("bad", "awful", "boring")
NOUNS = ("film", "book", "song", "play", "meal", "trip", "game", "talk")


def make_examples(n, seed, matching=False):
    """Examples whose words determine the label, and the labels."""
    random = np.random.default_rng(seed)
    examples, labels = [], []
    for number in range(n):
        likes = bool(random.integers(2))
        words = random.choice(PRAISE if likes else BLAME), random.choice(NOUNS), f"n{number % 40}"
        text = f"a {' '.join(words)} {seed}"
        examples.append(Match(("seen",), text) if matching else text)
        labels.append("ab"[likes])
    return examples, labels


def auc_of(logits, labels):
    return label_figures(logits, positions(labels, ("a", "b")))["auc"]


@pytest.mark.parametrize("matching", [False, True])
def test_words_alone_learn_the_user_s_preference(matching):
    """A user with the opposite preference is learned from their labels, without a backbone."""
    examples, labels = make_examples(200, 3, matching)
    labels = ["ab"[label == "a"] for label in labels]
    user = User("one", examples[:120], labels[:120], examples[120:], labels[120:])
    head = fit_head(None, *make_examples(300, 0, matching))
    where = replace(situation(), user=user, words=head)
    method = find_method("words")
    scores = method.fit(where, {})(user.test)
    assert auc_of(scores, user.test_labels) > 0.9
    assert where.meter.fields()["total"]["forward_passes"] == 0
    # Without labels, a user has the vendor's model.
    unlabelled = replace(where, user=replace(user, train=[], train_labels=[]))
    vendor = method.fit(unlabelled, {})(user.test)
    assert auc_of(vendor, user.test_labels) < 0.1


def test_words_alone_require_the_vendor_s_head():
    with pytest.raises(DataError, match="there is no head on n-grams alone"):
        find_method("words").fit(situation(), {})
