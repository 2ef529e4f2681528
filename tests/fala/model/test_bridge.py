"""Bridges are affine maps, and files in a bundle."""

import numpy as np
import pytest

import bundles
from fala import Bundle, BundleFormatError
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from fala.model.bridge import Bridge
from fala_export import add_bridge, write_release

D = bundles.DIMENSION
SOURCE = "a" * 64


def make_bridge(source=SOURCE, d_old=5, d_new=D, seed=0):
    random = np.random.default_rng(seed)
    parts = random.normal(size=(d_old, d_new)), random.normal(size=d_new), random.random(d_new)
    return Bridge(source, *(part.astype(np.float32) for part in parts))


@pytest.fixture
def release(tmp_path):
    return bundles.write_onnx_release(tmp_path / "release.fala")


# The map


def test_map_is_affine_and_float32():
    bridge = make_bridge()
    old = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    mapped = bridge.map(old)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped, old @ bridge.matrix + bridge.offset, rtol=1e-6)
    assert bridge.map(old[:0]).shape == (0, D)


@pytest.mark.parametrize("shape", [(3, 4), (5,), (3, 5, 1)])
def test_embeddings_of_another_backbone_are_rejected(shape):
    with pytest.raises(BundleFormatError, match=r"\(n, 5\) expected"):
        make_bridge().map(np.zeros(shape, np.float32))


def test_a_chain_composes_the_two_maps():
    first, second = make_bridge(d_new=6), make_bridge("b" * 64, d_old=6, d_new=4, seed=1)
    chain = first.then(second)
    assert chain.source == first.source
    old = np.random.default_rng(2).normal(size=(9, 5)).astype(np.float32)
    np.testing.assert_allclose(chain.map(old), second.map(first.map(old)), atol=1e-5)
    assert chain.matrix.dtype == chain.offset.dtype == np.float32


def test_a_chains_variance_includes_both_residuals():
    # Texts for which each bridge is off by noise of its own variance.
    first, second = make_bridge(d_new=6), make_bridge("b" * 64, d_old=6, d_new=4, seed=1)
    random = np.random.default_rng(3)
    old = random.normal(size=(100_000, 5)).astype(np.float32)
    middle = first.map(old) + np.sqrt(first.variance) * random.normal(size=(len(old), 6))
    new = second.map(middle.astype(np.float32))
    new = new + np.sqrt(second.variance) * random.normal(size=new.shape)
    chain = first.then(second)
    np.testing.assert_allclose(np.var(new - chain.map(old), axis=0), chain.variance, rtol=0.03)


def test_a_chain_of_other_dimensions_is_rejected():
    with pytest.raises(BundleFormatError, match="from 4 dimensions cannot follow one to 8"):
        make_bridge().then(make_bridge(d_old=4))


# In a bundle


def test_a_release_keeps_a_bridge_of_each_source(release, tmp_path):
    other = "b" * 64
    files = {*bundles.entries_of(release.path)}
    first, second = make_bridge(d_old=4), make_bridge(other, d_old=3, seed=1)
    for texts, bridge in enumerate([make_bridge(), second, first]):
        add_bridge(release.path, Bundle.open(release.path), bridge, {"texts": texts})
    assert {name for name, _ in files - {*bundles.entries_of(release.path)}} == {layout.MANIFEST}
    # Another head keeps them, and the embeddings of devices stay valid.
    head = bundles.make_head(labels=("a", "b", "c"))
    write_release(tmp_path / "other.fala", Bundle.open(release.path), head, {"head": "another"})
    for bundle in (Bundle.open(release.path), Bundle.open(tmp_path / "other.fala")):
        assert bundle.manifest.details["bridges"] == {SOURCE: {"texts": 2}, other: {"texts": 1}}
        assert bundle.backbone_digest == release.backbone_digest
        assert set(bundle.bridges()) == {SOURCE, other}
        for bridge in (first, second):
            loaded = bundle.bridges()[bridge.source]
            assert loaded.source == bridge.source
            for name in ("matrix", "offset", "variance"):
                expected = getattr(bridge, name).astype(np.float16)
                np.testing.assert_array_equal(getattr(loaded, name), expected)
                assert getattr(loaded, name).dtype == np.float32
    assert Bundle.open(release.path).head_digest == release.head_digest


def test_wrong_bridges_are_not_written(release):
    before = release.path.read_bytes()
    large = make_bridge()
    large.matrix[0, 0] = 1e6
    for bridge, error, match in [
        (make_bridge(d_new=D + 1), BundleFormatError, "leads to 9 dimensions, the backbone has 8"),
        (large, BundleFormatError, "not finite"),
    ]:
        with pytest.raises(error, match=match):
            add_bridge(release.path, release, bridge, {})
    assert release.path.read_bytes() == before


FOLDER = f"{layout.BRIDGES}{SOURCE}"
MATRIX, OFFSET, VARIANCE = (f"{FOLDER}/{name}" for name in layout.BRIDGE_FILES)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "changes",
    [
        {MATRIX: np.zeros(D)},
        {MATRIX: np.full((5, D), np.inf)},
        {MATRIX: np.full((5, D), 1e300)},
        {OFFSET: np.zeros(D + 1)},
        {OFFSET: None},
        {VARIANCE: None},
        {VARIANCE: np.full(D, -1.0)},
        {MATRIX: np.zeros((5, 3)), OFFSET: np.zeros(3), VARIANCE: np.zeros(3)},
    ],
)
def test_wrong_bridge_files_are_rejected(release, tmp_path, changes):
    add_bridge(release.path, release, make_bridge(), {})
    bad = tmp_path / "bad.fala"
    files = {name: None if data is None else array_bytes(data) for name, data in changes.items()}
    bad.write_bytes(bundles.repacked(release.path, files))
    bundles.refused(bad, BundleFormatError, "bridge")
