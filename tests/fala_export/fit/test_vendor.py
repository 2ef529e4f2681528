"""Heads that a vendor fits with the SDK alone."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bundles import texts
from fala.base.errors import DataError, FalaError
from fala.base.examples import Match
from fala.model.losses import cross_entropy
from fala_export.fit import streamed_rows
from fala_export.fit.heads import fit_head
from fala_export.fit.plain import PlainProblem
from fala_export.people import draw as samples
from fala_export.rows import door
from fala_export.rows.user_rows import Row


class Silent:
    """A backbone whose ``encode`` must not be called."""

    def __init__(self, dimension):
        self.dimension = dimension

    def encode(self, texts):
        raise AssertionError("embeddings are given")


def chosen_penalty(monkeypatch):
    """The penalty that fit_head chose last."""
    chosen = []
    original = PlainProblem.chosen_penalty

    def choose(problem):
        chosen.append(original(problem))
        return chosen[-1]

    monkeypatch.setattr(PlainProblem, "chosen_penalty", choose)
    return lambda: chosen[-1][0]


@pytest.mark.parametrize("names", [None, ("1", "0"), ("2", "0", "1")])
def test_a_classifier_is_the_logistic_optimum(backbone, monkeypatch, names):
    documents = texts(150)
    h = backbone.encode(documents).astype(np.float64)
    classes = len(names or "01")
    noise = np.random.default_rng(1).normal(size=(len(h), classes)) * 0.3
    labels = (h[:, :classes] + noise).argmax(axis=1)
    penalty = chosen_penalty(monkeypatch)
    head = fit_head(backbone, documents, labels.tolist(), label_names=names, lexical=False)
    assert head.labels == (names or (0, 1))
    # scikit-learn minimizes C * sum CE + |w|^2 / 2; ours is sum CE + penalty |w|^2.
    peer = LogisticRegression(C=1 / (2 * penalty()), tol=1e-10, max_iter=10_000)
    peer.fit(h, labels)
    ours = head.vendor_model().probabilities(h.astype(np.float32))
    order = [head.names.index(str(label)) for label in range(classes)]
    np.testing.assert_allclose(ours[:, order], peer.predict_proba(h), atol=2e-4)
    if names is None:
        np.testing.assert_allclose(head.weight, peer.coef_, atol=2e-4)
        np.testing.assert_allclose(head.bias, peer.intercept_, atol=2e-4)


def test_a_head_of_three_noisy_labels_is_not_overconfident():
    """A one-step estimate of the held-out loss chose a head that was worse than none."""
    random = np.random.default_rng(6)
    documents = [f"document {number}" for number in range(1200)]
    x = random.normal(size=(len(documents), 120)).astype(np.float32)
    z = x @ random.normal(size=(120, 3)) / 12
    labels = (z + random.gumbel(size=z.shape)).argmax(axis=1)
    embeddings = dict(zip(documents, x, strict=True))
    head = fit_head(
        Silent(120), documents[:300], labels[:300].tolist(), embeddings=embeddings, lexical=False
    )
    logits = head.vendor_model().logits(x[300:])
    loss = cross_entropy(np.eye(3)[labels[300:]], logits.astype(np.float64)).mean()
    assert loss < np.log(3) - 0.02
    assert (logits.argmax(axis=1) == labels[300:]).mean() > 1 / 3 + 0.05


def test_a_repeated_row_is_a_weight_and_one_fold(backbone, monkeypatch):
    documents = texts(60, seed=4)
    random = np.random.default_rng(4)
    rows = np.concatenate([np.arange(60), random.integers(60, size=90)])
    labels = random.integers(2, size=len(rows))
    penalty = chosen_penalty(monkeypatch)
    head = fit_head(backbone, [documents[row] for row in rows], labels.tolist(), lexical=False)
    h = backbone.encode(documents).astype(np.float64)
    peer = LogisticRegression(C=1 / (2 * penalty()), tol=1e-10, max_iter=10_000)
    peer.fit(h[rows], labels)
    np.testing.assert_allclose(head.weight, peer.coef_, atol=2e-4)
    # Annotators who disagree make a share: half and half pulls nowhere.
    split = fit_head(backbone, documents * 2, ["0"] * 60 + ["1"] * 60, lexical=False)
    assert np.abs(split.vendor_model().logits(backbone.encode(documents))).max() < 1e-4


@pytest.mark.parametrize(
    ("examples", "labels", "names", "message"),
    [
        (["good", "bad"], ["1", "1"], None, "two labels or more"),
        ([], [], ("0", "1"), "two labels or more"),
        (["good", "bad"], ["1"], None, "2 examples, but 1 label$"),
        (["good", "bad"], {"0", "1"}, None, "labels must be a sequence, not a set"),
        (["good", "bad"], ["0", "1"], {"0", "1"}, "label_names must be a sequence, not a set"),
        (["good", "bad"], ["1", "x"], ("0", "1"), "label of example 1 is a text of 1 char"),
        (["good", Match((), "a")], ["1", "0"], None, "example 1 is a Match"),
        ([Match((), c) for c in "abc"], ["0", "1", "2"], None, "a matcher must have two labels"),
    ],
)
def test_fit_head_rejects_wrong_examples(backbone, examples, labels, names, message):
    with pytest.raises(DataError, match=message):
        fit_head(backbone, examples, labels, label_names=names)


@pytest.mark.parametrize("exclusive", [True, False])
def test_fit_head_rejects_too_many_labels_before_it_embeds(backbone, exclusive, monkeypatch):
    monkeypatch.setattr(type(backbone), "encode", None)
    names = [str(number) for number in range(1025)]
    labels = names if exclusive else [{name} for name in names]
    with pytest.raises(DataError, match="there are 1,025 labels, but a release has at most 1,024"):
        fit_head(backbone, names, labels, exclusive=exclusive)


FOUR = np.eye(4) + 1


@pytest.mark.parametrize(
    ("vectors", "labels", "kind", "message"),
    [
        (FOUR * [[1], [1], [np.inf], [1]], [0, 1, 0, 1], {}, "vector 2 has a number"),
        (FOUR[0], [0, 1, 0, 1], {}, r"of shape \(n, d\), not \(4,\)"),
        (FOUR.astype(str), [0, 1, 0, 1], {}, "vectors must be a NumPy array of numbers"),
        (FOUR.tolist(), [0, 1, 0, 1], {}, "for a NumPy array of vectors"),
        (FOUR, [0, 1, 0.5, 1], {}, "the label of example 2 is 0.5; for ratings pass rating="),
        (FOUR, [0, None, 0, 1], {}, "the label of example 1 is None"),
        (FOUR, [1, 2, 3, 4], {"rating": (1, 5), "exclusive": False}, "not both"),
    ],
)
def test_fit_head_rejects_wrong_vectors_and_labels(vectors, labels, kind, message):
    with pytest.raises(FalaError, match=message):
        fit_head(vectors, labels, **kind)


def test_a_head_of_memory_mapped_vectors_is_the_same(tmp_path, monkeypatch):
    """Rows are read a few at a time, and never all of them in float64."""
    monkeypatch.setattr(streamed_rows, "TOGETHER", 64)
    random = np.random.default_rng(3)
    x = random.normal(size=(400, 6)).astype(np.float32)
    labels = (x[:, 0] + random.normal(size=400) > 0).astype(int)
    np.save(tmp_path / "vectors.npy", x)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for kind in ({}, {"rating": (0, 1)}, {"exclusive": False}):
        tags = [{str(label)} if kind.get("exclusive", True) is False else label for label in labels]
        assert fit_head(mapped, tags, **kind) == fit_head(x, tags, **kind)


@pytest.mark.parametrize("labels", [2, 3])
def test_some_of_many_documents_choose_the_penalty(monkeypatch, labels):
    """The prior variance of a weight is then that of all documents."""
    random = np.random.default_rng(8)
    x = random.normal(size=(900, 5)).astype(np.float32)
    values = (x[:, :labels] + random.normal(size=(900, labels))).argmax(axis=1)
    penalty = chosen_penalty(monkeypatch)
    monkeypatch.setattr(samples, "FEW", 300)
    head = fit_head(x, values)
    chosen = samples.searched(900)
    assert len(chosen) == 300
    some, all_rows = penalty(), x.astype(np.float64)
    peer = LogisticRegression(C=1 / (2 * some), tol=1e-10, max_iter=10_000).fit(all_rows, values)
    ours = head.vendor_model().probabilities(x)
    np.testing.assert_allclose(ours, peer.predict_proba(all_rows), atol=2e-4)
    fit_head(x[chosen], values[chosen])
    assert penalty() == pytest.approx(some)


def test_some_of_many_documents_are_drawn_for_a_head(monkeypatch):
    documents = texts(200, seed=5)
    rows = [Row(None, "public", text, "1", 0) for text in documents * 2]
    for name, most, documents_kept in (
        ("MOST_DOCUMENTS", 70, 70), ("MOST_CHARACTERS", 40 * len(documents[0]), 40),
    ):  # fmt: skip
        monkeypatch.setattr(door, name, most)
        drawn = samples.rows_of_head(rows)
        assert drawn.count_documents() == pytest.approx(documents_kept, abs=10)
        assert len(drawn) == 2 * drawn.count_documents()
    monkeypatch.setattr(door, "MOST_ROWS", 25)
    assert len(samples.rows_of_head(rows)) == 25
