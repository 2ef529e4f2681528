import numpy as np
import pytest

from bundles import DIMENSION, make_head, onnx_files, onnx_manifest, repacked
from fala import Bundle
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.bundle.prompts import prompt_state
from fala.bundle.writing import add_prompts, write_bundle, write_release
from fala.errors import BundleError, BundleFormatError, DataError, DimensionError

SHAPE = (3, 2, 2, 2, 5, DIMENSION // 2)


def make_prompts(shape=SHAPE, dtype=np.float16):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.fala"
    write_bundle(path, onnx_manifest(), onnx_files(), make_head())
    return Bundle.open(path)


@pytest.fixture
def prompted(plain, tmp_path):
    add_prompts(tmp_path / "prompted.fala", plain, make_prompts(dtype=np.float64), {"writers": 9})
    return Bundle.open(tmp_path / "prompted.fala")


def test_prompts_do_not_change_the_other_parts_of_a_release(plain, prompted, tmp_path):
    assert plain.prompts() is None
    np.testing.assert_array_equal(prompted.prompts(), make_prompts())
    assert prompted.prompts().dtype == np.float16
    assert prompted.manifest.details["prompts"] == {"count": 3, "length": 5, "writers": 9}
    assert prompted.backbone_digest == plain.backbone_digest
    assert prompted.head_digest == plain.head_digest
    assert prompted != plain
    fewer = make_prompts((1, *SHAPE[1:]))
    add_prompts(prompted.path, prompted, fewer, {})
    np.testing.assert_array_equal(Bundle.open(prompted.path).prompts(), fewer)
    # The prompts belong to the head that they were learned with.
    manifest = write_release(tmp_path / "other.fala", prompted, make_head(), {})
    assert not any(name.startswith(layout.PROMPTS) for name in manifest.files)
    assert "prompts" not in manifest.details
    assert Bundle.open(tmp_path / "other.fala").prompts() is None


@pytest.mark.parametrize(
    ("prompts", "error", "match"),
    [
        (make_prompts(SHAPE[1:]), BundleFormatError, "of shape"),
        (make_prompts((3, 2, 3, 2, 5, 4)), BundleFormatError, "of shape"),
        (make_prompts((9, 2, 2, 2, 5, 4)), BundleFormatError, "9 prompts of length 5"),
        (make_prompts((3, 2, 2, 2, 300, 4)), BundleFormatError, "3 prompts of length 300"),
        (make_prompts((3, 2, 2, 2, 0, 4)), BundleFormatError, "3 prompts of length 0"),
        (make_prompts((0, 2, 2, 2, 5, 4)), BundleFormatError, "0 prompts"),
        (make_prompts((3, 2, 2, 2, 5, 3)), DimensionError, "2 heads of 3 numbers"),
        (make_prompts((3, 0, 2, 2, 5, 4)), DimensionError, "0 layers"),
        (np.full(SHAPE, 1e6), BundleFormatError, "not finite"),
        (np.full(SHAPE, np.nan), BundleFormatError, "not finite"),
        ([1.0], DataError, "prompts is an ndarray"),
    ],
    ids=lambda value: None,
)
def test_add_prompts_rejects_wrong_prompts(plain, tmp_path, prompts, error, match):
    path = tmp_path / "bad.fala"
    with pytest.raises(error, match=match):
        add_prompts(path, plain, prompts, {})
    assert not path.exists()


def test_wrong_prompt_files_are_rejected(prompted, bad):
    name = layout.PROMPT_PREFIXES
    for data, match in (
        (array_bytes(make_prompts(dtype=np.float32)), "float32"),
        (array_bytes(make_prompts((4, 4))), "of shape"),
        (prompted.read(name)[:-2], "length is not that of its shape"),
        (b"prompts", "one to six dimensions"),
    ):
        with pytest.raises(BundleError, match=match):
            Bundle.open(bad(repacked(prompted.path, {name: data})))


def test_a_backbone_without_prompt_inputs_is_rejected(plain, prompted):
    """The tiny graph has no optional inputs; the head and all else of the bundle are fine."""
    assert plain.backbone().encode(["a text"]).shape == (1, DIMENSION)
    with pytest.raises(BundleFormatError, match=r"no optional input past_key_values\.0\.key"):
        prompted.backbone()


def test_a_prompt_is_a_state(prompted):
    state = prompt_state(prompted.prompts()[1])
    assert list(state.inputs) == [
        f"past_key_values.{layer}.{part}" for layer in range(2) for part in ("key", "value")
    ]
    value = state.inputs["past_key_values.1.value"]
    np.testing.assert_array_equal(value, make_prompts()[1, 1, 1][None].astype(np.float32))


def test_word_vectors_reject_prompts(tmp_path, release):
    path = tmp_path / "words.fala"
    shape = (1, 1, 2, 1, 1, DIMENSION)
    with pytest.raises(BundleFormatError, match="of kind word-vectors, which reads none"):
        add_prompts(path, release, make_prompts(shape), {})
