"""A hostile vendor's bundle is refused by the right error, and the active model stays.

Each kind has matching digests, and is refused by another check. What a check refuses is tested in
the room where the check stands, such as ``audit``.
"""

import json

import numpy as np
import pytest

pytest.importorskip("onnx")

import bundles
from bundles import repacked
from fala import Bundle, BundleError, Device
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes
from hostile_graphs import write_hostile_graph

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


def with_escapes(vendor, release):
    """Write a manifest that a terminal would act on."""
    return repacked(release, name="good\x1b]0;owned\x07\x1b[2J")


def with_random_tokens(vendor, release):
    tokenizer = json.loads(Bundle.open(release).read(layout.TOKENIZER))
    tokenizer["model"]["dropout"] = 0.5
    return repacked(release, {layout.TOKENIZER: json.dumps(tokenizer).encode()})


def with_large_tensor(vendor, release):
    model = bundles.onnx_model()
    node = model.graph.node.add(op_type="Expand", output=["huge"])
    node.input[:] = ["count", "size"]
    size = model.graph.initializer.add(name="size", data_type=7, dims=[2])
    size.int64_data[:] = [1 << 14, 1 << 14]
    return repacked(release, {layout.ONNX_MODEL: model.SerializeToString()})


def with_short_table(vendor, release):
    """Write a graph without vectors of the last tokens of its vocabulary."""
    model = bundles.onnx_model(bundles.WORDS[:-9])
    return repacked(release, {layout.ONNX_MODEL: model.SerializeToString()})


def with_short_bridge(vendor, release):
    """Write a bridge from fewer dimensions than the device's backbone has."""
    digest, width = Bundle.open(vendor / "old.fala").backbone_digest, bundles.DIMENSION
    parts = (np.full((width - 1, width), 0.1), np.zeros(width), np.ones(width))
    names = [f"{layout.BRIDGES}{digest}/{name}" for name in layout.BRIDGE_FILES]
    files = [array_bytes(part.astype(np.float16)) for part in parts]
    return repacked(release, dict(zip(names, files, strict=True)))


def silent_on_blanks(vendor, release):
    return write_hostile_graph("silent on blanks", release, vendor / "blanks.fala").read_bytes()


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (with_escapes, "the manifest cannot be read"),
        (with_random_tokens, "its tokens are random"),
        (with_large_tensor, "it makes a tensor of more than"),
        (with_short_table, "the model fails"),
        (silent_on_blanks, "an embedding with NaN"),
        (with_short_bridge, "its bridge starts from 7 dimensions"),
    ],
)
def test_a_hostile_bundle_changes_nothing(write, match, vendor, device, tmp_path):
    path = tmp_path / "x.fala"
    path.write_bytes(write(vendor, vendor / "new.fala"))
    before, name = device.predict_proba(["", *TEXTS]), device.status().release
    with pytest.raises(BundleError, match=match) as caught:
        device.replace(path)
    assert str(caught.value).isprintable()
    assert (device.status().release, device.status().can_roll_back) == (name, False)
    np.testing.assert_array_equal(device.predict_proba(["", *TEXTS]), before)
    # A new device does not read bridges; all others are rejected here, too.
    if write is not with_short_bridge:
        with pytest.raises(BundleError, match=match):
            Device.create(tmp_path / "made", path)
        assert not (tmp_path / "made").exists()
