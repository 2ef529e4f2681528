"""The lexical view of a release, and further details of its head."""

from dataclasses import replace

import numpy as np
import pytest

from bundles import (
    DIMENSION,
    make_head,
    make_lexical,
    write_word_vector_release,
)
from checkout import SUPPORT
from fala.bundle.reading import Bundle
from fala.errors import BundleFormatError
from fala.model.heads import Head, Lexical
from fala.model.links import Labels
from fala.text.ngrams import BUCKETS, Lexicon
from fala_export import write_bundle, write_release
from fala_export.bundles import lexical_files, rounded

TEXTS = ["a good film", "", "an AWFUL film: I do n't love it"]


@pytest.mark.parametrize("labels", [("0", "1"), ("x", "y", "z")])
def test_a_head_with_words_is_read_as_written(tmp_path, labels):
    head = make_head(labels=labels, words=True)
    bundle = write_word_vector_release(tmp_path / "a.fala", head)
    assert bundle.head() == head
    inputs = np.zeros((3, DIMENSION), np.float32)
    ours, theirs = (
        each.vendor_model().logits(inputs, each.words(TEXTS)) for each in (head, bundle.head())
    )
    np.testing.assert_array_equal(ours, theirs)
    assert np.ptp(ours) > 0


def test_a_matcher_with_a_candidate_part_is_read_as_written(tmp_path):
    weight = np.random.default_rng(5).normal(size=(1, 2 * DIMENSION)).astype(np.float32)
    head = Head("matching", ("0", "1"), weight, np.ones(1, np.float32), dimension=DIMENSION)
    bundle = write_word_vector_release(tmp_path / "a.fala", head)
    assert bundle.head() == head
    assert bundle.head().parts == (slice(0, DIMENSION), slice(DIMENSION, 2 * DIMENSION))


def test_rounding_is_idempotent():
    rng = np.random.default_rng(0)
    for scale in (1e-9, 0.01, 1.0, 12345.678):
        weight = (scale * rng.normal(size=(2, BUCKETS))).astype(np.float32)
        weight[1, :] *= 1e-3
        view = Lexical(Lexicon(rng.gamma(2.0, size=BUCKETS)), weight)
        once = rounded(view)
        assert rounded(once) == once != view
        assert lexical_files(once) == lexical_files(view)
        step = np.abs(weight).max(axis=1, keepdims=True) / 127
        assert (np.abs(once.weight - weight) <= 0.501 * step).all()
        assert (
            np.abs(once.lexicon.idf - view.lexicon.idf).max()
            <= 0.501 * once.lexicon.idf.max() / 255
        )
        assert np.abs(once.weight).max() == pytest.approx(np.abs(weight).max(), rel=1e-4)


def test_words_change_the_head_digest_only(tmp_path, with_words):
    plain = write_word_vector_release(tmp_path / "plain.fala", make_head())
    assert with_words.backbone_digest == plain.backbone_digest
    assert with_words.head_digest != plain.head_digest
    second = make_head(words=True)
    second = Head(
        "classification", ("0", "1"), second.weight, second.bias, lexical=make_lexical(seed=4)
    )
    assert (
        write_word_vector_release(tmp_path / "b.fala", second).head_digest != with_words.head_digest
    )


def test_a_new_head_replaces_the_earlier_words(tmp_path, with_words):
    noted = write_release(
        tmp_path / "a.fala", with_words, with_words.head(), {"scales": [0.3, 1.0, 1.0]}
    )
    assert noted.details["scales"] == [0.3, 1.0, 1.0]
    write_release(tmp_path / "b.fala", Bundle.open(tmp_path / "a.fala"), make_head(), {})
    bundle = Bundle.open(tmp_path / "b.fala")
    assert bundle.head() == make_head()
    assert not [name for name in bundle.manifest.files if name.startswith("lexical/")]
    assert "scales" not in bundle.manifest.details


def test_words_of_this_format_version_open():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "words.fala")
    head = bundle.head()
    assert (head.task, head.labels) == ("classification", ("0", "1"))
    np.testing.assert_array_equal(head.weight, [[1, -2]])
    weight, idf = head.lexical.weight, head.lexical.lexicon.idf
    np.testing.assert_array_equal(weight[0, [0, 1, 65535]], [0, 0.5, -63.5])
    assert np.count_nonzero(weight) == 2
    np.testing.assert_array_equal(idf[[0, 1, 65535]], [63.75, 0.25, 0.5])
    # Devices keep logits under it.
    assert bundle.head_digest.startswith("713e0e6811aa27d8")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_scales_are_one_per_block_and_the_slope(tmp_path, count):
    release = tmp_path / "release.fala"
    write_word_vector_release(release, make_head(words=True))
    bundle = Bundle.open(release)
    assert bundle.scales is None
    head = bundle.head()
    write_release(release, bundle, head, {"scales": [1.0, 3, 0.5]})
    assert Bundle.open(release).scales == (1.0, 3.0, 0.5)
    with pytest.raises(BundleFormatError, match=f"{count} scales? for a head whose"):
        write_release(release, bundle, head, {"scales": [1.0] * count})
    for wrong in ([-1, 1, 1], "1, 2, 3", [1, 2, "3"], [1, 2, True]):
        with pytest.raises(BundleFormatError, match="scales"):
            write_release(release, bundle, head, {"scales": wrong})


def test_a_release_stores_its_heads_public_logits(tmp_path):
    path, plain = tmp_path / "release.fala", make_head()
    link = Labels(((-2.5, 0.25, 1.0),))
    with_logits = Head(plain.task, plain.labels, plain.weight, plain.bias, link=link)
    write_word_vector_release(path, with_logits)
    bundle = Bundle.open(path)
    assert bundle.manifest.details["public_logits"] == [[-2.5, 0.25, 1.0]]
    head = bundle.head()
    assert head == plain and head.link.public_logits == link.public_logits
    # With the labels in the other order the logits change sign.
    assert head.in_order(["1", "0"]).link.public_logits == ((-1.0, -0.25, 2.5),)
    write_release(path, bundle, plain, {})  # the plain head has no public logits
    assert Bundle.open(path).head().link.public_logits == ()
    details = bundle.manifest.details
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    wrongs = ([1, 2], [[]], [[2, 1]], [[1, "x"]], [[1], [2]], [[float(n) for n in range(65)]], {})
    for wrong in wrongs:
        manifest = replace(bundle.manifest, details={**details, "public_logits": wrong})
        with pytest.raises(BundleFormatError, match="public logits"):
            write_bundle(tmp_path / "wrong.fala", manifest, files)
