"""Heads on embeddings and words together."""

import sys

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack
from sklearn.linear_model import LogisticRegression

import bundles
from bundles import texts
from fala.base.errors import DataError
from fala.base.examples import Match
from fala.bundle.reading import Bundle
from fala.bundle.writing import rounded
from fala.model.heads import Head
from fala.model.losses import cross_entropy
from fala.solver.newton import Evidence
from fala.text.ngrams import lexical_rows
from fala_export import write_release
from fala_export.fit import joint, joint_rows, streamed_rows
from fala_export.fit.heads import HeadTrainingSet, fit_head, fit_joint_head
from fala_export.fit.words import add_words, fit_idf
from training_sets import one_row

pytestmark = pytest.mark.slow


def labels_by_words(documents, seed=1):
    """Labels that depend on three words, which 8 dimensions cannot separate from the other 23."""
    flips = np.random.default_rng(seed).random(len(documents)) < 0.05
    has_word = [not {"good", "film", "not"}.isdisjoint(text.split()) for text in documents]
    return [str(int(label != flip)) for label, flip in zip(has_word, flips, strict=True)]


def joint_problem(backbone, documents, labels, counts=None):
    """A classifier's training examples, every document once."""
    values = sorted(set(labels))
    shares = np.array([[float(label == value) for value in values] for label in labels])
    shares = shares[:, 1:] if len(values) == 2 else shares
    zeros, counts = np.zeros(len(documents)), np.ones(len(documents)) if counts is None else counts
    return joint_rows.JointProblem(
        [backbone.encode(documents)],
        lexical_rows(fit_idf(documents), documents),
        Evidence(shares, counts, np.zeros_like(shares), zeros),
        np.arange(len(documents)),
        zeros,
    )


@pytest.fixture(params=["SciPy", "NumPy"])
def array_library(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setitem(sys.modules, "scipy.sparse", None)  # as on a base install
    return request.param


def test_a_head_of_rows_that_are_read_some_at_a_time_is_the_same(
    backbone, monkeypatch, array_library
):
    documents = texts(150)
    rows = backbone, documents, labels_by_words(documents)
    whole = joint.fit_joint(joint_problem(*rows))
    monkeypatch.setattr(joint_rows, "FEW", 40)
    monkeypatch.setattr(streamed_rows, "TOGETHER", 40)
    some = joint.fit_joint(joint_problem(*rows))
    assert some.penalties == pytest.approx(whole.penalties)
    # The search's products are in float32, of other forms of the rows: the last steps begin apart.
    np.testing.assert_allclose(some.logits, whole.logits, atol=1e-4)
    np.testing.assert_allclose(some.words, whole.words, atol=1e-4)
    np.testing.assert_allclose(some.weight, whole.weight, atol=1e-3)


@pytest.mark.parametrize(
    ("classes", "array_library"), [(2, "SciPy"), (3, "NumPy")], indirect=["array_library"]
)
def test_fit_joint_finds_the_logistic_optimum(backbone, classes, array_library):
    documents = texts(150)
    random = np.random.default_rng(2)
    labels = random.integers(classes, size=150)
    labels[[("good" in text) for text in documents]] = 0
    counts = random.integers(1, 4, size=150).astype(float)
    fitted = joint.fit_joint(joint_problem(backbone, documents, labels, counts))
    # The minimum does not depend on how it was reached, and scikit-learn's is the same: it
    # penalises all columns alike, so that each block is divided by the root of its penalty.
    roots = np.sqrt(2 * np.array(fitted.penalties) * counts.sum())
    inputs = backbone.encode(documents)
    ngrams = lexical_rows(fit_idf(documents), documents)
    words = csr_array(np.stack([one_row(ngrams, row) for row in range(150)]))
    repeated = np.asarray((words > 0).sum(axis=0)).ravel() >= 2
    features = hstack([csr_array(inputs / roots[0]), words[:, repeated] / roots[1]])
    peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
    peer.fit(features.tocsr(), labels, sample_weight=counts)
    ours = inputs @ fitted.weight.T + ngrams.times(fitted.words) + fitted.bias
    theirs = peer.decision_function(features.tocsr()).reshape(ours.shape)
    if classes > 2:  # a softmax is free to move all logits
        ours = ours - ours.mean(axis=1, keepdims=True)
        theirs = theirs - theirs.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert fitted.details["buckets"] == repeated.sum()
    assert not fitted.words[:, ~repeated].any()


def test_words_lower_the_loss_of_left_out_documents(backbone):
    """``test_left_out.py`` computes that loss apart."""
    documents = texts(300, seed=4)
    labels = labels_by_words(documents)
    fitted = fit_joint_head(HeadTrainingSet.of(backbone, documents, labels))[1]
    assert fitted.loss < fitted.details["left_out_loss"]["without_words"] - 0.05


def test_a_document_is_one_fold(backbone):
    # The same candidates in matches of many users: a memorized candidate must not improve the loss.
    random = np.random.default_rng(8)
    candidates = texts(40, seed=8)
    liked = dict(zip(candidates, random.integers(2, size=40), strict=True))
    histories = [tuple(random.choice(candidates, size=3)) for _ in range(30)]
    examples = [Match(history, candidate) for history in histories for candidate in candidates]
    labels = [int(liked[match.candidate]) for match in examples]
    fitted = fit_joint_head(HeadTrainingSet.of(backbone, examples, labels))[1]
    assert fitted.loss > 0.5


def test_a_matcher_uses_the_candidate_and_its_words(backbone, tmp_path, released):
    random = np.random.default_rng(9)
    documents = texts(300, seed=9)
    examples = [
        Match(tuple(random.choice(documents, size=3)), str(random.choice(documents)))
        for _ in range(600)
    ]
    labels = labels_by_words([match.candidate for match in examples])
    head = fit_head(backbone, examples, labels)
    assert head.weight.shape == (1, 2 * backbone.dimension)
    assert head.dimension == backbone.dimension
    embeddings = dict(zip(documents, backbone.encode(documents), strict=True))
    z = head.vendor_model().logits(head.inputs(examples, embeddings), head.ngrams(examples))
    truth = np.array([[float(label)] for label in labels])
    assert cross_entropy(truth, z).mean() < 0.45
    write_release(tmp_path / "m.fala", released, head, {})
    assert Bundle.open(tmp_path / "m.fala").head() == head  # the written head is the fitted one


@pytest.mark.parametrize(
    ("documents", "labels"),
    [
        (["good", "good"], ["0", "1"]),  # one document: nothing can be left out
        (["good", "bad"], ["0", "1"]),  # no n-gram twice
        (["", " "], ["0", "1"]),
        (["a good film", "a bad film", "a film"], ["0", "1", "2"]),
    ],
)
def test_very_few_rows(backbone, documents, labels):
    head = fit_head(backbone, documents, labels)
    z = head.vendor_model().logits(backbone.encode(documents), head.ngrams(documents))
    assert np.isfinite(z).all() and np.abs(z).max() < 20


# Words for a head that was trained on its own


def test_word_weights_are_scaled_on_held_out_rows(backbone):
    names = ("1", "0")  # not in the order of the labels
    documents = texts(1200, seed=13)
    labels = labels_by_words(documents)
    embeddings = dict(zip(documents, backbone.encode(documents), strict=True))
    first, second, third = (slice(start, start + 400) for start in (0, 400, 800))
    with_words = fit_head(backbone, documents[first], labels[first], label_names=names)
    plain = fit_head(backbone, documents[first], labels[first], label_names=names, lexical=False)
    # A head that is ten times too confident, as after a long training.
    sure = Head(plain.task, plain.labels, 10 * plain.weight, 10 * plain.bias)
    head = add_words(sure, with_words.lexical, documents[second], labels[second], embeddings)
    truth = head.label_shares(labels[third])

    def loss(head):
        inputs = head.inputs(documents[third], embeddings), head.ngrams(documents[third])
        return cross_entropy(truth, head.vendor_model().logits(*inputs))

    assert loss(head).mean() < loss(plain).mean() - 0.05
    assert loss(head).mean() < loss(sure).mean() - 0.3
    assert rounded(head.lexical) == head.lexical


@pytest.mark.parametrize("names", [("0", "1"), ("0", "1", "2")])
def test_word_weights_never_change_sign(backbone, names):
    """Few rows may show a negative effect by chance; a device may use words alone."""
    documents = texts(120, seed=15)
    embeddings = dict(zip(documents, backbone.encode(documents), strict=True))
    labels = labels_by_words(documents)
    words = fit_head(backbone, documents, labels, label_names=names).lexical
    plain = bundles.make_head(labels=names)
    flipped = [{"0": "1", "1": "0"}[label] for label in labels]
    head = add_words(plain, words, documents, flipped, embeddings)
    zeroed = ~head.lexical.weight.any(axis=1)
    assert zeroed.any()
    right = add_words(plain, words, documents, labels, embeddings)
    assert right.lexical.weight.any(axis=1)[zeroed].all()
    assert (head.weight / plain.weight > 0).all()


def test_add_words_needs_held_out_rows():
    with pytest.raises(DataError, match="rows that were not trained on"):
        add_words(bundles.make_head(), bundles.make_lexical(), [], [], {})
    with pytest.raises(DataError, match="fit a matcher's head again"):
        add_words(bundles.make_head("matching"), bundles.make_lexical(), [], [], {})


@pytest.mark.parametrize("names", [("0", "1"), ("0", "1", "2")])
def test_words_are_fitted_alone_without_a_backbone(names):
    documents = texts(300, seed=16)
    labels = labels_by_words(documents)
    head = fit_head(None, documents, labels, label_names=names)
    assert head.dimension == 1
    zeros = np.zeros((len(documents), 1), np.float32)
    logits = head.vendor_model().logits(zeros, head.ngrams(documents))
    assert (head.link.classes(logits) == [int(label) for label in labels]).mean() > 0.8
    plain = head.without_ngrams().vendor_model().logits(zeros)
    assert len(np.unique(plain, axis=0)) == 1
