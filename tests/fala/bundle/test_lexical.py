"""A bundle holds the lexical view of a release, and further details of its head."""

import numpy as np
import pytest

from bundles import (
    DIMENSION,
    make_head,
    write_word_vector_release,
)
from checkout import SUPPORT
from fala import Bundle, BundleFormatError
from fala.bundle.writing import lexical_files, rounded
from fala.model.heads import Head, Lexical
from fala.model.scales import Scales, scales_at
from fala.text.ngrams import BUCKETS
from fala_export import write_release

TEXTS = ["a good film", "", "an AWFUL film: I do n't love it"]


@pytest.mark.parametrize("labels", [("0", "1"), ("x", "y", "z")])
def test_a_head_with_words_is_read_as_written(tmp_path, labels):
    head = make_head(labels=labels, words=True)
    bundle = write_word_vector_release(tmp_path / "a.fala", head)
    assert bundle.head() == head
    inputs = np.zeros((3, DIMENSION), np.float32)
    ours, theirs = (
        each.vendor_model().logits(inputs, each.ngrams(TEXTS)) for each in (head, bundle.head())
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
        view = Lexical(rng.gamma(2.0, size=BUCKETS), weight)
        once = rounded(view)
        assert rounded(once) == once != view
        assert lexical_files(once) == lexical_files(view)
        step = np.abs(weight).max(axis=1, keepdims=True) / 127
        assert (np.abs(once.weight - weight) <= 0.501 * step).all()
        assert np.abs(once.idf - view.idf).max() <= 0.501 * once.idf.max() / 255
        assert np.abs(once.weight).max() == pytest.approx(np.abs(weight).max(), rel=1e-4)


def test_words_change_the_head_digest_only(tmp_path, with_words):
    plain = write_word_vector_release(tmp_path / "plain.fala", make_head())
    assert with_words.backbone_digest == plain.backbone_digest
    assert with_words.head_digest != plain.head_digest


def test_a_new_head_replaces_the_earlier_words(tmp_path, with_words):
    notes = {"scales": [row()], "scales_from": {"annotators": 20, "of": 30}}
    noted = write_release(tmp_path / "a.fala", with_words, with_words.head(), notes)
    assert noted.details.items() >= notes.items()
    write_release(tmp_path / "b.fala", Bundle.open(tmp_path / "a.fala"), make_head(), {})
    bundle = Bundle.open(tmp_path / "b.fala")
    assert bundle.head() == make_head()
    assert not [name for name in bundle.manifest.files if name.startswith("lexical/")]
    assert not notes.keys() & bundle.manifest.details.keys()


def test_words_of_this_format_version_open():
    # Never written again, as long as the format version stays.
    bundle = Bundle.open(SUPPORT / "data" / "words.fala")
    head = bundle.head()
    assert (head.task, head.labels) == ("classification", ("0", "1"))
    np.testing.assert_array_equal(head.weight, [[1, -2]])
    weight, idf = head.lexical.weight, head.lexical.idf
    np.testing.assert_array_equal(weight[0, [0, 1, 65535]], [0, 0.5, -63.5])
    assert np.count_nonzero(weight) == 2
    np.testing.assert_array_equal(idf[[0, 1, 65535]], [63.75, 0.25, 0.5])
    # Devices keep logits under it.
    assert bundle.head_digest.startswith("713e0e6811aa27d8")


def row(labels=10, blocks=(1.0, 0.3), **changes):
    """Return a row of a release's table of scales, for a head of words."""
    row = {"labels": labels, "blocks": list(blocks), "slope": 0, "bias": 0.5, "mixing": 1}
    return {**row, **changes}


def test_scales_are_a_table_by_number_of_labels(tmp_path):
    release = tmp_path / "release.fala"
    bundle = write_word_vector_release(release, make_head(words=True))
    assert bundle.scales == ()
    table = [row(10, mixing=0.5), row(50, blocks=[2, 30.0]), row(51)]
    write_release(release, bundle, bundle.head(), {"scales": table})
    scales = Bundle.open(release).scales
    assert scales[1] == Scales((2.0, 30.0), slope=0.0, bias=0.5, mixing=1.0, labels=50)
    assert [each.to_details() for each in scales] == table
    at = [scales_at(scales, labels).labels for labels in (0, 9, 10, 49, 50, 51, 10_000)]
    assert at == [10, 10, 10, 10, 50, 51, 51]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_scales_of_another_number_of_blocks_are_rejected(tmp_path, count):
    bundle = write_word_vector_release(tmp_path / "a.fala", make_head(words=True))
    table = [row(blocks=[1.0] * count)]
    with pytest.raises(BundleFormatError, match=f"scales of {count} blocks? for a head whose"):
        write_release(tmp_path / "b.fala", bundle, bundle.head(), {"scales": table})


def nested(depth):
    """Return a list within a list, and so on, to a depth."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "wrong",
    [
        "1, 2, 3", {}, None, 3, [1.0, 0.3, 1.0], [[]], [row(), None], nested(90),
        [row(50), row(10)], [row(10), row(10)],  # not by rising number of labels
        [row(10), row(20, blocks=[1.0])],  # another number of blocks
        [row(-1)], [row(True)], [row("10")], [row(10.0)], [row(10**30)], [row(2**31)],
        [row(blocks=[-1, 1])], [row(blocks=["1", 1])], [row(blocks=[True, 1])],
        [row(blocks=[10_001, 1])], [row(blocks=[[1], 1])], [row(blocks="11")],
        [row(blocks={"0": 1})], [row(slope=-0.1)], [row(slope=None)], [row(bias=10**400)],
        [row(bias=False)], [row(mixing=1.1)], [row(mixing=-0.1)], [row(mixing=True)],
        [row(other=1)], [{}], [{key: value for key, value in row().items() if key != "bias"}],
    ],
    ids=lambda wrong: repr(wrong)[:60],
)  # fmt: skip
def test_wrong_scales_are_rejected(tmp_path, with_words, wrong):
    with pytest.raises(BundleFormatError, match=r"the scales are not a table|is not a number"):
        write_release(tmp_path / "b.fala", with_words, with_words.head(), {"scales": wrong})
