"""Cross-fitted logits: a release's logits of rows that its head did not train on."""

import numpy as np
import pytest

from bundles import make_head, write_word_vectors
from fala import Bundle, DataError
from fala.base.examples import unique_texts
from fala.cli.progress_bars import progress
from fala_export import write_release
from fala_export.fit.heads import HeadTrainingSet, fit_head, left_out_logits
from fala_export.fit.left_out import cross_fitted_logits
from public_people import FILMS

PENALTIES = [1e-3, 1e-4]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return write_word_vectors(tmp_path_factory.mktemp("honest") / "backbone.fala")


@pytest.fixture(scope="module")
def embeddings(backbone):
    texts = unique_texts(FILMS)
    return dict(zip(texts, backbone.backbone().encode(texts), strict=True))


def labels_of(seed=0):
    rng = np.random.default_rng(seed)
    return [str(int(("good" in text) != (rng.random() < 0.2))) for text in FILMS]


def logits_of(path, backbone, head, labels, embeddings, details=None):
    write_release(path, backbone, head, details or {})
    return cross_fitted_logits(Bundle.open(path), head, FILMS, labels, embeddings, progress)


def head_logits(head, embeddings):
    return head.vendor_model().logits(head.inputs(FILMS, embeddings), head.words(FILMS))


def test_a_plain_heads_cross_fitted_logit_ignores_its_row(tmp_path, backbone, embeddings):
    labels = labels_of()
    head = fit_head(backbone.backbone(), FILMS, labels, embeddings=embeddings, lexical=False)
    before = logits_of(tmp_path / "plain.fala", backbone, head, labels, embeddings)
    changed = [*labels[:7], "10"[int(labels[7])], *labels[8:]]
    after = logits_of(tmp_path / "plain.fala", backbone, head, changed, embeddings)
    same = np.isclose(before, after, rtol=0, atol=1e-9)[:, 0]
    assert same[7] and same.mean() == pytest.approx(1 / 3, abs=0.02)
    # Three heads on two thirds of the rows are close to the head.
    assert np.corrcoef(before[:, 0], head_logits(head, embeddings)[:, 0])[0, 1] > 0.8


def test_the_penalties_of_the_release_are_used(tmp_path, backbone, embeddings, monkeypatch):
    labels = labels_of()
    head = make_head(words=True)
    encoder = backbone.backbone()
    public = HeadTrainingSet.of(encoder, FILMS, labels, embeddings=embeddings)
    expected = left_out_logits(public, PENALTIES)
    noted = {"training": {"words": {"penalties": PENALTIES}}}
    logits = logits_of(tmp_path / "noted.fala", backbone, head, labels, embeddings, noted)
    np.testing.assert_array_equal(logits, expected)
    chosen = left_out_logits(public)
    assert np.abs(chosen - expected).max() > 1e-3
    for number, penalties in enumerate((None, "ten", [1e-3], [0.0, 1.0], [1, None])):
        wrong = {"training": {"words": {"penalties": penalties}}}
        path = tmp_path / f"{number}.fala"
        logits = logits_of(path, backbone, head, labels, embeddings, wrong)
        np.testing.assert_array_equal(logits, chosen)


def test_a_trained_backbone_uses_its_own_logits(tmp_path, backbone, embeddings):
    head = make_head(words=True)
    noted = {"training": {"history": {"steps": 1}, "words": {"penalties": PENALTIES}}}
    logits = logits_of(tmp_path / "trained.fala", backbone, head, labels_of(), embeddings, noted)
    np.testing.assert_array_equal(logits, head_logits(head, embeddings))


def test_cross_fitting_requires_two_documents(tmp_path, backbone, embeddings):
    path = tmp_path / "one.fala"
    write_release(path, backbone, make_head(), {})
    with pytest.raises(DataError, match="two documents or more"):
        cross_fitted_logits(
            Bundle.open(path), make_head(), FILMS[:1] * 2, ["0", "1"], embeddings, progress
        )
