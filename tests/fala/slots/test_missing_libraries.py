"""A missing library of a transformer is an error, and no fault of the release."""

import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

import fala
from adapter_releases import TEXTS, write_adapter_for, write_release_for_adapters
from bundles import write_word_vector_release


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    vectors = write_word_vector_release(folder / "vectors.fala")
    transformer = write_release_for_adapters(folder / "transformer.fala")
    adapter = write_adapter_for(folder / "adapter.fala", transformer, "task")
    return {"vectors": vectors.path, "transformer": transformer.path, "adapter": adapter.path}


def kept(path):
    """Return all that a device's store contains, and its bundles' names."""
    with closing(sqlite3.connect(path / "store.sqlite3")) as db:
        return [*db.iterdump()], sorted(file.name for file in (path / "bundles").iterdir())


@pytest.fixture(scope="module")
def folders(tmp_path_factory, releases):
    """Make a device on word vectors, and the same with the transformer on trial."""
    folder = tmp_path_factory.mktemp("folders")
    with fala.Device.create(folder / "vectors", releases["vectors"]) as device:
        device.learn(TEXTS[:20], ["0", "1"] * 10)
    shutil.copytree(folder / "vectors", folder / "transformer")
    with fala.Device.open(folder / "transformer") as device:
        device.replace(releases["transformer"], fala.Budget(10))
    return folder


@pytest.fixture(params=["onnxruntime", "tokenizers"])
def missing(request, monkeypatch):
    """Hide one of the libraries."""
    monkeypatch.setitem(sys.modules, request.param, None)
    return request.param


def raises(library):
    return pytest.raises(fala.MissingExtraError, match=f"needs {library}: pip install {library} ")


def test_no_release_is_installed(tmp_path, releases, folders, missing, monkeypatch):
    with raises(missing):
        fala.Device.create(tmp_path / "new", releases["transformer"])
    assert not (tmp_path / "new").exists()
    path = shutil.copytree(folders / "vectors", tmp_path / "device")
    before = kept(path)
    with fala.Device.open(path) as device:
        for call in (device.replace, device.preview):
            with raises(missing):
                call(releases["transformer"])
        assert not device.status().on_trial and kept(path) == before
        monkeypatch.undo()
        device.replace(releases["transformer"], fala.Budget(10))


def test_a_release_on_trial_stays_on_trial(tmp_path, folders, missing, monkeypatch):
    path = shutil.copytree(folders / "transformer", tmp_path / "device")
    before = kept(path)
    for _ in range(4):  # more than the tries of a trial
        with fala.Device.open(path) as device:
            for call in (device.predict, device.predict_proba, device.rank):
                with raises(missing):
                    call(TEXTS[-5:])
            with raises(missing):
                device.refine()
            assert device.status().on_trial and device.status().fell_back is None
    assert kept(path) == before
    with fala.Device.open(path) as device, raises(missing):
        device.learn(TEXTS[20:30], ["0", "1"] * 5)
    assert fala.Device.examine(path).labelled == 30  # the labels are kept before they are encoded
    monkeypatch.undo()
    with fala.Device.open(path) as device:
        assert device.status().on_trial and len(device.predict(TEXTS)) == len(TEXTS)


def test_what_needs_no_forward_pass_works(tmp_path, folders, releases, missing):
    path = shutil.copytree(folders / "transformer", tmp_path / "device")
    with fala.Device.open(path) as device:
        device.forget(where=lambda row: row.example == TEXTS[0])
        assert device.export_data(tmp_path / "rows.jsonl") == 19
        with raises(missing):
            device.load_adapter(releases["adapter"])
        assert not device.status().adapters
        device.rollback()
        assert device.status().release == "tiny vectors"
        assert device.predict(TEXTS).shape == (len(TEXTS),)
        device.erase()
    assert not path.exists()


def test_a_repair_keeps_the_release(tmp_path, folders, releases, missing):
    path = shutil.copytree(folders / "transformer", tmp_path / "device")
    with (path / "store.sqlite3").open("r+b") as file:
        file.seek(-4096, 2)
        file.write(bytes(4096))
    report = fala.Device.repair(path)
    assert report.whole and report.active == "tiny encoder"
    for file in (path / "bundles").iterdir():
        file.write_bytes(b"")
    with raises(missing):
        fala.Device.repair(path, releases["transformer"])
    assert not fala.Device.examine(path).whole
