"""A release is first loaded in a child process; if that process dies, the release is rejected."""

import logging
import os
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")

import bundles
from fala import BundleError, BundleFormatError, Device
from fala.bundle.reading import Bundle
from fala.bundle.writing import write_release
from fala.slots import validation
from fala.slots.validation import FORBIDDEN, validate
from fala.testing.hostile import Changes, repack
from hostile_graphs import write_hostile_graph

pytestmark = pytest.mark.slow


@pytest.fixture
def child_processes(monkeypatch):
    """Child processes are allowed, and no release is validated yet."""
    monkeypatch.delenv(FORBIDDEN, raising=False)
    monkeypatch.setattr(validation, "VALIDATED", set())


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return bundles.write_onnx_release(tmp_path_factory.mktemp("release") / "new.fala").path


def hold(path):
    return Bundle.open(path, hold=True)


@pytest.mark.usefixtures("child_processes")
def test_edge_cases_are_encoded_once_in_a_child_process(release, encoded, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "fala.slots"):
        backbone = validate(hold(release))
    assert encoded == [] and caplog.records == []
    monkeypatch.delattr(validation, "_validate_in_child")
    again = validate(hold(release))
    np.testing.assert_array_equal(backbone.encode(["a film"]), again.encode(["a film"]))


@pytest.mark.usefixtures("child_processes")
def test_a_held_bundle_ignores_a_changed_file(release, tmp_path, caplog):
    bundle = hold(shutil.copy(release, tmp_path / "x.fala"))
    write_hostile_graph("silent on blanks", release, bundle.path)
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(bundle)
    assert caplog.records == [] and bundle.digest in validation.VALIDATED


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
@pytest.mark.usefixtures("child_processes")
def test_a_release_that_exhausts_memory_ends_the_child_process(release, tmp_path):
    path = write_hostile_graph("size by one length", release, tmp_path / "x.fala")
    with pytest.raises(BundleError, match=r"alloc|memory|the process that loaded"):
        Device.create(tmp_path / "device", path)
    assert not (tmp_path / "device").exists()


@pytest.mark.usefixtures("child_processes")
def test_a_release_with_nan_logits_is_rejected_by_name(release, tmp_path):
    path = write_hostile_graph("silent on blanks", release, tmp_path / "x.fala")
    with pytest.raises(BundleFormatError, match="NaN") as caught:
        validate(hold(path))
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.usefixtures("child_processes")
@pytest.mark.skipif(os.name == "nt", reason="a link to another program")
@pytest.mark.parametrize(
    ("name", "why"), [("python3", "ended with code"), ("app", "no Python interpreter")]
)
def test_without_a_child_it_is_loaded_here(name, why, release, tmp_path, monkeypatch, caplog):
    (tmp_path / name).symlink_to("/bin/false")
    monkeypatch.setattr(sys, "executable", str(tmp_path / name))
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(hold(release))
    assert why in caplog.text
    path = write_hostile_graph("silent on blanks", release, tmp_path / "x.fala")
    with pytest.raises(BundleFormatError, match="NaN"):
        validate(hold(path))


def test_an_app_forbids_child_processes(release, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(FORBIDDEN, "1")
    monkeypatch.setattr(validation, "VALIDATED", set())
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(hold(release))
    assert f"{FORBIDDEN} is set" in caplog.text


def test_logits_of_probes_are_those_of_the_manifest(release, tmp_path, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    monkeypatch.setattr(validation, "VALIDATED", set())
    bundle = hold(release)
    embeddings = bundle.backbone().encode(["a film", ""])
    expected = bundle.head().vendor_model().logits(embeddings)

    def with_probes(logits):
        return with_detail({"texts": ["a film", ""], "logits": logits, "tolerance": 0.01})

    def with_detail(probes):
        details = {**bundle.manifest.details, "probes": probes}
        return hold(repack(release, tmp_path / "x.fala", Changes(manifest={"details": details})))

    validate(with_probes(expected.tolist()))
    with pytest.raises(BundleFormatError, match="differ by 1"):
        validate(with_probes((expected + 1).tolist()))
    for wrong in ([], [[1.0]], [["a"], ["b"]], None, [[1.0, 2.0]] * 2):
        with pytest.raises(BundleFormatError, match="probes are not"):
            validate(with_probes(wrong))
    for wrong in ("a film", ["a film"], 7, {"texts": ["a film"]}):
        with pytest.raises(BundleFormatError, match="probes are not"):
            validate(with_detail(wrong))


def test_word_vectors_are_loaded_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "VALIDATED", set())
    bundles.write_word_vector_release(tmp_path / "x.fala")
    monkeypatch.setattr(sys, "executable", None)
    assert validate(hold(tmp_path / "x.fala")).dimension == bundles.DIMENSION


def test_a_backbone_alone_is_rejected(tmp_path):
    bundles.write_onnx(tmp_path / "x.fala")
    with pytest.raises(BundleError, match="without a head"):
        validate(hold(tmp_path / "x.fala"))
    write_release(tmp_path / "y.fala", hold(tmp_path / "x.fala"), bundles.make_head(), {})
