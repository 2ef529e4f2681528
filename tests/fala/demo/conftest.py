import shutil

import pytest

import fala
from bundles import write_onnx_release, write_word_vector_release
from replace_command import data_rows, jsonl


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Arguments of a trial from tiny vectors to a tiny transformer."""
    folder = tmp_path_factory.mktemp("tiny")
    write_word_vector_release(folder / "old.fala")
    write_onnx_release(folder / "new.fala")
    return "--old", folder / "old.fala", "--new", folder / "new.fala"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(data_rows()))
    return path


@pytest.fixture
def device(tmp_path, tiny):
    """A device folder with the tiny old release, which has learned, a fifth of it wrongly."""
    rows = data_rows()
    labels = [row["label"] if number % 5 else 1 - row["label"] for number, row in enumerate(rows)]
    with fala.Device.create(tmp_path / "device", tiny[1]) as opened:
        opened.learn([row["text"] for row in rows], labels)
    return tmp_path / "device"


@pytest.fixture
def bridged(tmp_path, tiny):
    """The tiny new release with a bridge from the tiny old one."""
    shutil.copy(tiny[3], tmp_path / "bridged.fala")
    old, new = fala.Bundle.open(tiny[1]), fala.Bundle.open(tmp_path / "bridged.fala")
    texts = [row["text"] for row in data_rows()]
    vectors = (bundle.backbone().encode(texts) for bundle in (old, new))
    fala.add_bridge(new.path, new, fala.fit_bridge(old.backbone_digest, *vectors), {})
    return new.path
