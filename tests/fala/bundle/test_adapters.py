import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles import DIMENSION, entries_of, make_head, repacked
from fala import (
    Bridge,
    Bundle,
    BundleError,
    BundleFilesError,
    BundleFormatError,
    BundleMismatchError,
    Device,
    DimensionError,
    PopulationPrior,
    add_bridge,
    add_prior,
)
from fala.bundle import format as layout
from fala.bundle.arrays import array_bytes, read_array
from fala.release.adapters import stored_inputs, write_adapter
from tasks import FORM, make_inputs, write_task


@pytest.fixture(scope="module")
def task(tmp_path_factory, encoder):
    return write_task(tmp_path_factory.mktemp("task") / "task.fala", encoder)


def test_an_adapter_is_read_as_it_was_stored(task, encoder):
    state, inputs = task.state(), make_inputs()
    assert set(state.inputs) == set(inputs)
    for name, array in state.inputs.items():
        assert (array.dtype, array.shape) == (np.float32, inputs[name].shape)
        matrix = name.endswith(layout.ADAPTER_MATRICES)
        steps = np.abs(inputs[name]).max(axis=0) / 127 if matrix else np.zeros(1)
        assert (np.abs(array - inputs[name]) <= 0.5001 * steps).all(), name
    assert task.base == encoder.backbone_digest
    assert task.head() == make_head()
    assert task.manifest.name == "paraphrase"
    assert "adapter for" in repr(task)


def test_what_was_rounded_once_stays(tmp_path, task, encoder):
    inputs = task.state().inputs
    for name, array in stored_inputs(inputs, DIMENSION).items():
        np.testing.assert_allclose(array, inputs[name], rtol=1e-6)


def test_equal_adapters_have_equal_digests_and_others_do_not(tmp_path, task, encoder):
    same = write_task(tmp_path / "same.fala", encoder, name="other", head=make_head(seed=9))
    other = write_task(tmp_path / "other.fala", encoder, seed=5)
    digests = [one.state().digest for one in (task, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert task.backbone_digest == same.backbone_digest != other.backbone_digest
    assert task.backbone_digest != encoder.backbone_digest


def test_an_adapter_is_checked_against_its_base(task, encoder, release):
    task.check_base(encoder)
    with pytest.raises(BundleMismatchError, match="an adapter for the backbone"):
        task.check_base(release)
    with pytest.raises(BundleMismatchError, match="no adapter"):
        encoder.check_base(encoder)


def test_an_adapter_is_no_release(task, encoder, tmp_path):
    with pytest.raises(BundleMismatchError, match=r"an adapter for the backbone .* no release"):
        Device.create(tmp_path / "new", task.path)
    with Device.create(tmp_path / "device", encoder.path) as device:
        with pytest.raises(BundleMismatchError, match="no release"):
            device.replace(task.path)
        assert device.name == encoder.manifest.name
    with pytest.raises(BundleMismatchError, match="no backbone of its own"):
        task.backbone()
    with pytest.raises(BundleMismatchError, match="no adapter, but a backbone"):
        encoder.state()


def test_an_adapter_may_have_a_prior_and_bridges(task, encoder, tmp_path):
    path = tmp_path / "more.fala"
    path.write_bytes(task.path.read_bytes())
    size = DIMENSION + 1
    prior = PopulationPrior(
        np.zeros(size, np.float32), np.ones(size, np.float32), np.zeros((1, size), np.float32)
    )
    bridge = Bridge(
        "a" * 64,
        np.eye(DIMENSION, dtype=np.float32),
        np.zeros(DIMENSION, np.float32),
        np.ones(DIMENSION, np.float32),
    )
    add_prior(path, Bundle.open(path), prior, {"from": "nobody"})
    add_bridge(path, Bundle.open(path), bridge, {})
    bundle = Bundle.open(path)
    assert bundle.prior().dimension == DIMENSION
    assert set(bundle.bridges()) == {"a" * 64}
    assert bundle.state().digest == task.state().digest
    bundle.check_base(encoder)


def array(task, name):
    return read_array(task.read(name))


DOWN, UP = layout.adapter_file("down.weight"), layout.adapter_file("up.weight")
STEPS = layout.adapter_file("down.weight", scales=True)
NORM, BIAS = layout.adapter_file("norm.weight"), layout.adapter_file("down.bias")


@pytest.mark.parametrize(
    ("name", "change", "message"),
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
def test_arrays_that_do_not_fit_are_refused(task, tmp_path, name, change, message):
    path = tmp_path / "bad.fala"
    with np.errstate(over="ignore"):
        path.write_bytes(repacked(task.path, {name: array_bytes(change(array(task, name)))}))
    with pytest.raises(BundleFormatError, match=message) as caught:
        Bundle.open(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "has no config"),
        (b'{"config": 3}', "has no config"),
        (b"[" * 5000, "not JSON"),
        (json.dumps({"config": {**FORM, "non_linearity": "relu"}}).encode(), "non_linearity is 'r"),
        (json.dumps({"config": {**FORM, "is_parallel": True}}).encode(), "is_parallel is True"),
        (json.dumps({"config": {**FORM, "scaling": True}}).encode(), "scaling is True"),
        (json.dumps({"config": {}}).encode(), "mh_adapter is None"),
    ],
    ids=range(8),
)
def test_configurations_of_other_adapters_are_refused(task, tmp_path, config, message):
    path = tmp_path / "bad.fala"
    path.write_bytes(repacked(task.path, {layout.ADAPTER_CONFIG: config}))
    with pytest.raises(BundleFormatError, match=message):
        Bundle.open(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"details": {}}, "base is no digest"),
        ({"details": {"base": "x" * 64}}, "base is no digest"),
        ({"task": None, "labels": []}, "base is no digest, or it has no head"),
    ],
    ids=range(3),
)
def test_manifests_of_no_adapter_are_refused(task, tmp_path, fields, message):
    path = tmp_path / "bad.fala"
    path.write_bytes(repacked(task.path, **fields))
    with pytest.raises(BundleFormatError, match=message):
        Bundle.open(path)


def test_a_missing_file_is_named(task, tmp_path):
    path = tmp_path / "bad.fala"
    path.write_bytes(repacked(task.path, {STEPS: None}))
    with pytest.raises(BundleFilesError, match=r"missing .*down\.scales\.npy"):
        Bundle.open(path)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda inputs: inputs.pop("adapter.1.output.up.bias"), BundleFormatError),
        (lambda inputs: inputs.update(more=np.zeros(3)), BundleFormatError),
        (lambda inputs: inputs.update({k: v[:-1] for k, v in inputs.items() if ".0." in k}),
         BundleFormatError),
        (lambda inputs: inputs.update({k: v * np.nan for k, v in inputs.items()}),
         BundleFormatError),
        (lambda inputs: inputs.clear(), BundleFormatError),
    ],
    ids=["missing", "more", "shape", "nan", "nothing"],
)  # fmt: skip
def test_what_is_no_adapter_is_not_written(encoder, tmp_path, change, error):
    inputs, path = make_inputs(), tmp_path / "bad.fala"
    change(inputs)
    with pytest.raises(error):
        write_adapter(path, encoder, "task", inputs, make_head(), {"config": FORM}, {})
    with pytest.raises(DimensionError):
        write_adapter(
            path, encoder, "task", make_inputs(), make_head(dimension=5), {"config": FORM}, {}
        )
    assert not path.exists()


EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert"]), st.integers(0, 1 << 16),
              st.integers(1, 255)),
    min_size=1, max_size=3,
)  # fmt: skip


def changed(data, edits):
    for kind, position, byte in edits:
        at = position % (len(data) + 1)
        middle = bytes([byte]) if kind == "insert" else bytes(b ^ byte for b in data[at : at + 1])
        data = data[:at] if kind == "cut" else data[:at] + middle + data[at + (kind == "flip") :]
    return data


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["", layout.MANIFEST, *layout.ADAPTER_FILES]), EDITS)
def test_a_changed_adapter_is_equal_or_refused(task, tmp_path_factory, name, edits):
    """Whether the whole file was changed, or a part by somebody who mends the digests."""
    path = tmp_path_factory.getbasetemp() / "changed.fala"
    if name in ("", layout.MANIFEST):
        path.write_bytes(changed(task.path.read_bytes(), edits))
    else:
        content = changed(dict(entries_of(task.path))[name], edits)
        path.write_bytes(repacked(task.path, {name: content}))
    try:
        state = (bundle := Bundle.open(path)).state()
    except BundleError:
        return
    assert set(state.inputs) == set(task.state().inputs)
    assert all(np.isfinite(one).all() for one in state.inputs.values())
    if name in ("", layout.MANIFEST):
        assert bundle.manifest == task.manifest and state.digest == task.state().digest
