"""A bundle passes the door of a device before a command says that it succeeded."""

import numpy as np
import pytest
from onnx import numpy_helper

import bundles
from adapter_releases import write_adapter_for, write_release_for_adapters
from export_command import failed
from fala import Bundle, BundleFormatError
from fala.bundle import format as layout
from fala_export import write_bundle
from fala_export.bundle.admit import check_admitted, write_admitted
from fala_export.bundle.writing import write_again


def write_backbone(path, change=lambda table: None):
    """Write a tiny encoder without a head, whose table of tokens is changed."""
    model = bundles.onnx_model()
    (table,) = (array for array in model.graph.initializer if array.name == "table")
    numbers = numpy_helper.to_array(table).copy()
    change(numbers)
    table.CopyFrom(numpy_helper.from_array(numbers, "table"))
    files = {**bundles.onnx_files(), layout.ONNX_MODEL: model.SerializeToString()}
    write_bundle(path, bundles.onnx_manifest(), files)
    return path


def broken(numbers):
    """A token that every text has; the model's file is as valid as any."""
    numbers[2] = np.nan


def test_backbones_releases_and_adapters_are_admitted(tmp_path):
    assert check_admitted(write_backbone(tmp_path / "backbone.fala")) == {}
    release = tmp_path / "release.fala"
    bundles.write_onnx_release(release)
    assert check_admitted(release) == {}
    base, adapter = tmp_path / "base.fala", tmp_path / "adapter.fala"
    write_adapter_for(adapter, write_release_for_adapters(base), "task")
    assert check_admitted(adapter, base) == {}
    signed = bundles.with_pattern(release, tmp_path / "signed.fala", r"[a-z]+(?=ing)|\p{L}+|\S")
    assert "of no known tokenizer family" in check_admitted(signed)["must be signed"]


def test_a_bundle_that_a_device_rejects_is_not_written(tmp_path):
    """The audit finds nothing: the model fails when it reads a text."""
    out = bundles.write_word_vectors(tmp_path / "out.fala").path
    before = out.read_bytes()

    def make(path):
        write_backbone(path, broken)
        return {"name": "broken"}

    with pytest.raises(BundleFormatError, match=r"out\.fala: a device would reject it: .* NaN"):
        write_admitted(out, make)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]
    summary = write_admitted(out, lambda path: {"name": write_backbone(path).name})
    assert summary["bundle"] == str(out) and Bundle.open(out).manifest.kind == layout.ONNX


def test_a_command_that_makes_what_a_device_rejects_fails(tmp_path):
    """A head of another backbone: its vendor's probes are not its own."""
    later, earlier = tmp_path / "later.fala", tmp_path / "earlier.fala"
    probes = {"texts": ["a good film"], "logits": [[1000.0]]}
    write_again(later, bundles.write_word_vector_release(later), {"probes": probes})
    bundles.write_word_vectors(earlier, seed=5)
    (tmp_path / "texts.txt").write_text("\n".join(bundles.texts(300)))
    before = later.read_bytes()
    words = ("--from", earlier, "--to", later, "--texts", tmp_path / "texts.txt")
    message = failed("bridge", *words)
    assert f"{later}: a device would reject it: on this machine its logits differ" in message
    assert later.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3
