from importlib.util import find_spec

import pytest

from bundles import tokenizer_json
from encoders import make_encoder
from public_data import sentences

if find_spec("torch") is None:  # it comes with the extra [export], as all that these tests need
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module", autouse=True)
def one_round():
    """Time every export once instead of seven times; these tests ignore its speed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fala_export.graph.parity._ROUNDS", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for the files of a module's tests."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def tokenizer(tmp_path):
    """The file of a word-level tokenizer."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_json())
    return path


@pytest.fixture(scope="module")
def encoder():
    """A tiny random encoder."""
    return make_encoder(texts=sentences(100, 1), pieces=200)
