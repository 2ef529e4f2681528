"""Held-out logits: each document's is of a head that was not fitted to it."""

import numpy as np
import pytest

import bundles
from fala.base.errors import DataError
from fala.model.losses import cross_entropy
from fala_export.fit.heads import HeadTrainingSet, fit_joint_head, left_out_logits

WORDS = bundles.WORDS[1:]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return bundles.write_word_vectors(tmp_path_factory.mktemp("left-out") / "w.fala").backbone()


def rows(count=90, seed=0):
    """Texts, and labels of which nine in ten depend on one word."""
    rng = np.random.default_rng(seed)
    documents = sorted({" ".join(rng.choice(WORDS, size=4)) for _ in range(count)})
    positive = [("good" in text) != (rng.random() < 0.1) for text in documents]
    return documents, [str(int(label)) for label in positive]


PENALTIES = [1e-3, 1e-4]


def flipped(labels, position):
    return [*labels[:position], "10"[int(labels[position])], *labels[position + 1 :]]


def test_a_documents_label_does_not_change_its_held_out_logit(backbone):
    documents, labels = rows()
    before = left_out_logits(HeadTrainingSet.of(backbone, documents, labels), PENALTIES)
    for position in (0, 17, 40):
        changed = flipped(labels, position)
        after = left_out_logits(HeadTrainingSet.of(backbone, documents, changed), PENALTIES)
        same = np.isclose(after[:, 0], before[:, 0], atol=1e-6)
        assert same[position]
        assert np.isclose(same.mean(), 1 / 3, atol=0.05)  # its third is left out together


def test_rows_of_one_document_are_left_out_together(backbone):
    documents, labels = rows()
    documents, labels = [*documents, documents[5]], [*labels, labels[5]]
    before = left_out_logits(HeadTrainingSet.of(backbone, documents, labels), PENALTIES)
    after = left_out_logits(HeadTrainingSet.of(backbone, documents, flipped(labels, 5)), PENALTIES)
    assert before[5] == before[-1]
    np.testing.assert_allclose(after[[5, -1]], before[[5, -1]], atol=1e-6)


def test_held_out_loss_exceeds_training_loss(backbone):
    documents, labels = rows(300)
    head, fit = fit_joint_head(HeadTrainingSet.of(backbone, documents, labels))
    shares = head.label_shares(labels)
    embeddings = dict(zip(documents, backbone.encode(documents), strict=True))
    fitted = head.vendor_model().logits(head.inputs(documents, embeddings), head.words(documents))
    left_out = left_out_logits(HeadTrainingSet.of(backbone, documents, labels), fit.penalties)
    chosen = left_out_logits(HeadTrainingSet.of(backbone, documents, labels))
    np.testing.assert_allclose(left_out, chosen, atol=1e-6)
    losses = [float(cross_entropy(shares, z).mean()) for z in (fitted, left_out)]
    assert losses[0] < losses[1] < np.log(2)
    assert losses[1] == pytest.approx(fit.loss, rel=0.02)


def test_left_out_logits_need_two_documents(backbone):
    with pytest.raises(DataError, match="two documents or more"):
        left_out_logits(HeadTrainingSet.of(backbone, ["good film"] * 2, ["0", "1"]), PENALTIES)
