"""A model in a bundle is an ONNX file that refers to nothing outside itself."""

import pytest

pytest.importorskip("onnx")

from bundles import onnx_model, refused, repacked, tokenizer_json
from fala import BundleFormatError
from fala.backbones import OnnxEncoder
from fala.bundle import format as layout
from optional_graphs import stored


def test_a_model_in_onnxruntimes_own_format_is_rejected(encoder, bad, tmp_path):
    """Such a file could refer to data outside itself."""
    data = stored(onnx_model().SerializeToString(), tmp_path / "model.ort")
    refused(bad(repacked(encoder.path, {layout.ONNX_MODEL: data})), BundleFormatError, "ONNX|onnx")
    with pytest.raises(BundleFormatError, match="onnxruntime cannot load"):
        OnnxEncoder(data, tokenizer_json())
