"""Files in ONNX Runtime's own format that FaLA's exporter did not write."""

import struct

import pytest

pytest.importorskip("onnx")

from bundles import onnx_manifest, onnx_model, tokenizer_json
from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_bundle
from fala.errors import BundleFormatError
from optional_graphs import stored


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The tiny graph of ``bundles``, as onnxruntime itself writes it."""
    path = tmp_path_factory.mktemp("ort") / "model.ort"
    return stored(onnx_model().SerializeToString(), path)


def write_ort(path, model):
    files = {layout.ORT_MODEL: model, layout.TOKENIZER: tokenizer_json()}
    write_bundle(path, onnx_manifest(kind=layout.ORT), files)
    return Bundle.open(path)


def with_weights_elsewhere(model):
    """Replace the first constant by one at an offset of another file."""
    from flatbuffers import Builder
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import InferenceSession, Tensor

    graph = InferenceSession.InferenceSession.GetRootAs(model, 0).Model().Graph()
    old = graph.Initializers(0)
    builder = Builder(0)
    name = builder.CreateString(old.Name())
    Tensor.StartDimsVector(builder, old.DimsLength())
    for size in reversed(old.DimsAsNumpy()):
        builder.PrependInt64(int(size))
    dims = builder.EndVector()
    Tensor.Start(builder)
    Tensor.AddName(builder, name)
    Tensor.AddDims(builder, dims)
    Tensor.AddDataType(builder, old.DataType())
    Tensor.AddExternalDataOffset(builder, 0)
    builder.Finish(Tensor.End(builder))
    added = bytes(builder.Output())
    data = bytearray(model + bytes(-len(model) % 16))
    target = len(data) + struct.unpack("<I", added[:4])[0]
    slot = graph._tab.Vector(graph._tab.Offset(4))  # the constants are a graph's first field
    data[slot : slot + 4] = struct.pack("<I", target - slot)
    return bytes(data) + added


def test_weights_outside_the_file_are_rejected(model, tmp_path):
    assert write_ort(tmp_path / "x.fala", model).backbone().encode(["good film"]).any()
    changed = with_weights_elsewhere(model)
    (tmp_path / "model.ort.data").write_bytes(bytes(4096))
    bundle = write_ort(tmp_path / "x.fala", changed)
    with pytest.raises(BundleFormatError, match="weights outside"):
        bundle.backbone()
