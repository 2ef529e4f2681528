"""A graph in ONNX Runtime's own format is followed as the same one in ONNX."""

import random

import pytest

pytest.importorskip("onnx")

from bundles import onnx_model
from fala.audit.graph import UnsoundError
from fala.audit.model import audit_model
from fala.audit.onnx_file import read_onnx
from fala.audit.ort_file import read_ort
from fala.errors import BundleFormatError


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The tiny graph as onnxruntime itself writes it, with nothing optimized."""
    import onnxruntime

    path = tmp_path_factory.mktemp("ort") / "model.ort"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(
        onnx_model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return path.read_bytes()


def test_both_formats_say_the_same(stored):
    ours, theirs = read_ort(stored), read_onnx(onnx_model().SerializeToString())
    assert [node.operator for node in ours.nodes] == [node.operator for node in theirs.nodes]
    assert [node.inputs for node in ours.nodes] == [node.inputs for node in theirs.nodes]
    assert ours.inputs == theirs.inputs and ours.outputs == theirs.outputs
    assert {name: tensor.dims for name, tensor in ours.constants.items()} == {
        name: tensor.dims for name, tensor in theirs.constants.items()
    }
    assert audit_model(stored, 16, ort_format=True) == audit_model(
        onnx_model().SerializeToString(), 16
    )


def test_any_bytes_are_a_graph_or_are_none(stored):
    for seed in range(400):
        chance, data = random.Random(seed), bytearray(stored)
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255))
        if seed % 9 == 0:
            del data[chance.randrange(len(data)) :]
        try:
            audit_model(bytes(data), 16, ort_format=True)
        except BundleFormatError:
            continue


def test_any_bytes_are_an_onnx_graph_or_are_none():
    model = onnx_model().SerializeToString()
    for seed in range(400):
        chance, data = random.Random(seed), bytearray(model)
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255))
        try:
            audit_model(bytes(data), 16)
        except BundleFormatError:
            continue


@pytest.mark.parametrize("data", [b"", b"ORTM", b"\x08\0\0\0ORTM", b"\xff\xff\xff\x7fORTM" * 4])
def test_what_is_no_file_of_this_format(data):
    with pytest.raises(ValueError, match=r"ORT|ONNX|offset|graph|past") as caught:
        read_ort(data)
    assert not isinstance(caught.value, UnsoundError)
