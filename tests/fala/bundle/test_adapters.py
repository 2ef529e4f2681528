"""An adapter's bundle holds its weights, and belongs to one backbone."""

import json

import numpy as np
import pytest

from bundles import make_head, refused, repacked
from fala import BundleFormatError, BundleMismatchError, Device
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from tasks import FORM, make_inputs, write_task


def test_an_adapter_is_read_as_it_was_stored(task, encoder):
    adapter, inputs = task.adapter(), make_inputs()
    assert set(adapter.inputs) == set(inputs)
    for name, array in adapter.inputs.items():
        assert (array.dtype, array.shape) == (np.float32, inputs[name].shape)
        matrix = name.endswith(layout.ADAPTER_MATRICES)
        steps = np.abs(inputs[name]).max(axis=0) / 127 if matrix else np.zeros(1)
        assert (np.abs(array - inputs[name]) <= 0.5001 * steps).all(), name
    assert task.base == encoder.backbone_digest
    assert task.head() == make_head()
    assert task.manifest.name == "paraphrase"
    assert "adapter for" in repr(task)


def test_digests_identify_adapters(tmp_path, task, encoder):
    same = write_task(tmp_path / "same.fala", encoder, name="other", head=make_head(seed=9))
    other = write_task(tmp_path / "other.fala", encoder, seed=5)
    assert task.backbone_digest == same.backbone_digest != other.backbone_digest
    assert task.backbone_digest != encoder.backbone_digest


def test_an_adapter_belongs_to_its_base_and_is_no_release(task, encoder, release, tmp_path):
    task.check_base(encoder)
    for call, match in (
        (lambda: task.check_base(release), "an adapter for the backbone"),
        (lambda: encoder.check_base(encoder), "not an adapter"),
        (task.backbone, "no backbone of its own"),
        (encoder.adapter, "a backbone, not an adapter"),
        (
            lambda: Device.create(tmp_path / "new", task.path),
            r"an adapter for the backbone .* not a release",
        ),
    ):
        with pytest.raises(BundleMismatchError, match=match):
            call()


DOWN, UP = layout.adapter_file("down.weight"), layout.adapter_file("up.weight")
STEPS = layout.adapter_file("down.weight", scales=True)
NORM, BIAS = layout.adapter_file("norm.weight"), layout.adapter_file("down.bias")


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        (DOWN, lambda one: one[:-1], r"down\.weight\.npy: int8 of shape \(32, 3\) expected"),
        (DOWN, lambda one: one.astype(np.float32), "int8 of shape"),
        (UP, lambda one: one[:, :-1], r"up\.weight\.npy: int8 of shape \(12, 8\) expected"),
        (STEPS, lambda one: -one, "a step is negative"),
        (STEPS, lambda one: one * np.float32(1e38) * 100, "NaN or infinity|too large"),
        (NORM, lambda one: one * np.nan, "NaN or infinity"),
        (NORM, lambda one: one[:3], "an adapter of 3 sites"),
        (NORM, lambda one: one[:0], "an adapter of 0 sites"),
        (BIAS, lambda one: one[:, :0], "a bottleneck of 0"),
        (BIAS, lambda one: np.zeros((4, 257), np.float32), "a bottleneck of 257"),
        (BIAS, lambda one: one.ravel(), "sites"),
    ],
    ids=range(11),
)
def test_wrong_adapter_arrays_are_rejected(task, bad, name, change, match):
    with np.errstate(over="ignore"):
        changed = array_bytes(change(read_array(task.read(name))))
    refused(bad(repacked(task.path, {name: changed})), BundleFormatError, match)


@pytest.mark.parametrize(
    ("config", "fields", "match"),
    [
        (b"{", {}, "not JSON"),
        (b"[]", {}, "has no config"),
        (b'{"config": 3}', {}, "has no config"),
        (b"[" * 5000, {}, "not JSON"),
        ({"non_linearity": "relu"}, {}, "non_linearity is 'r"),
        ({"is_parallel": True}, {}, "is_parallel is True"),
        ({"scaling": True}, {}, "scaling is True"),
        ({"mh_adapter": None}, {}, "mh_adapter is None"),
        ({}, {"details": {}}, "base is no digest"),
        ({}, {"details": {"base": "x" * 64}}, "base is no digest"),
        ({}, {"task": None, "labels": []}, "base is no digest, or it has no head"),
    ],
    ids=range(11),
)
def test_wrong_adapter_settings_are_rejected(task, bad, config, fields, match):
    if isinstance(config, dict):
        config = json.dumps({"config": {**FORM, **config}}).encode()
    data = repacked(task.path, {layout.ADAPTER_CONFIG: config}, **fields)
    refused(bad(data), BundleFormatError, match)
