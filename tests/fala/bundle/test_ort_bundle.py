"""Files in ONNX Runtime's own format that no exporter of ours has written."""

import json
import struct
import subprocess
import sys

import pytest

pytest.importorskip("onnx")

from bundles import MAX_LENGTH, onnx_manifest, onnx_model, tokenizer_json
from fala.backbones import OnnxEncoder
from fala.bundle import format as layout
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_bundle
from fala.errors import BundleFormatError
from optional_graphs import stored

# Runs in a process of its own: what ends the process is what is looked for.
_FUZZ = """
import json, random, sys
from collections import Counter
from fala.backbones import OnnxEncoder
from fala.errors import BundleError
model, tokenizer = (open(path, "rb").read() for path in sys.argv[1:])
seen = Counter()
for seed in range(400):
    chance, data = random.Random(seed), bytearray(model)
    if seed % 8 == 0:
        data = data[: chance.randrange(len(data))]
    for _ in range(chance.choice((1, 1, 3, 20)) if seed % 8 else 0):
        position = chance.randrange(len(data))
        data[position] = chance.choice((0, 1, 127, 128, 255, data[position] ^ 1 << seed % 8))
    try:
        OnnxEncoder(bytes(data), tokenizer, max_length=16, ort_format=True).encode(["good film"])
        seen["loaded"] += 1
    except BundleError:
        seen["refused"] += 1
print(json.dumps(seen))
"""


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
    """Let the first constant be one that lies at an offset of another file."""
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


def test_weights_outside_the_file_are_refused(model, tmp_path):
    changed = with_weights_elsewhere(model)
    (tmp_path / "model.ort.data").write_bytes(bytes(4096))
    bundle = write_ort(tmp_path / "x.fala", changed)
    with pytest.raises(BundleFormatError, match="weights outside"):
        bundle.backbone()


def test_the_tokenizer_and_the_model_make_a_backbone(model, tmp_path):
    backbone = write_ort(tmp_path / "x.fala", model).backbone()
    assert backbone.dimension == backbone.encode(["good film"]).shape[1]


def test_a_damaged_model_is_refused_and_never_ends_the_process(model, tmp_path):
    paths = tmp_path / "model.ort", tmp_path / "tokenizer.json"
    for path, data in zip(paths, (model, tokenizer_json()), strict=True):
        path.write_bytes(data)
    arguments = [sys.executable, "-c", _FUZZ, *map(str, paths)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    seen = json.loads(done.stdout)
    assert seen["refused"] > 100
    assert sum(seen.values()) == 400


@pytest.mark.parametrize("garbage", [b"", b"ORTM", b"\x08\x00\x00\x00ORTM" + bytes(64), bytes(999)])
def test_what_is_no_model_is_refused(garbage):
    with pytest.raises(BundleFormatError, match="cannot load the model"):
        OnnxEncoder(garbage, tokenizer_json(), max_length=MAX_LENGTH, ort_format=True)
