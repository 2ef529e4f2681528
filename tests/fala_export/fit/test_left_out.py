"""Held-out logits: each document's is of a head that was not fitted to it."""

import numpy as np
import pytest

from bundles import make_head, texts
from fala import Bundle, DataError
from fala.model.losses import cross_entropy
from fala_export import write_release
from fala_export.fit.heads import HeadTrainingSet, fit_head, fit_joint_head
from fala_export.fit.left_out import held_out_logits, logits_of_left_out
from fala_export.rows.table import Rows
from fala_export.rows.user_rows import Row

PENALTIES = [1e-3, 1e-4]


def rows(count=90):
    """Texts, and labels of which nine in ten depend on one word."""
    rng, documents = np.random.default_rng(0), texts(count)
    positive = [("good" in text) != (rng.random() < 0.1) for text in documents]
    return documents, [str(int(label)) for label in positive]


def flipped(labels, position):
    return [*labels[:position], "10"[int(labels[position])], *labels[position + 1 :]]


def embeddings_of(backbone, documents):
    return dict(zip(documents, backbone.encode(documents), strict=True))


def head_logits(head, documents, embeddings):
    return head.vendor_model().logits(head.inputs(documents, embeddings), head.ngrams(documents))


def left_out_logits(backbone, documents, labels, penalties):
    """Return the logits of heads with lexical features, each fitted to two thirds of the texts."""
    embeddings, head = embeddings_of(backbone, documents), make_head(words=True)
    rows = [
        Row(None, "public", text, label, 0) for text, label in zip(documents, labels, strict=True)
    ]
    return logits_of_left_out(backbone, head, Rows.of(rows), embeddings, penalties)


@pytest.fixture
def logits_of(tmp_path, released, backbone):
    """A function that returns what ``held_out_logits`` does for a release and 9 users in turn."""

    def give(head, documents, labels, training=None):
        path = tmp_path / "release.fala"
        write_release(path, released, head, {"training": training or {}})
        embeddings = embeddings_of(backbone, documents)
        rows = [
            Row(f"user {position % 9}", "public", text, label, 0)
            for position, (text, label) in enumerate(zip(documents, labels, strict=True))
        ]
        return held_out_logits(Bundle.open(path), head, Rows.of(rows), embeddings)

    return give


def test_a_documents_label_does_not_change_its_held_out_logit(backbone):
    documents, labels = rows()
    documents, labels = [*documents, documents[5]], [*labels, labels[5]]
    before = left_out_logits(backbone, documents, labels, PENALTIES)
    for position in (5, 17, 40):
        changed = flipped(labels, position)
        after = left_out_logits(backbone, documents, changed, PENALTIES)
        same = np.isclose(after[:, 0], before[:, 0], atol=1e-6)
        assert same[position]
        assert np.isclose(same.mean(), 1 / 3, atol=0.05)  # its third is left out together
    assert before[5] == before[-1]  # as is another row of the same document
    after = left_out_logits(backbone, documents, flipped(labels, 5), PENALTIES)
    np.testing.assert_allclose(after[-1], before[-1], atol=1e-6)


@pytest.mark.parametrize("lexical", [True, False])
def test_a_users_logits_know_other_users_labels_but_no_document_on_which_they_are_scored(
    logits_of, backbone, lexical
):
    documents, labels = (each * 4 for each in rows(100))
    users, numbers = np.arange(400) % 9, np.arange(400) % 100
    head = fit_head(backbone, documents, labels, lexical=lexical)
    training = {"words": {"penalties": PENALTIES}}
    before, held_out = logits_of(head, documents, labels, training)
    assert held_out.mean() == pytest.approx(1 / 3, abs=0.1)
    for position in (7, 40):
        after, _ = logits_of(head, documents, flipped(labels, position), training)
        same = np.isclose(before, after, rtol=0, atol=1e-7)[:, 0]
        # Nobody's own label, nor one of a document on which the user is scored.
        unknowing = (users == users[position]) | held_out & (numbers == numbers[position])
        assert same[unknowing].all()
        learned = ~held_out & (numbers == numbers[position]) & (users != users[position])
        assert not same[learned].all()
    # Heads on fewer rows are close to the head where they know the document.
    own = head_logits(head, documents, embeddings_of(backbone, documents))
    assert np.corrcoef(before[~held_out, 0], own[~held_out, 0])[0, 1] > 0.8


def test_the_penalties_of_the_release_are_used(logits_of, backbone):
    documents, labels = rows()
    head = make_head(words=True)
    given, _ = logits_of(head, documents, labels, {"words": {"penalties": PENALTIES}})
    chosen, _ = logits_of(head, documents, labels)
    assert np.abs(chosen - given).max() > 1e-3
    for penalties in ("ten", [1e-3], [0.0, 1.0], [1, None]):
        logits, _ = logits_of(head, documents, labels, {"words": {"penalties": penalties}})
        np.testing.assert_array_equal(logits, chosen)


def test_a_trained_backbone_uses_its_own_logits(logits_of, backbone):
    documents, labels = rows()
    head = make_head(words=True)
    logits, held_out = logits_of(head, documents, labels, {"history": {"steps": 1}})
    own = head_logits(head, documents, embeddings_of(backbone, documents))
    np.testing.assert_array_equal(logits, own)
    assert held_out.any() and not held_out.all()


def test_held_out_loss_exceeds_training_loss(backbone):
    documents, labels = rows(300)
    head, fit = fit_joint_head(HeadTrainingSet.of(backbone, documents, labels))
    shares = head.label_shares(labels)
    fitted = head_logits(head, documents, embeddings_of(backbone, documents))
    left_out = left_out_logits(backbone, documents, labels, fit.penalties)
    losses = [float(cross_entropy(shares, z).mean()) for z in (fitted, left_out)]
    assert losses[0] < losses[1] < np.log(2)
    assert losses[1] == pytest.approx(fit.loss, rel=0.02)


def test_left_out_logits_need_two_documents(logits_of, backbone):
    with pytest.raises(DataError, match="at least two documents"):
        left_out_logits(backbone, ["good film"] * 2, ["0", "1"], PENALTIES)
    with pytest.raises(DataError, match="needs at least two of each"):
        logits_of(make_head(), ["good film"] * 2, ["0", "1"])
