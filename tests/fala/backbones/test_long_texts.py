"""Long texts take little memory, because only their beginning is encoded."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")

from bundles import (
    MAX_LENGTH,
    onnx_model,
    tokenizer_json,
    write_onnx_release,
    write_static_release,
    write_word_vector_release,
)
from fala.backbones import OnnxEncoder, word_vectors
from fala.backbones.onnx_encoder import LONGEST

_MEASURE = """
import resource, sys
from fala.bundle.reading import Bundle
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
backbones = [Bundle.open(path).backbone() for path in sys.argv[1:]]
for backbone in backbones:
    backbone.encode(["a good film"])
before = used()
for backbone in backbones:
    for text in ("good film ", "x" * 10, " " * 10, "\\ufdfa" * 3):
        backbone.encode([text * 1_000_000])
    backbone.encode([f"good film {number} " * 10_000 for number in range(3)])
    print((used() - before) // 1024)
"""


@pytest.fixture(scope="module")
def encoders():
    model = onnx_model().SerializeToString()
    cut = OnnxEncoder(model, tokenizer_json(), max_length=MAX_LENGTH)
    return cut, OnnxEncoder(model, tokenizer_json())


def test_text_beyond_the_limit_is_not_encoded(encoders):
    for encoder in encoders:
        text = "good film " * (LONGEST // 10 + 1)
        np.testing.assert_array_equal(
            encoder.encode([text[:LONGEST] + " awful" * 9_000]), encoder.encode([text[:LONGEST]])
        )


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no module resource, which measures peak memory"
)
def test_ten_megabytes_of_text_take_less_than_200_megabytes(tmp_path):
    writers = (write_word_vector_release, write_static_release, write_onnx_release)
    paths = [write(tmp_path / f"{number}.fala").path for number, write in enumerate(writers)]
    result = subprocess.run(
        [sys.executable, "-c", _MEASURE, *map(str, paths)], capture_output=True, text=True
    )
    peaks = [int(line) for line in result.stdout.split()]  # each includes those before it
    assert len(peaks) == 3 and peaks[-1] < 200, (peaks, result.stderr[-500:])


def test_a_text_read_in_parts_has_the_same_mean(tmp_path, monkeypatch):
    backbone = write_word_vector_release(tmp_path / "x.fala").backbone()
    text = "good film great " * 100
    whole = backbone.encode([text])
    monkeypatch.setattr(word_vectors, "_WORDS", 7)
    np.testing.assert_allclose(backbone.encode([text]), whole, rtol=1e-5)
