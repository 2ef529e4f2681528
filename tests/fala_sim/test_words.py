"""Words in the laboratory: alone, beside a frozen backbone, and beside a trained one."""

from dataclasses import replace

import numpy as np
import pytest

from fala import DataError, Match
from fala.model.heads import Head
from fala_export.rows.user_rows import Row
from fala_sim.data_sets import Division
from fala_sim.methods.registry import find_method
from fala_sim.metric.quality import figures, positions
from fala_sim.preparation.heads import Nothing, tuned_head, words_head
from fala_sim.situation import User
from situations import situation

PRAISE, BLAME = ("good", "great", "lovely"), ("bad", "awful", "boring")
NOUNS = ("film", "book", "song", "play", "meal", "trip", "game", "talk")


def make_examples(n, seed, matching=False, turned=0.0):
    """Examples whose words determine the label; a share, ``turned``, has the opposite label."""
    random = np.random.default_rng(seed)
    examples, labels = [], []
    for number in range(n):
        likes = bool(random.integers(2))
        words = random.choice(PRAISE if likes else BLAME), random.choice(NOUNS), f"n{number % 40}"
        text = f"a {' '.join(words)} {seed}"
        examples.append(Match(("seen",), text) if matching else text)
        labels.append("ab"[likes ^ (random.random() < turned)])
    return examples, labels


def auc_of(logits, labels):
    return figures(logits, positions(labels, ("a", "b")))["auc"]


def make_division(matching=False, turned=0.0):
    examples, labels = make_examples(300, 0, matching, turned)
    task = "matching" if matching else "classification"
    names = [f"p{n % 10}" for n in range(300)]
    return Division("made", task, ("a", "b"), examples, labels, names, (), ())


@pytest.mark.parametrize("matching", [False, True])
def test_a_head_on_words_alone_uses_only_words(matching):
    head = words_head(make_division(matching))
    assert head.dimension == 1
    examples, labels = make_examples(100, 7, matching)
    nothing = np.zeros((100, head.weight.shape[1]), np.float32)
    logits = head.vendor_model().logits(nothing, head.words(examples))
    assert auc_of(logits, labels) > 0.95
    # Without n-grams all examples are alike.
    assert len(np.unique(head.without_words().vendor_model().logits(nothing))) == 1


@pytest.mark.parametrize("matching", [False, True])
def test_words_alone_learn_the_user_s_preference(matching):
    """A user with the opposite preference is learned from their labels, without a backbone."""
    examples, labels = make_examples(200, 3, matching)
    labels = ["ab"[label == "a"] for label in labels]
    user = User("one", examples[:120], labels[:120], examples[120:], labels[120:])
    head = words_head(make_division(matching))
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
    with pytest.raises(DataError, match="there is no head on words alone"):
        find_method("words").fit(situation(), {})


def test_words_beside_a_trained_backbone_are_fitted_on_unseen_rows():
    division = make_division(turned=0.15)
    texts = list(division.public)
    rows = [
        Row("p", "public", example, label, 0)
        for example, label in zip(division.public[:220], division.public_labels[:220], strict=True)
    ]
    # The head has memorized its training rows, and knows nothing of the others.
    d = 8
    random = np.random.default_rng(0)
    trained = {text: random.normal(size=d).astype(np.float32) for text in texts}
    weight = random.normal(size=(1, d)).astype(np.float32)
    for example, label in zip(division.public[:220], division.public_labels[:220], strict=True):
        trained[example] = (1 if label == "b" else -1) * weight[0]
    head = Head(division.task, ("a", "b"), weight, np.zeros(1, np.float32))
    joint = tuned_head(head, division, rows, backbone=Nothing(), embeddings=trained)
    # Its logit gets a small weight, and the words a large one.
    assert np.abs(joint.weight[:, :d]).max() < 0.2 * np.abs(weight).max()
    fresh, labels = division.public[220:], division.public_labels[220:]
    logits = joint.vendor_model().logits(joint.inputs(fresh, trained), joint.words(fresh))
    assert auc_of(logits, labels) > 0.75
    logits_alone = head.vendor_model().logits(head.inputs(fresh, trained))
    assert auc_of(logits_alone, labels) < 0.65
    all_rows = [*rows, *(Row("p", "public", example, label, 0)
                           for example, label in zip(fresh, labels, strict=True))]  # fmt: skip
    with pytest.raises(DataError, match="not trained on"):
        tuned_head(head, division, all_rows, backbone=Nothing(), embeddings=trained)


def test_words_beside_a_trained_matcher_have_a_new_joint_head():
    division = make_division(matching=True)
    texts = ["seen", *(match.candidate for match in division.public)]
    random = np.random.default_rng(0)
    trained = {text: random.normal(size=8).astype(np.float32) for text in texts}
    rows = [
        Row("p", "public", match, label, 0)
        for match, label in zip(division.public, division.public_labels, strict=True)
    ]
    backbone = Nothing()
    backbone.dimension = 8
    head = Head(division.task, ("a", "b"), np.ones((1, 8), np.float32), np.zeros(1, np.float32))
    joint = tuned_head(head, division, rows, backbone=backbone, embeddings=trained)
    assert joint.lexical is not None and joint.weight.shape == (1, 16)
    logits = joint.vendor_model().logits(
        joint.inputs(division.public, trained), joint.words(division.public)
    )
    assert auc_of(logits, division.public_labels) > 0.9
