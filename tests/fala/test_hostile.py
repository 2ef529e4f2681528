"""A hostile vendor's bundle is refused by the right error, and the active model stays."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import bundles
from fala import BundleError, Device
from hostile_bundles import KINDS, write_hostile
from hostile_graphs import GRAPHS, write_hostile_graph

pytestmark = pytest.mark.slow

TEXTS = ["a good film", "this is bad", "i love it", "i hate it"]


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vendor")
    bundles.write_word_vector_release(folder / "old.fala")
    bundles.write_onnx_release(folder / "new.fala")
    return folder


@pytest.fixture(scope="module")
def device(vendor):
    with Device.create(vendor / "device", vendor / "old.fala") as device:
        device.learn(TEXTS, ["1", "0", "1", "0"])
        yield device


@pytest.mark.parametrize("kind", sorted({*KINDS, *GRAPHS}))
def test_a_hostile_bundle_changes_nothing(kind, vendor, device, tmp_path):
    release, path = vendor / "new.fala", tmp_path / "x.fala"
    if kind in GRAPHS:
        write_hostile_graph(kind, release, path)
    else:
        write_hostile(kind, release, path, earlier=vendor / "old.fala")
    before, name = device.predict_proba(["", *TEXTS]), device.status().release
    with pytest.raises(BundleError) as caught:
        device.replace(path)
    assert str(caught.value).isprintable()
    assert (device.status().release, device.status().can_roll_back) == (name, False)
    np.testing.assert_array_equal(device.predict_proba(["", *TEXTS]), before)
    # A new device does not read bridges; all others are rejected here, too.
    if not kind.startswith("bridge too"):
        with pytest.raises(BundleError):
            Device.create(tmp_path / "made", path)
        assert not (tmp_path / "made").exists()
