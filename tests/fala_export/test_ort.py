import numpy as np
import pytest

from encoders import POSITIONS, TEXTS, make_encoder
from fala import Bundle, BundleFormatError
from fala.backbones import OnnxEncoder
from fala.bundle.format import ORT, ORT_MODEL, ORT_OPERATORS
from fala_export.backbone import export_encoder
from fala_export.errors import ExportError
from fala_export.graph.ort_format import to_ort
from fala_export.settings import ExportOptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder():
    return make_encoder()


def export(encoder, out, ort, precision="int8"):
    options = ExportOptions(name="tiny", precision=precision, min_cosine=0, ort=ort)
    export_encoder(encoder, out, options)
    return Bundle.open(out)


@pytest.fixture(scope="module")
def converted(encoder, tmp_path_factory):
    """A bundle in int8, which has the most operators."""
    return export(encoder, tmp_path_factory.mktemp("ort") / "x.fala", ort=True)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_bundle_in_the_runtimes_format_gives_the_same_embeddings(encoder, tmp_path, precision):
    plain = export(encoder, tmp_path / "plain.fala", False, precision)
    converted = export(encoder, tmp_path / "ort.fala", True, precision)
    assert converted.manifest.kind == ORT
    expected = plain.backbone().encode(TEXTS)
    np.testing.assert_allclose(converted.backbone().encode(TEXTS), expected, atol=1e-5)


def test_the_operators_are_listed_as_a_reduced_build_reads_them(converted, tmp_path):
    from onnxruntime.tools.reduced_build_config_parser import parse_config

    listed = tmp_path / "operators.config"
    listed.write_bytes(converted.read(ORT_OPERATORS))
    required = parse_config(str(listed))[0]
    assert "LayerNormalization" in required["ai.onnx"][17]
    assert str(tmp_path) not in listed.read_text()


def test_invalid_models_are_rejected(encoder, converted):
    with pytest.raises(ExportError, match="in its format"):
        to_ort(b"nothing")
    model = converted.read(ORT_MODEL)
    # The manifest, not the bytes, determines the format.
    with pytest.raises(BundleFormatError):
        OnnxEncoder(model, encoder.tokenizer, max_length=POSITIONS)
    for broken in (b"", b"nothing", model[: len(model) // 2], bytes(100) + model[100:]):
        with pytest.raises(BundleFormatError, match="onnxruntime cannot load the model"):
            OnnxEncoder(broken, encoder.tokenizer, max_length=POSITIONS, ort_format=True)
