from importlib.util import find_spec

import pytest

from encoders import make_encoder, write_encoder
from fala_export.families.distillation.texts import Texts
from public_data import matching_rows, sentences, text_rows

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


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny random BERT that knows the words of public rows, with dropout."""
    matches = matching_rows()
    titles = [title for row in matches for title in (row["candidate"], *row["history"])]
    corpus = [*(row["text"] for row in text_rows()), *titles]
    encoder = make_encoder(texts=corpus, pieces=200)
    encoder.module.transformer.config.hidden_dropout_prob = 0.1
    return write_encoder(tmp_path_factory.mktemp("model") / "tiny", encoder)


@pytest.fixture(scope="module")
def encoder():
    """A tiny random teacher."""
    return make_encoder(texts=sentences(100, 1), pieces=200)


@pytest.fixture(scope="module")
def texts():
    """The texts of a distillation."""
    return Texts(sentences(200, 2), sentences(40, 3), sentences(200, 2))
