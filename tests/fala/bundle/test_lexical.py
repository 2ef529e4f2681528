"""A bundle holds the lexical view of a release, and further details of its head."""

import json

import numpy as np
import pytest

from bundles import make_head
from checkout import SUPPORT
from fala import Bundle, BundleFormatError
from fala.bundle.writing import lexical_files, rounded
from fala.model.heads import Lexical
from fala.model.scales import Scales, scales_at
from fala.text.ngrams import BUCKETS
from fala_export import write_release


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


def test_scales_are_a_table_by_number_of_labels(tmp_path, with_words):
    release = tmp_path / "release.fala"
    assert with_words.scales == ()
    table = [row(10, mixing=0.5), row(50, blocks=[2, 30.0]), row(51)]
    write_release(release, with_words, with_words.head(), {"scales": table})
    scales = Bundle.open(release).scales
    assert scales[1] == Scales((2.0, 30.0), slope=0.0, bias=0.5, mixing=1.0, labels=50)
    assert [each.to_details() for each in scales] == table
    at = [scales_at(scales, labels).labels for labels in (0, 9, 10, 49, 50, 51, 10_000)]
    assert at == [10, 10, 10, 10, 50, 51, 51]


def test_scales_of_another_number_of_blocks_are_rejected(tmp_path, with_words):
    table = [row(blocks=[1.0] * 3)]
    with pytest.raises(BundleFormatError, match="scales of 3 blocks for a head whose"):
        write_release(tmp_path / "b.fala", with_words, with_words.head(), {"scales": table})


@pytest.mark.parametrize(
    "wrong",
    [
        "1, 2, 3", {}, None, 3, [1.0, 0.3, 1.0], [[]], [row(), None],
        json.loads("[" * 90 + "]" * 90),
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
