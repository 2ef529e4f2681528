"""A release's first load: in a process of its own, whose end is the release's refusal."""

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
from fala.testing.hostile import Changes, repack, write_hostile

pytestmark = pytest.mark.slow


@pytest.fixture
def apart(monkeypatch):
    """Processes may be started, and nothing is validated yet."""
    monkeypatch.delenv(FORBIDDEN, raising=False)
    monkeypatch.setattr(validation, "VALIDATED", set())


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return bundles.write_onnx_release(tmp_path_factory.mktemp("release") / "new.fala").path


def held(path):
    return Bundle.open(path, hold=True)


@pytest.mark.usefixtures("apart")
def test_odd_texts_are_answered_elsewhere_and_once(release, encoded, caplog, monkeypatch):
    with caplog.at_level(logging.INFO, "fala.slots"):
        backbone = validate(held(release))
    assert encoded == [] and caplog.records == []
    monkeypatch.delattr(validation, "_validate_in_child")
    again = validate(held(release))
    np.testing.assert_array_equal(backbone.encode(["a film"]), again.encode(["a film"]))


@pytest.mark.usefixtures("apart")
def test_a_file_that_is_another_by_now_is_loaded_as_it_was(release, tmp_path, caplog):
    bundle = held(shutil.copy(release, tmp_path / "x.fala"))
    write_hostile("silent on blanks", release, bundle.path)
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(bundle)
    assert caplog.records == [] and bundle.digest in validation.VALIDATED


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
@pytest.mark.usefixtures("apart")
def test_what_no_look_finds_ends_another_process(release, tmp_path):
    path = write_hostile("size by one length", release, tmp_path / "x.fala")
    with pytest.raises(BundleError, match=r"alloc|memory|the process that loaded"):
        Device.create(tmp_path / "device", path)
    assert not (tmp_path / "device").exists()


@pytest.mark.usefixtures("apart")
def test_what_answers_nonsense_is_refused_by_name(release, tmp_path):
    path = write_hostile("silent on blanks", release, tmp_path / "x.fala")
    with pytest.raises(BundleFormatError, match="NaN") as caught:
        validate(held(path))
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.usefixtures("apart")
@pytest.mark.skipif(os.name == "nt", reason="a link to another program")
@pytest.mark.parametrize(
    ("name", "why"), [("python3", "ended with code"), ("app", "no Python interpreter")]
)
def test_where_no_process_can_be_it_answers_here(name, why, release, tmp_path, monkeypatch, caplog):
    (tmp_path / name).symlink_to("/bin/false")
    monkeypatch.setattr(sys, "executable", str(tmp_path / name))
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(held(release))
    assert why in caplog.text
    path = write_hostile("silent on blanks", release, tmp_path / "x.fala")
    with pytest.raises(BundleFormatError, match="NaN"):
        validate(held(path))


def test_an_app_forbids_processes(release, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(FORBIDDEN, "1")
    monkeypatch.setattr(validation, "VALIDATED", set())
    with caplog.at_level(logging.INFO, "fala.slots"):
        validate(held(release))
    assert f"{FORBIDDEN} is set" in caplog.text


def test_a_release_tells_what_its_probes_must_get(release, tmp_path, monkeypatch):
    monkeypatch.setenv(FORBIDDEN, "1")
    monkeypatch.setattr(validation, "VALIDATED", set())
    bundle = held(release)
    embeddings = bundle.backbone().encode(["a film", ""])
    z = bundle.head().vendor_model().logits(embeddings)

    def telling(logits):
        probes = {"texts": ["a film", ""], "logits": logits, "tolerance": 0.01}
        details = {**bundle.manifest.details, "probes": probes}
        return held(repack(release, tmp_path / "x.fala", Changes(manifest={"details": details})))

    validate(telling(z.tolist()))
    with pytest.raises(BundleFormatError, match="differ by 1"):
        validate(telling((z + 1).tolist()))
    for wrong in ([], [[1.0]], [["a"], ["b"]], None, [[1.0, 2.0]] * 2):
        with pytest.raises(BundleFormatError, match="probes are not"):
            validate(telling(wrong))


def test_word_vectors_are_loaded_here(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "VALIDATED", set())
    bundles.write_word_vector_release(tmp_path / "x.fala")
    monkeypatch.setattr(sys, "executable", None)
    assert validate(held(tmp_path / "x.fala")).dimension == bundles.DIMENSION


def test_a_backbone_alone_is_refused(tmp_path):
    bundles.write_onnx(tmp_path / "x.fala")
    with pytest.raises(BundleError, match="without a head"):
        validate(held(tmp_path / "x.fala"))
    write_release(tmp_path / "y.fala", held(tmp_path / "x.fala"), bundles.make_head(), {})
