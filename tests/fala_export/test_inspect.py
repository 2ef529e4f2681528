import sys

import numpy as np
import pytest

from bundles import (
    DIMENSION,
    entries_of,
    make_head,
    onnx_files,
    onnx_manifest,
    word_vector_files,
    word_vector_manifest,
    write_onnx_release,
)
from export_command import failed, works
from fala.base.errors import install_hint
from fala_export import write_bundle, write_external
from fala_export.release import inspection
from fala_export.release.inspection import inspect

pytestmark = pytest.mark.slow

PARITY = {"mean_cosine": 0.9912345, "worst_cosine": 0.97, "texts": 64}
COST = {"parameters": 22_700_000, "flops": {"16": 0.68e9, "64": 2.7e9, "128": 5.5e9}}


def write_noted(path, **details):
    manifest = onnx_manifest(details={"pad_id": 0, **details})
    write_bundle(path, manifest, onnx_files())
    return path


def test_inspect_describes_a_release(tmp_path):
    head = make_head(labels=("calm", "rude", "vile"))
    path = tmp_path / "r.fala"
    bundle = write_onnx_release(path, head)
    report = inspect(path)
    described = {"name": "tiny encoder", "kind": "onnx", "task": "classification",
                 "labels": ["calm", "rude", "vile"], "bytes": path.stat().st_size,
                 "details": {"pad_id": 0, "head": "random"}}  # fmt: skip
    assert described.items() <= report.items()
    assert report["digests"] == {"backbone": bundle.backbone_digest, "head": bundle.head_digest}
    sizes = {name: len(data) for name, data in entries_of(path)}
    assert {part["name"]: part["bytes"] for part in report["parts"]} == sizes
    for part in report["parts"]:
        assert part["share"] == pytest.approx(part["bytes"] / report["bytes"], abs=1e-4)
    assert report["parts"] == sorted(report["parts"], key=lambda part: -part["bytes"])


def test_inspect_shows_figures_of_the_export(tmp_path):
    write_noted(tmp_path / "x.fala", parity=PARITY, cost=COST, versions={"torch": "2.13"}, seed=7)
    report = inspect(tmp_path / "x.fala")
    assert (report["parity"], report["cost"]) == (PARITY, COST)
    assert (report["versions"], report["details"]) == ({"torch": "2.13"}, {"pad_id": 0, "seed": 7})
    assert report["digests"]["head"] is None
    shown = works("inspect", tmp_path / "x.fala").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    expected = {"GFLOP a text 0.68 2.7 5.5", "parameters 22.70 million", "mean cosine: 0.9912"}
    assert expected <= set(lines)


@pytest.mark.parametrize(
    "stored",
    [None, 5, {}, {"parameters": "many", "flops": {}}, {"parameters": 1, "flops": {"16": "x"}}],
)
def test_cost_of_word_vectors_is_that_of_their_sum_unless_one_is_recorded(tmp_path, stored):
    manifest = word_vector_manifest(dimension=5, details={"cost": stored})
    write_bundle(tmp_path / "w.fala", manifest, word_vector_files(words="abc", dimension=5))
    report = inspect(tmp_path / "w.fala")
    assert report["cost"] == {"parameters": 15, "flops": {"16": 80, "64": 320, "128": 640}}


def test_a_missing_cost_is_counted_in_the_model(tmp_path, monkeypatch):
    def count(model):
        assert model.SerializeToString() == onnx_files()["backbone/model.onnx"]
        return COST

    monkeypatch.setattr(inspection, "cost", count)
    assert inspect(write_noted(tmp_path / "x.fala"))["cost"] == COST


def test_without_onnx_the_cost_is_unknown_with_a_reason(tmp_path, monkeypatch):
    write_noted(tmp_path / "x.fala")
    monkeypatch.setitem(sys.modules, "onnx", None)
    shown = works("inspect", tmp_path / "x.fala").stdout
    assert f"unknown: not recorded at export; to count it: {install_hint('export')}" in shown


def test_a_foreign_or_missing_file_ends_in_one_line(tmp_path):
    bad = tmp_path / "bad.fala"
    assert "bad.fala: no such file" in failed("inspect", bad)
    bad.write_bytes(b"only words here\n")
    assert "not a bundle" in failed("inspect", bad)


def test_a_release_for_the_apps_own_encoder(tmp_path):
    path = tmp_path / "own.fala"
    write_external(path, "photos", "2", make_head(), {"a": np.ones(DIMENSION)})
    assert "the app's own: photos 2" in works("inspect", path).stdout
