"""Heads turn embeddings into inputs, logits and probabilities."""

import numpy as np
import pytest

from bundles import DIMENSION, make_head
from fala.base.errors import DataError
from fala.base.examples import MATCHING, Match
from fala.model.heads import Head, OwnNgrams, PersonalModel
from fala.text.ngrams import BUCKETS

rng = np.random.default_rng(0)
TEXTS = ["one", "two", "three", "four"]
EMBEDDINGS = {text: rng.normal(size=DIMENSION).astype(np.float32) for text in TEXTS}
THREE = ("low", "middle", "high")


def vendor_logits(head, inputs):
    """Compute the vendor's formula, without any personal part."""
    return inputs @ head.weight.T + head.bias


# Inputs


def test_a_classifiers_inputs_are_the_embeddings():
    inputs = make_head().inputs(TEXTS, EMBEDDINGS)
    assert inputs.dtype == np.float32
    assert np.array_equal(inputs, np.stack([EMBEDDINGS[text] for text in TEXTS]))


@pytest.mark.parametrize(
    "query",
    [None, rng.normal(size=DIMENSION), np.full(DIMENSION, 1e6)],
    ids=["none", "own", "large"],
)
def test_a_matcher_attends_to_the_history_or_takes_its_mean(query):
    head = Head(MATCHING, ("0", "1"), np.ones((1, DIMENSION)), np.full(1, 0.25), query)
    history = ("one", "two", "two")
    inputs = head.inputs([Match(history, "three"), Match((), "three")], EMBEDDINGS)
    rows = np.stack([EMBEDDINGS[text] for text in history]).astype(np.float64)
    scores = np.zeros(3) if query is None else rows @ query
    attention = np.exp(scores - scores.max())
    user = attention / attention.sum() @ rows
    np.testing.assert_allclose(inputs[0], user * EMBEDDINGS["three"], atol=1e-6)
    # An empty history gives the bias.
    assert not inputs[1].any() and head.vendor_model().logits(inputs)[1] == 0.25


def test_no_examples_give_empty_arrays():
    for head in (make_head(), make_head(MATCHING, query=True), make_head(labels=THREE)):
        inputs = head.inputs([], {})
        assert inputs.shape == (0, DIMENSION)
        assert head.vendor_model().probabilities(inputs).shape == (0, len(head.labels))


# Logits


@pytest.mark.parametrize(
    "head",
    [make_head(), make_head(labels=THREE), make_head(MATCHING, query=True), make_head(MATCHING)],
)
def test_theta_one_equals_the_vendors_model_exactly(head):
    inputs = rng.normal(size=(50, DIMENSION)).astype(np.float32)
    expected = vendor_logits(head, inputs)
    assert head.vendor_model().logits(inputs).tobytes() == expected.tobytes()
    ones = np.ones(head.weight.shape)
    model = PersonalModel(head, ones * head.weight, head.bias.astype(np.float64))
    assert model.logits(inputs).tobytes() == expected.tobytes()
    assert model.is_vendor and model == head.vendor_model()


@pytest.mark.parametrize("labels", [("0", "1"), THREE])
def test_the_personal_weight_equals_theta_times_the_vendors(labels):
    head = make_head(labels=labels)
    theta, bias = rng.normal(size=head.weight.shape), rng.normal(size=head.bias.shape)
    inputs = rng.normal(size=(9, DIMENSION)).astype(np.float32)
    features = head.features(inputs)
    assert features.shape == (9, len(head.bias), DIMENSION)
    assert features.dtype == np.float64
    expected = np.einsum("cd,ncd->nc", theta, features) + bias
    personal = PersonalModel(head, theta * head.weight, bias)
    np.testing.assert_allclose(personal.logits(inputs), expected, atol=1e-5)
    assert not personal.is_vendor


@pytest.mark.parametrize("labels", [("0", "1"), THREE])
def test_probabilities_are_softmax_or_sigmoid(labels):
    head = make_head(labels=labels)
    inputs = rng.normal(size=(9, DIMENSION)).astype(np.float32)
    model = head.vendor_model()
    logits, shares = model.logits(inputs).astype(np.float64), model.probabilities(inputs)
    assert shares.shape == (9, len(labels))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    odds = logits if len(labels) > 2 else np.hstack([np.zeros_like(logits), logits])
    expected = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("weight", "bias", "match"),
    [
        (np.ones((2, DIMENSION)), np.ones(1), "fit the head, not"),
        (np.ones(DIMENSION), np.ones(1), "fit the head, not"),
        (np.ones((1, DIMENSION)), np.ones(2), "fit the head, not"),
        (np.full((1, DIMENSION), np.nan), np.ones(1), "not finite"),
        (np.full((1, DIMENSION), 1e39), np.ones(1), "not finite"),
        (np.ones((1, DIMENSION)), np.full(1, np.inf), "not finite"),
    ],
)
def test_wrong_weights_are_rejected(weight, bias, match):
    with pytest.raises(DataError, match=match):
        PersonalModel(make_head(), weight, bias)


@pytest.mark.parametrize("labels", [("0", "1"), THREE])
def test_reordering_labels_keeps_probabilities(labels):
    head, inputs = make_head(labels=labels), rng.normal(size=(9, DIMENSION)).astype(np.float32)
    turned = head.in_order(labels[::-1])
    assert turned.labels == labels[::-1] and turned.in_order(labels) == head
    shares = turned.vendor_model().probabilities(inputs)
    np.testing.assert_allclose(shares[:, ::-1], head.vendor_model().probabilities(inputs))
    assert head.in_order(labels) is head
    with pytest.raises(DataError, match="are not the labels"):
        head.in_order(("0", "2"))


def test_models_compare_by_their_weights():
    head = make_head()
    moved = PersonalModel(head, head.weight + 1, head.bias)
    assert head == make_head() != make_head(seed=3)
    matcher = make_head(MATCHING, query=True)
    assert matcher != Head(MATCHING, matcher.labels, matcher.weight, matcher.bias, -matcher.query)
    assert head.vendor_model() == make_head().vendor_model() != moved
    assert moved == PersonalModel(make_head(), make_head().weight + 1, head.bias)
    assert "vendor's own" in repr(head.vendor_model()) and "personal" in repr(moved)


@pytest.mark.parametrize("own", [0, 1, 500])
def test_own_weights_of_some_n_grams_are_those_of_all(own):
    vendor = rng.normal(size=(2, BUCKETS)).astype(np.float32)
    weight = np.float32(1.5) * vendor
    chosen = np.sort(rng.choice(BUCKETS, own, replace=False))
    weight[:, chosen] += 1
    words = OwnNgrams.of(weight, vendor)
    assert words.buckets.tolist() == chosen.tolist()
    for count in (0, 1, 40, 2000):
        buckets = np.concatenate([chosen[:7], rng.choice(BUCKETS, count)]).astype(np.int32)
        np.testing.assert_array_equal(words.at(vendor, buckets), words.dense(vendor)[:, buckets])
    np.testing.assert_allclose(words.dense(vendor), weight, rtol=1e-6)


# Labels


def test_shares_are_the_second_labels_or_all_labels():
    shares = make_head().label_shares(["1", "0", None, 1])
    np.testing.assert_array_equal(shares, [[1], [0], [np.nan], [1]])
    shares = make_head(labels=THREE).label_shares(["high", None])
    np.testing.assert_array_equal(shares, [[0, 0, 1], [np.nan] * 3])
